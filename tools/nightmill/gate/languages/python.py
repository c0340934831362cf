"""Python: compiled by the interpreter, linted by ruff where it is installed, tested by pytest."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from nightmill.gate.languages._python_tests import ENVIRONMENT, KEY, run_tests
from nightmill.gate.languages.base import ACCEPTANCE, PRIVATE, Bench, Symbol, plain, unlocated
from nightmill.gate.limits import Ran
from nightmill.gate.records import Diagnostic, StepRecord, StepStatus
from nightmill.run.trees import Tree

_HERE = Path(__file__).parent
_LIST = f"{PRIVATE}/files.json"

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
    words: ClassVar[Mapping[str, str]] = MappingProxyType({})
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
        return {**kept, **acceptance, _LIST: listing, KEY: secrets.token_hex(32).encode()}

    def build(self, bench: Bench) -> StepRecord:
        command = self._python(bench, "/nightmill/compile_tree.py", _LIST)
        ran = bench.run(command, bind={command[3]: _HERE / "_compile_tree.py"}, env=ENVIRONMENT)
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
        return run_tests(bench, self._python(bench), self.is_test_file)

    def _python(self, bench: Bench, *argv: str) -> tuple[str, ...]:
        return (bench.sandbox.python(self.interpreter), *_ISOLATED, *argv)


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
