"""Python: compiled by the interpreter, linted by ruff where it is installed, tested by pytest."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, ClassVar

from nightmill.gate.authority import Asked
from nightmill.gate.faults import Mutant
from nightmill.gate.languages import _python_calls as calling
from nightmill.gate.languages import _python_pieces as pieces
from nightmill.gate.languages import _python_syntax as syntax
from nightmill.gate.languages._python_census import census
from nightmill.gate.languages._python_mutants import mutants
from nightmill.gate.languages._python_report import read_report, step_of_tests
from nightmill.gate.languages._python_twice import step_of_both
from nightmill.gate.languages.base import ACCEPTANCE, PRIVATE, Bench, Symbol, plain, unlocated
from nightmill.gate.limits import Ran
from nightmill.gate.manner import SURROUNDINGS, Manner
from nightmill.gate.records import Diagnostic, StepRecord, StepStatus
from nightmill.run.trees import Tree

_HERE = Path(__file__).parent
_KEY, _LIST, _REPORT = f"{PRIVATE}/key", f"{PRIVATE}/files.json", f"{PRIVATE}/report.jsonl"
_ENDS = f"{PRIVATE}/ends"
_REPORT_LIMIT = 64 * 2**20

_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "TZ": "UTC",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
}

_OTHER_ENVIRONMENT = {**SURROUNDINGS, "PYTHONHASHSEED": "4242"}

_ISOLATED = ("-P", "-s")
"""`-I` without its `-E`, which would also ignore our own PYTHONHASHSEED. The sandbox clears the environment, so nothing else is in it."""

_LINT_RULES = "E9,F,B,PLE"

_COLLECTION_FILES = frozenset(
    {"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "sitecustomize.py", "usercustomize.py"}
)
_OUR_TOOLS = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", ACCEPTANCE})


def _ruff() -> Path | None:
    beside = Path(sys.executable).with_name("ruff")
    found = str(beside) if beside.is_file() else shutil.which("ruff")
    return Path(found) if found else None


@dataclass(frozen=True)
class PythonPack:
    """See `base.LanguagePack`. `interpreter` needs pytest and whatever the gated code imports; `ruff` None leaves lint out."""

    interpreter: Path = field(default_factory=lambda: Path(sys.executable))
    ruff: Path | None = field(default_factory=_ruff)

    name: ClassVar[str] = "python"
    suffixes: ClassVar[tuple[str, ...]] = (".py",)
    test_suffix: ClassVar[str] = ".py"
    test_head: ClassVar[str] = ""
    stub: ClassVar[str] = pieces.STUB
    examples: ClassVar[Mapping[str, str]] = MappingProxyType({})
    schema_rules: ClassVar[tuple[str, ...]] = (
        "Write Python that runs on 3.11 and newer.",
        "Modules lie at the root of the tree and import each other absolutely: `from ledger import Ledger` for ledger.py.",
        "Use the standard library only, unless the old code already imports a package.",
        "Never name a file like a standard module (json.py, types.py, queue.py): it could not be imported.",
        "Importing a module must do nothing: no prints, files, threads or sys.exit; a script starts under `if __name__ == '__main__':`.",
    )
    test_rules: ClassVar[tuple[str, ...]] = (
        "Write plain pytest functions for Python 3.11 and newer; standard library, pytest and the schema's modules only.",
        "Import absolutely, as the schema lays out its modules: `from ledger import Ledger` for ledger.py.",
    )
    prompt_rules: ClassVar[tuple[str, ...]] = (
        "Write Python that runs on 3.11 and newer as it stands; no placeholders, no `pass` where work is due.",
        *schema_rules[1:],
        "Keep names, parameters and their order exactly as the schema declares them.",
        "Raise the exception types the contract names; never catch Exception to hide an error.",
    )

    @property
    def toolchain(self) -> str:
        return f"python {'.'.join(map(str, sys.version_info[:3]))}" if self.interpreter == Path(sys.executable) else str(self.interpreter)

    def require(self) -> None:
        """The interpreter proves itself when the sandbox is found."""

    def detect(self, tree: Tree) -> bool:
        return any(path.endswith(self.suffixes) for path in tree)

    def symbols(self, path: str, text: str) -> list[Symbol]:
        return syntax.symbols(path, text)

    def stubs(self, tree: Tree) -> dict[str, tuple[str, ...]]:
        found = {path: syntax.stubs(path, data) for path, data in tree.items() if path.endswith(self.suffixes)}
        return {path: names for path, names in found.items() if names}

    def precheck(self, tree: Tree) -> tuple[Diagnostic, ...]:
        parsed = (syntax.parse(path, tree[path]) for path in _sources(tree))
        return tuple(d for d in parsed if isinstance(d, Diagnostic))

    def forbidden(self, path: str) -> str | None:
        parts = PurePosixPath(path).parts
        name, top = parts[-1], parts[0].removesuffix(".py")
        if parts[0] == ACCEPTANCE:
            return "the acceptance tests are locked"
        if name in _COLLECTION_FILES:
            return f"{name} changes how tests are collected or how Python starts"
        if name.endswith((".pth", ".pyc", ".pyo", ".so", ".pyd")) or "__pycache__" in parts:
            return "only sources are delivered, no compiled or path files"
        if parts[0] == PRIVATE or top in _OUR_TOOLS:
            return f"{parts[0]} belongs to the test runner"
        if top in sys.stdlib_module_names and name.endswith(".py"):
            return f"{parts[0]} has the name of a standard module and could not be imported: choose another name"
        return None

    def is_test_file(self, path: str) -> bool:
        name = PurePosixPath(path).name
        return name.endswith("_test.py") or (name.startswith("test_") and name.endswith(".py"))

    def tests_in(self, path: str, text: str) -> tuple[str, ...]:
        return syntax.tests(path, text)

    def without(self, text: str, names: set[str]) -> str:
        return syntax.without(text, names)

    def skeleton(self, path: str, text: str) -> str | None:
        return pieces.skeleton(path, text)

    def function(self, path: str, text: str, name: str) -> str:
        return pieces.function(path, text, name)

    def graft(self, text: str, name: str, code: str) -> str:
        return pieces.graft(text, name, code)

    def census(self, path: str, text: str) -> dict[str, Asked]:
        return census(path, text)

    def mutants(self, path: str, text: str) -> list[Mutant]:
        return mutants(path, text)

    def call(self, text: str, sources: Tree) -> str | None:
        return calling.call(text, calling.names(sources))

    def probe(self, calls: Mapping[str, str], sources: Tree) -> Tree:
        return {"test_probe.py": calling.probe(calls, calling.names(sources)).encode()}

    def seen(self, message: str) -> str | None:
        return calling.seen(message)

    def test_of(self, row: str, call: str, expected: str, sources: Tree) -> str | None:
        known = calling.names(sources)
        return calling.test(row, call, expected, known) if calling.call(call, known) else None

    def count_tests(self, tree: Tree) -> int:
        return sum(len(syntax.tests(path, tree[path].decode("utf-8", "replace"))) for path in tree if self.is_test_file(path))

    def scaffold(self, source: Tree) -> Tree:
        return {}

    def prepare(self, tree: Tree, acceptance: Tree) -> Tree:
        kept = {path: data for path, data in tree.items() if PRIVATE not in path.split("/") and not path.endswith((".pyc", ".pyo"))}
        listing = json.dumps(_sources(kept)).encode()
        return {**kept, **acceptance, _LIST: listing, _KEY: secrets.token_hex(32).encode()}

    def build(self, bench: Bench) -> StepRecord:
        command = self._python(bench, "/nightmill/compile_tree.py", _LIST)
        ran = bench.run(command, bind={command[3]: _HERE / "_compile_tree.py"}, env=_ENVIRONMENT)
        facts = _json_lines(ran.output)
        located = tuple(_diagnostic(f) for f in facts if "file" in f)
        errors = [d for d in located if d.severity == "error"]
        whole = any(f.get("compiled") == len(_sources(bench.laid)) for f in facts)
        if whole and ran.exit == 0 and not errors:
            return _record("build", "passed", command, ran, "", located)
        if errors:
            return _record("build", "failed", command, ran, f"{len(errors)} files do not compile", located)
        return _record("build", "incomplete", command, ran, unlocated("the compiler did not finish", ran.output), located)

    def lint(self, bench: Bench) -> StepRecord:
        if self.ruff is None:
            return StepRecord(name="lint", status="not_run", advisory=True, detail="ruff is not installed")
        exclude = f"{ACCEPTANCE},{PRIVATE}"
        options = ("--isolated", "--no-cache", "--quiet", "--output-format", "json", "--select", _LINT_RULES, "--exclude", exclude)
        command = ("/nightmill/ruff", "check", *options, ".")
        ran = bench.run(command, bind={command[0]: self.ruff})
        try:
            found = tuple(_lint_finding(f, bench.work.inside) for f in json.loads(ran.output or b"null") or ())
        except (ValueError, KeyError, TypeError):
            return _record("lint", "incomplete", command, ran, unlocated("ruff gave no readable answer", ran.output), (), advisory=True)
        status: StepStatus = "failed" if found else "passed" if ran.exit == 0 else "incomplete"
        return _record("lint", status, command, ran, f"{len(found)} findings" if found else "", found, advisory=True)

    def test(self, bench: Bench) -> StepRecord:
        """The locked tests lie under a read-only mount of their own, so that imported code cannot rewrite those that come after it."""
        seconds, manner = f"{max(1.0, bench.limits.wall_s / 4):g}", bench.manner  # one hanging test leaves time for the others
        runner, driver = "/nightmill/run_tests.py", "/nightmill/run_twice.py"
        locked = {path: data for path, data in bench.laid.items() if path.startswith(f"{ACCEPTANCE}/")}
        with (
            bench.sandbox.workdir({path.removeprefix(f"{ACCEPTANCE}/"): data for path, data in locked.items()}) as shield,
            bench.sandbox.workdir({"only.json": json.dumps(manner.only).encode()}) as asked,
        ):
            bind = {runner: _HERE / "_pytest_report.py", f"{bench.work.inside}/{ACCEPTANCE}": shield.path}
            if manner.seed:
                bind[driver] = _HERE / "_run_twice.py"
                bench = replace(bench, limits=replace(bench.limits, wall_s=2 * bench.limits.wall_s))
                changes = (f"{name}={value}" for name, value in _OTHER_ENVIRONMENT.items())
                command = self._python(bench, driver, runner, _KEY, _REPORT, _ENDS, seconds, ACCEPTANCE, str(manner.seed), *changes)
            else:
                bind |= {"/nightmill/only.json": asked.path / "only.json"} if manner.only else {}
                command = self._python(bench, runner, _KEY, _REPORT, seconds, ACCEPTANCE, *_words(manner))
            ran = bench.run(command, bind=bind, env=_ENVIRONMENT)
        return self._tested(bench, ran, command, locked)

    def _tested(self, bench: Bench, ran: Ran, command: tuple[str, ...], locked: Tree) -> StepRecord:
        manner, key = bench.manner, bench.laid[_KEY]
        tests = [t for path in locked if self.is_test_file(path) for t in self.tests_in(path, locked[path].decode("utf-8", "replace"))]
        declared = [t for t in tests if not manner.only]
        if not manner.seed:
            return step_of_tests(ran, read_report(bench.work.read(_REPORT, _REPORT_LIMIT), key, declared, first=manner.first), command)
        reports = (bench.work.read(f"{_REPORT}.1", _REPORT_LIMIT), bench.work.read(f"{_REPORT}.2", _REPORT_LIMIT))
        surroundings = tuple(f"{name}={value}" for name, value in _OTHER_ENVIRONMENT.items())
        ends = bench.work.read(_ENDS, 4096)
        return step_of_both(ran, reports, ends, key, command, declared, seed=manner.seed, surroundings=surroundings)

    def _python(self, bench: Bench, *argv: str) -> tuple[str, ...]:
        return (bench.sandbox.python(self.interpreter), *_ISOLATED, *argv)


def _words(manner: Manner) -> list[str]:
    """`manner` as arguments of the runner."""
    only = ["only=/nightmill/only.json"] if manner.only else []
    return only + [word for word, meant in (("first", manner.first), ("traced", manner.traced)) if meant]


def _sources(tree: Tree) -> list[str]:
    """The Python files that the build step answers for."""
    return sorted(path for path in tree if path.endswith(".py") and path.split("/")[0] not in (ACCEPTANCE, PRIVATE))


def _json_lines(output: bytes) -> list[dict[str, Any]]:
    """The JSON objects among the lines of `output`."""
    found = []
    for line in output.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _diagnostic(fact: dict[str, Any]) -> Diagnostic:
    return Diagnostic(**{**fact, "file": plain(fact["file"]), "message": plain(fact["message"])})


def _lint_finding(fact: dict[str, Any], root: str) -> Diagnostic:
    place = fact["location"]
    return Diagnostic(
        file=plain(fact["filename"]).removeprefix(f"{root}/"),
        line=place["row"],
        column=place["column"],
        code=fact["code"] or "",
        message=plain(fact["message"]),
        severity="warning",
    )


def _record(
    name: str,
    status: StepStatus,
    command: tuple[str, ...],
    ran: Ran,
    detail: str,
    diagnostics: tuple[Diagnostic, ...],
    *,
    advisory: bool = False,
) -> StepRecord:
    return StepRecord(
        name=name,
        status=status,
        command=command,
        exit=ran.exit,
        signal=ran.signal,
        killed=ran.killed,
        seconds=ran.seconds,
        detail=detail,
        diagnostics=diagnostics,
        advisory=advisory,
    )
