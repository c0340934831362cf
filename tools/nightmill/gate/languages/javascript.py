"""JavaScript: ES modules on Node, parsed by its own compiler, tested by `node:test`."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import ClassVar

from nightmill.errors import ConfigError
from nightmill.gate import toolchain
from nightmill.gate.authority import Census
from nightmill.gate.languages import _javascript_calls as calling
from nightmill.gate.languages import _javascript_files as files
from nightmill.gate.languages import _javascript_links as linking
from nightmill.gate.languages import _javascript_pieces as taking
from nightmill.gate.languages import _javascript_suites as suites
from nightmill.gate.languages import _javascript_syntax as syntax
from nightmill.gate.languages._javascript_outcomes import translated
from nightmill.gate.languages._javascript_texts import EXAMPLES, PROMPT_RULES, SCHEMA_RULES, TEST_RULES, WORDS
from nightmill.gate.languages._python_report import read_report, step_of_tests
from nightmill.gate.languages.base import ACCEPTANCE, PRIVATE, Bench, Symbol, unlocated
from nightmill.gate.manner import SURROUNDINGS
from nightmill.gate.records import Diagnostic, StepRecord
from nightmill.gate.toolchain import Tool
from nightmill.gate.twice import ended, merged
from nightmill.run.trees import Tree

_HERE = Path(__file__).parent
_KEY, _LIST, _TESTS, _REPORT = (f"{PRIVATE}/{name}" for name in ("key", "files.json", "tests.json", "report.jsonl"))
_REPORT_LIMIT = 64 * 2**20
_HOMES = (
    *("/usr/bin", "/usr/local/bin", "/opt/node*/bin", "/opt/nodejs/bin", "/snap/bin"),
    *(
        "~/.nvm/versions/node/*/bin",
        "~/.volta/bin",
        "~/.local/share/fnm/node-versions/*/installation/bin",
        "~/.local/share/mise/installs/node/*/bin",
    ),
    *("~/.asdf/installs/nodejs/*/bin", "~/.local/bin", "~/n/bin"),
)
_ASK = ("-p", "process.execPath + '\\n' + process.versions.node")
_OLDEST = (18, 17)
"""The first whose reporters tell of every test before it runs."""
MISSING = "node is missing: install Node 18.17 or newer (apt install nodejs), so that it is on the PATH"
_ENVIRONMENT = {"TZ": "UTC", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "NODE_OPTIONS": ""}
_OTHER_ENVIRONMENT = {**SURROUNDINGS, "TZ": "Pacific/Kiritimati"}
"""Node does not read zones that are written as a rule; it has a table of its own."""
_SMALLEST_MB = 640
_SMALL = "; Node 24 starts with 600 MB or more (gates.memory_mb)"
"""Measured: 18 to 22 start with 128 MB of data segment, 24 with 576."""
_PARSE = ("--experimental-vm-modules", "--no-warnings")
_PARSE_S = 60.0
_STEERING = (
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "pnpm-workspace.yaml",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
)
_RUNNERS = (
    "jest.config.",
    "vitest.config.",
    "vite.config.",
    ".mocharc.",
    "karma.conf.",
    "ava.config.",
    ".babelrc",
    "babel.config.",
    ".pnpmfile.",
)


def _node() -> Tool | None:
    return toolchain.find("node", _HOMES, _ASK)


@dataclass(frozen=True)
class JavaScriptPack:
    """See `base.LanguagePack`. Without a node nothing can be judged, and every step says so."""

    find: Callable[[], Tool | None] = _node
    """Asked when node is first needed: a program in another language never needs it."""

    name: ClassVar[str] = "javascript"
    suffixes: ClassVar[tuple[str, ...]] = files.SUFFIXES
    test_suffix: ClassVar[str] = ".mjs"
    test_head: ClassVar[str] = 'import { test } from "node:test";\nimport assert from "node:assert/strict";\n\n'
    stub: ClassVar[str] = taking.STUB
    examples: ClassVar[Mapping[str, str]] = EXAMPLES
    words: ClassVar[Mapping[str, str]] = WORDS
    schema_rules: ClassVar[tuple[str, ...]] = SCHEMA_RULES
    test_rules: ClassVar[tuple[str, ...]] = TEST_RULES
    prompt_rules: ClassVar[tuple[str, ...]] = PROMPT_RULES

    @property
    def node(self) -> Tool | None:
        return self.find()

    @property
    def toolchain(self) -> str:
        return str(self.find() or MISSING)

    def require(self) -> None:
        """Raises ConfigError."""
        node = self.node
        if node is None:
            raise ConfigError(MISSING)
        if tuple(int(part) for part in node.version.split(".")[:2]) < _OLDEST:
            raise ConfigError(f"node {node.version} at {node.path} is too old: install Node 18.17 or newer")

    def detect(self, tree: Tree) -> bool:
        return any(path.endswith(self.suffixes) and "node_modules" not in path.split("/") for path in tree)

    def symbols(self, path: str, text: str) -> list[Symbol]:
        return syntax.symbols(path, text)

    def stubs(self, tree: Tree) -> dict[str, tuple[str, ...]]:
        found = {path: syntax.stubs(data.decode("utf-8", "replace")) for path, data in tree.items() if path.endswith(self.suffixes)}
        return {path: names for path, names in found.items() if names}

    def precheck(self, tree: Tree) -> tuple[Diagnostic, ...]:
        """What our own reading finds, else what V8 finds when it parses, else imports that lead nowhere. Nothing is evaluated."""
        sources = files.sources(tree)
        unread = tuple(d for path in sources if (d := syntax.problem(path, tree[path])))
        node = self.node
        if unread or node is None or not sources:
            return unread
        return self._parsed(node, tree, sources) or tuple(linking.problems(tree, sources))

    def _parsed(self, node: Tool, tree: Tree, sources: list[str]) -> tuple[Diagnostic, ...]:
        given = json.dumps([(path, tree[path].decode("utf-8", "replace"), files.kind(path, tree)) for path in sources])
        command = [str(node.path), *_PARSE, str(_HERE / "_javascript_check.mjs")]
        try:
            ran = subprocess.run(
                command, input=given.encode(), capture_output=True, timeout=_PARSE_S, check=False, env=_ENVIRONMENT, cwd="/"
            )
        except (OSError, subprocess.SubprocessError):
            return ()
        return tuple(files.complaints(ran.stdout))

    def forbidden(self, path: str) -> str | None:
        parts = PurePosixPath(path).parts
        name = parts[-1]
        if parts[0] == ACCEPTANCE:
            return "the acceptance tests are locked"
        if parts[0] == PRIVATE:
            return f"{PRIVATE} belongs to the test runner"
        if "node_modules" in parts or name.endswith((".node", ".wasm")):
            return "only sources are delivered, no packages or compiled files"
        if name == "package.json":
            return "package.json is written by program; it says that .js files are ES modules"
        if name in _STEERING or name.startswith(_RUNNERS):
            return f"{name} changes how packages or tests are found"
        return None

    def is_test_file(self, path: str) -> bool:
        parts = PurePosixPath(path).parts
        name = parts[-1]
        stem = name.rpartition(".")[0]
        ours = stem == "test" or stem.startswith(("test_", "test-")) or stem.endswith((".test", "-test", "_test", ".spec"))
        return name.endswith(self.suffixes) and (ours or "test" in parts[:-1])

    def tests_in(self, path: str, text: str) -> tuple[str, ...]:
        return suites.tests(path, text)

    def without(self, text: str, names: set[str]) -> str:
        return suites.without(text, names)

    def census(self, path: str, text: str) -> Census:
        return suites.census(path, text)

    def skeleton(self, path: str, text: str) -> str | None:
        return taking.skeleton(text)

    def function(self, path: str, text: str, name: str) -> str:
        return taking.function(text, name) or suites.source(text, name)

    def graft(self, text: str, name: str, code: str) -> str:
        return taking.graft(text, name, code)

    def call(self, text: str, sources: Tree) -> str | None:
        return calling.call(text, calling.names(sources))

    def probe(self, calls: Mapping[str, str], sources: Tree) -> Tree:
        return {"test_probe.mjs": calling.probe(calls, calling.names(sources)).encode()}

    def seen(self, message: str) -> str | None:
        return calling.seen(message)

    def test_of(self, row: str, call: str, expected: str, sources: Tree) -> str | None:
        known = calling.names(sources)
        again = calling.call(call, known)
        return calling.test(row, again, expected, known) if again else None

    def count_tests(self, tree: Tree) -> int:
        return sum(len(suites.tests(path, tree[path].decode("utf-8", "replace"))) for path in tree if self.is_test_file(path))

    def scaffold(self, source: Tree) -> Tree:
        return {"package.json": files.package(source)}

    def prepare(self, tree: Tree, acceptance: Tree) -> Tree:
        kept = {path: data for path, data in tree.items() if PRIVATE not in path.split("/") and "node_modules" not in path.split("/")}
        if "package.json" not in kept and any(files.kind(path, kept) == "module" for path in kept if path.endswith(".js")):
            kept |= self.scaffold({})
        whole = {**kept, **acceptance}
        moved = {
            path: linking.moved(path, data.decode(), whole, ACCEPTANCE).encode()
            if self.is_test_file(path) and files.is_text(data)
            else data
            for path, data in acceptance.items()
        }
        tests = sorted(path for path, data in acceptance.items() if self._is_run(path, data))
        listing = json.dumps([(path, files.kind(path, kept)) for path in files.sources(kept)]).encode()
        return {**kept, **moved, _LIST: listing, _TESTS: json.dumps(tests).encode(), _KEY: secrets.token_hex(32).encode()}

    def _is_run(self, path: str, data: bytes) -> bool:
        """Beside tests a folder called `test` holds what they import, which declares none."""
        named = self.is_test_file(PurePosixPath(path).name)
        return named or (self.is_test_file(path) and bool(self.tests_in(path, data.decode("utf-8", "replace"))))

    def build(self, bench: Bench) -> StepRecord:
        node = self.node
        if node is None:
            return StepRecord(name="build", status="not_run", detail=MISSING)
        script = "/nightmill/check.mjs"
        command = (node.inside, *_PARSE, script, _LIST)
        ran = bench.run(command, bind={**node.bind, script: _HERE / "_javascript_check.mjs"}, env=_ENVIRONMENT)
        located = tuple(files.complaints(ran.output))
        sources = files.sources(bench.laid)
        if located:
            return files.record("build", "failed", command, ran, f"{len(located)} files do not parse", located)
        if json.dumps({"checked": len(sources)}, separators=(",", ":")).encode() in ran.output and ran.exit == 0:
            return files.record("build", "passed", command, ran, f"{len(sources)} files parse")
        why = "the parser did not finish" + (_SMALL if bench.limits.memory_mb < _SMALLEST_MB else "")
        return files.record("build", "incomplete", command, ran, unlocated(why, ran.output))

    def lint(self, bench: Bench) -> StepRecord:
        return StepRecord(name="lint", status="not_run", advisory=True, detail="no linter is known for JavaScript yet")

    def test(self, bench: Bench) -> StepRecord:
        """Every file has a process of its own, so that a second run needs no other order; it has other surroundings."""
        first = self._run(bench, _ENVIRONMENT)
        if not bench.manner.seed or not ended(first):
            return first
        again = {**bench.laid, _KEY: secrets.token_hex(32).encode()}
        with bench.sandbox.workdir(again) as work:
            second = self._run(replace(bench, work=work, laid=again), {**_ENVIRONMENT, **_OTHER_ENVIRONMENT})
        surroundings = tuple(f"{name}={value}" for name, value in _OTHER_ENVIRONMENT.items())
        return merged(first, second.model_copy(update={"surroundings": surroundings}))

    def _run(self, bench: Bench, environment: Mapping[str, str]) -> StepRecord:
        """The locked tests lie under a read-only mount of their own, so that imported code cannot rewrite those that come after it."""
        node = self.node
        if node is None:
            return StepRecord(name="test", status="not_run", detail=MISSING)
        locked = {path: data for path, data in bench.laid.items() if path.startswith(f"{ACCEPTANCE}/")}
        only = bench.manner.only
        chosen = [path for path in json.loads(bench.laid[_TESTS]) if not only or any(i.startswith(f"{path}::") for i in only)]
        seconds = f"{max(1.0, bench.limits.wall_s / 4):g}"  # one hanging file leaves time for the others
        run, each, listing = "/nightmill/run.mjs", "/nightmill/file.mjs", "/nightmill/tests.json"
        heap = f"--max-old-space-size={max(64, bench.limits.memory_mb // 2)}"
        command = (node.inside, heap, "--no-warnings", run, _KEY, _REPORT, listing, seconds, each)
        with (
            bench.sandbox.workdir({path.removeprefix(f"{ACCEPTANCE}/"): data for path, data in locked.items()}) as shield,
            bench.sandbox.workdir({"tests.json": json.dumps(chosen).encode()}) as asked,
        ):
            bind = {**node.bind, run: _HERE / "_javascript_run.mjs", each: _HERE / "_javascript_file.mjs"}
            bind |= {listing: asked.path / "tests.json", f"{bench.work.inside}/{ACCEPTANCE}": shield.path}
            ran = bench.run(command, bind=bind, env=environment)
        declared = [t for path in chosen for t in self.tests_in(path, locked[path].decode("utf-8", "replace")) if not only or t in only]
        report = read_report(bench.work.read(_REPORT, _REPORT_LIMIT), bench.laid[_KEY], declared)
        report.results = [translated(t, bench.laid) for t in report.results if not only or t.id in only or t.id.partition("[")[0] in only]
        report.broken = [translated(t, bench.laid) for t in report.broken]
        return step_of_tests(ran, report, command)
