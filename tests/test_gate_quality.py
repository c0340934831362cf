"""The gate on honest trees: what it calls green, red, incomplete and not run, and what it writes down about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gate_help import SMALL, by_name, gate, tree
from nightmill.errors import MachineError, SandboxMissing
from nightmill.gate.languages.python import PythonPack
from nightmill.gate.quality import QualityGate
from nightmill.gate.records import GateRecord, StepRecord
from nightmill.gate.sandbox import Workdir, find
from nightmill.run.trees import Tree, tree_hash
from sandbox_help import sandbox

LEDGER = """
    class Ledger:
        def __init__(self):
            self.entries = []

        def add(self, amount):
            self.entries.append(amount)

        def total(self):
            return sum(self.entries)
"""

TESTS = """
    import os, sys, time
    import pytest
    from ledger import Ledger
    from acceptance.helpers import full

    def test_t1_total():
        assert full(Ledger()).total() == 6

    @pytest.mark.parametrize("amount", [1, 2])
    def test_t2_add(amount):
        ledger = Ledger()
        ledger.add(amount)
        assert ledger.entries == [amount]

    class TestWorld:
        def test_t3_it_is_the_same_everywhere(self, tmp_path):
            assert time.tzname[0] == "UTC" and sys.flags.hash_randomization == 0 and "HOME" in os.environ
            (tmp_path / "file").write_text("writable")
"""

HELPERS = """
    def full(ledger):
        for amount in (1, 2, 3):
            ledger.add(amount)
        return ledger
"""


@pytest.fixture(scope="module")
def honest() -> dict[str, bytes]:
    return tree(ledger=LEDGER)


@pytest.fixture(scope="module")
def tests() -> dict[str, bytes]:
    return tree(acceptance__test_ledger=TESTS, acceptance__helpers=HELPERS)


@pytest.fixture(scope="module")
def green(honest: dict[str, bytes], tests: dict[str, bytes]) -> GateRecord:
    return gate(lint=True).run(honest | {"unused.py": b"import os\n"}, tests)


def step(record: GateRecord, name: str) -> StepRecord:
    return next(s for s in record.steps if s.name == name)


def test_a_tree_that_builds_and_passes_its_tests_is_green(green: GateRecord) -> None:
    assert (green.verdict, green.reason) == ("green", "it builds and all 4 tests passed")
    assert green.passed == {
        "acceptance/test_ledger.py::test_t1_total",
        "acceptance/test_ledger.py::test_t2_add[1]",
        "acceptance/test_ledger.py::test_t2_add[2]",
        "acceptance/test_ledger.py::TestWorld::test_t3_it_is_the_same_everywhere",
    }


def test_the_record_names_tree_tests_protections_and_commands(green: GateRecord, honest: dict[str, bytes], tests: dict[str, bytes]) -> None:
    assert green.tree == tree_hash(honest | {"unused.py": b"import os\n"}) and green.acceptance == tree_hash(tests)
    assert "seccomp" in green.protections and "no-network" in green.protections
    assert [(s.name, s.exit, bool(s.command), s.seconds > 0) for s in green.steps if s.name != "lint"] == [
        ("build", 0, True, True),
        ("test", 0, True, True),
    ]
    assert GateRecord.model_validate_json(green.model_dump_json()) == green


def test_lint_comments_and_does_not_decide(green: GateRecord) -> None:
    lint = step(green, "lint")
    assert lint.advisory
    if PythonPack().ruff:
        assert [(d.file, d.line, d.code, d.severity) for d in lint.diagnostics] == [("unused.py", 1, "F401", "warning")]
    assert green.diagnostics == ()


def test_lint_without_ruff_is_not_run(honest: dict[str, bytes]) -> None:
    lint = step(gate().run(honest), "lint")
    assert (lint.status, lint.detail) == ("not_run", "ruff is not installed")


def test_a_tree_without_tests_is_built_and_never_green(honest: dict[str, bytes]) -> None:
    record = gate().run(honest | tree(acceptance__test_own="def test_own(): pass"))
    assert step(record, "build").status == "passed"
    assert (record.verdict, record.reason) == ("not_run", "test: no acceptance tests were given")


def test_the_trees_own_acceptance_folder_is_discarded(honest: dict[str, bytes], tests: dict[str, bytes]) -> None:
    own = tree(acceptance__test_own="def test_own(): pass", acceptance__conftest="raise SystemExit")
    names = {path.removeprefix("acceptance/"): data for path, data in tests.items()}
    record = gate().run(honest | own, names)
    assert record.verdict == "green" and len(record.tests) == 4


def test_a_failing_test_says_what_was_raised_and_where(tests: dict[str, bytes]) -> None:
    wrong = LEDGER.replace("return sum(self.entries)", "return self.entries['\\x1b[31mred\\x1b[0m']")
    record = gate().run(tree(ledger=wrong), tests)
    assert record.verdict == "red"
    assert record.reason == "1 failed of 4 tests, first acceptance/test_ledger.py::test_t1_total"
    failed = by_name(step(record, "test"))["test_t1_total"]
    assert (failed.outcome, failed.exception, failed.crash_file, failed.crash_line, failed.crash_function) == (
        "failed", "TypeError", "ledger.py", 10, "Ledger.total",
    )  # fmt: skip
    assert "ledger.py:10: in total" in failed.traceback
    assert "red" in failed.traceback and "\x1b" not in failed.traceback


def test_a_syntax_error_is_red_with_its_place_and_costs_no_sandbox(honest: dict[str, bytes], tests: dict[str, bytes]) -> None:
    record = gate().run(honest | {"pkg/bad.py": b"x = 1\ndef f(:\n"}, tests)
    assert (record.verdict, record.reason) == ("red", "pkg/bad.py:2: invalid syntax")
    assert [(s.name, s.status, s.command) for s in record.steps] == [
        ("build", "failed", ()),
        ("lint", "not_run", ()),
        ("test", "not_run", ()),
    ]


def test_what_parses_and_does_not_compile_is_red_with_its_place(honest: dict[str, bytes], tests: dict[str, bytes]) -> None:
    record = gate().run(honest | {"bad.py": b"x = 1\nreturn x\n", "odd.py": b"x = 1 is 1\n"}, tests)
    assert (record.verdict, record.reason) == ("red", "bad.py:2: 'return' outside function")
    assert {(d.file, d.severity) for d in record.diagnostics} == {("bad.py", "error"), ("odd.py", "warning")}
    assert step(record, "test").status == "not_run"


def test_files_that_cannot_lie_together_are_red(tests: dict[str, bytes]) -> None:
    record = gate().run({"a": b"", "a/b.py": b""}, tests)
    assert record.verdict == "red" and "a is both a file and a directory" in record.reason


def test_stale_bytecode_in_the_tree_is_not_run(tests: dict[str, bytes]) -> None:
    record = gate().run({"ledger.pyc": b"stale", ".nightmill/report.jsonl": b"{}"}, tests)
    assert record.verdict == "red" and "ModuleNotFoundError" in {t.exception for t in record.tests}


class _Trouble:
    """A sandbox on a machine in trouble: real, until `at` of its commands have run."""

    protections = ("none",)

    def __init__(self, error: Exception, at: int) -> None:
        self.error, self.left = error, at

    def workdir(self, tree: Tree) -> Workdir:
        return sandbox().workdir(tree)

    def python(self, interpreter: Path) -> str:
        return sandbox().python(interpreter)

    def run(self, *args: object, **kwargs: object) -> object:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return sandbox().run(*args, **kwargs)


@pytest.mark.parametrize(
    "error", [MachineError("the disk is full"), SandboxMissing("no user namespaces"), OSError(5, "I/O error")], ids=repr
)
@pytest.mark.parametrize("at", [0, 1])
def test_trouble_of_the_machine_is_incomplete_and_names_itself(
    error: Exception, at: int, honest: dict[str, bytes], tests: dict[str, bytes]
) -> None:
    record = QualityGate(PythonPack(ruff=None), _Trouble(error, at), SMALL).run(honest, tests)
    assert record.verdict == "incomplete" and str(error) in record.reason and "not the code's fault" in record.reason


def test_a_stopped_gate_is_incomplete(honest: dict[str, bytes], tests: dict[str, bytes]) -> None:
    asked: Iterator[bool] = iter([False])
    stopping = QualityGate(PythonPack(ruff=None), sandbox(), SMALL, stopping=lambda: next(asked, True))
    assert stopping.run(honest, tests).verdict == "incomplete"


def test_without_a_sandbox_the_same_gate_runs_and_the_record_says_so(honest: dict[str, bytes], tests: dict[str, bytes]) -> None:
    bare = QualityGate(PythonPack(), find(python=PythonPack().interpreter, unsandboxed=True), SMALL)
    record = bare.run(honest | {"unused.py": b"import os\n"}, tests)
    assert (record.verdict, record.protections) == ("green", ("UNSANDBOXED",))
    assert {d.file for d in step(record, "lint").diagnostics} <= {"unused.py"}
