"""Tests earn their authority: red on stubs for the right reason, and at peace with the old code where behaviour should stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from nightmill.gate.languages.base import ACCEPTANCE, LanguagePack, under_acceptance
from nightmill.gate.manner import Manner, twice
from nightmill.gate.quality import QualityGate
from nightmill.gate.records import StepRecord, TestOutcome
from nightmill.run.trees import Tree

_ROW = re.compile(r"test_t(\d+)(?:_|$)", re.IGNORECASE)
_RED = frozenset({"AssertionError", "Failed"})
"""What a judging test raises; `Failed` is pytest's own: `pytest.fail`, a `pytest.raises` block in which nothing was raised."""
_WRONG_SIGNATURE = re.compile(r"takes .*argument|missing \d+ required|unexpected keyword|got multiple values|got some positional-only")
_MISSING_NAME = re.compile(r"^(module|type object|partially initialized module) |^'(?!NoneType')\w+' object has no attribute")


_FLAKY = "is flaky"
"""How the reason begins of a test that two runs did not agree about."""

Test = Callable[[Tree, Tree, Manner], StepRecord]
"""Runs tests on a tree: `QualityGate.test`."""

_Sorted = tuple[Literal["proven", "vacuous", "broken", "disputed"], str]
"""Where a test belongs, and why."""


class Proof(BaseModel):
    """What running the acceptance tests on the stubs, and on V1, showed. Every collected test is in exactly one of the four tuples."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    proven: tuple[str, ...] = ()
    """Collected, and red on the stubs because a stub was called or an assertion failed."""
    vacuous: tuple[str, ...] = ()
    """Pass on the stubs: they would pass on anything."""
    broken: tuple[str, ...] = ()
    """Cannot judge any code: do not collect, are skipped, or fail by their own mistake. A file that does not parse stands for its tests."""
    disputed: tuple[str, ...] = ()
    """Fail on V1 although their row is not meant to change: V1, the row, or the test is wrong."""
    flaky: tuple[str, ...] = ()
    """Of the broken: those that two runs on one tree did not agree about."""
    agrees: tuple[str, ...] = ()
    """Of the proven: those that pass on V1."""
    v1_ran: bool = False
    """Whether at least one test could be compared with V1."""
    v1_reason: str = ""
    """Why V1 was not compared although it was given, one line."""
    collected: int = 0
    """Tests collected on the stubs."""
    reasons: dict[str, str] = {}
    """Id → why it is where it is, one line."""
    trouble: str = ""
    """Set when something other than the tests kept the proof from being made: machine, sandbox, stubs. All tuples are then empty."""


def row(test: str) -> str:
    """`acceptance/test_x.py::test_t12_rounds[3]` → `T12`; empty when the name carries no row."""
    found = _ROW.match(_declared(test).rsplit("::", 1)[-1])
    return f"T{int(found[1])}" if found else ""


def prove(
    gate: QualityGate,
    stubs: Tree,
    acceptance: Tree,
    v1: Tree | None = None,
    changed: frozenset[str] = frozenset(),
    test: Test | None = None,
) -> Proof:
    """Sorts the acceptance tests by what they do on `stubs` and, if given, on `v1`.

    `changed`: ids of the rows (`T3`) whose behaviour V1 need not show. Two runs per tree (see `manner.twice`): a test they do not agree
    about is broken. A run that a test itself ends (`os._exit`, a crash) is repeated file by file. `test` stands for `gate.test` where it
    remembers. Raises as little as the gate.
    """
    acceptance = under_acceptance(acceptance)
    if unparsed := gate.pack.precheck(stubs):
        return Proof(trouble=f"the stubs do not parse: {unparsed[0].file}:{unparsed[0].line}: {unparsed[0].message}")
    tests, detail = _run(gate, test or gate.test, stubs, acceptance)
    declared = _declarations(gate.pack, acceptance)
    if declared and not tests:
        return Proof(trouble=detail)
    found = _sort(tests, declared, gate.pack.stubs(stubs), detail)
    v1_ran, v1_reason, agrees = False, "", frozenset[str]()
    if v1 is not None:
        seen, v1_detail = _run(gate, test or gate.test, v1, acceptance)
        on_v1 = {t.id: t for t in seen}
        for name in [n for n, (kind, _) in found.items() if kind == "proven" and n in on_v1]:
            compared = _on_v1(on_v1[name], row(name) in changed)
            v1_ran = v1_ran or compared is not None
            found[name] = compared or found[name]
        agrees = frozenset(t.id for t in seen if t.outcome == "passed")
        v1_reason = "" if v1_ran else next((_what(t) for t in seen if t.outcome != "passed"), v1_detail.split("\n", 1)[0])
    return Proof(
        proven=tuple(n for n, (kind, _) in found.items() if kind == "proven"),
        vacuous=tuple(n for n, (kind, _) in found.items() if kind == "vacuous"),
        broken=tuple(n for n, (kind, _) in found.items() if kind == "broken"),
        disputed=tuple(n for n, (kind, _) in found.items() if kind == "disputed"),
        flaky=tuple(n for n, (_, why) in found.items() if why.startswith(_FLAKY)),
        agrees=tuple(n for n, (kind, _) in found.items() if kind == "proven" and n in agrees),
        v1_ran=v1_ran,
        v1_reason=v1_reason,
        collected=sum("::" in t.id for t in tests),
        reasons={name: why for name, (_, why) in found.items()},
    )


def _run(gate: QualityGate, test: Test, tree: Tree, acceptance: Tree) -> tuple[tuple[TestOutcome, ...], str]:
    """Outcomes of all tests, and what was wrong with the run as a whole. A file that ends the run does not take the others along."""
    whole = test(tree, acceptance, twice(acceptance))
    files = [path for path in acceptance if gate.pack.is_test_file(path)]
    if _ended_properly(whole) or len(files) < 2 or gate.stopping() or not whole.tests:
        return whole.tests, whole.detail
    shared = {path: data for path, data in acceptance.items() if path not in files}
    each = [test(tree, one, twice(one)) for one in ({**shared, path: acceptance[path]} for path in files)]
    return tuple(t for step in each for t in step.tests), whole.detail


def _ended_properly(step: StepRecord) -> bool:
    return step.status == "passed" or (step.status == "failed" and step.signal is None and step.killed is None)


def _declarations(pack: LanguagePack, acceptance: Tree) -> dict[str, tuple[str, ...]]:
    """Test file → ids of the tests it declares."""
    return {path: pack.tests_in(path, data.decode("utf-8", "replace")) for path, data in acceptance.items() if pack.is_test_file(path)}


def _declared(test: str) -> str:
    """The id without parameters."""
    return test.split("[", 1)[0]


def _sort(
    tests: tuple[TestOutcome, ...], declared: Mapping[str, tuple[str, ...]], empty: Mapping[str, tuple[str, ...]], detail: str
) -> dict[str, _Sorted]:
    """Every test with a result by that result; every declared test without one is broken, by what broke its file or the whole run."""
    found = {t.id: _on_stubs(t, empty) for t in tests if "::" in t.id}
    of_files = {t.id: _what(t) for t in tests if "::" not in t.id}
    ran = {_declared(name) for name in found}
    shared = next((why for path, why in of_files.items() if path not in declared), detail.split("\n", 1)[0])
    for path, names in declared.items():
        for name in names or (path,) if path in of_files or names else ():
            if name not in ran:
                found[name] = "broken", f"was not collected: {of_files.get(path, shared)}"
    return found


def _on_stubs(test: TestOutcome, empty: Mapping[str, tuple[str, ...]]) -> _Sorted:
    if test.flaky:
        return "broken", f"{_FLAKY} on the stubs: {test.flaky}"
    if test.outcome == "passed":
        return "vacuous", "passes although nothing is implemented"
    if test.outcome not in ("failed", "error"):
        return "broken", f"is {test.outcome}: {_first_line(test.message)}"
    if test.exception == "NotImplementedError" and test.crash_function in empty.get(test.crash_file, ()):
        return "proven", f"calls the stub {test.crash_function} of {test.crash_file}"
    if test.outcome == "failed" and test.exception in _RED:
        return "proven", f"its assertion fails: {_first_line(test.message)}"
    return "broken", _what(test)


def _on_v1(test: TestOutcome, changed: bool) -> _Sorted | None:
    """None when V1 has nothing to compare with: the names or signatures the test uses do not exist there."""
    if test.flaky and not changed:
        return "broken", f"{_FLAKY} on V1: {test.flaky}"
    if test.outcome == "passed":
        return "proven", "red on the stubs, passes on V1" + (" although its row changes behaviour" if changed else "")
    if test.outcome not in ("failed", "error") or absent(test):
        return None
    if test.crash_file.startswith(f"{ACCEPTANCE}/") and test.exception in ("NameError", "UnboundLocalError"):
        return "broken", f"the test itself is wrong: {_what(test)}"
    return (
        ("proven", f"fails on V1, whose behaviour its row changes: {_what(test)}")
        if changed
        else ("disputed", f"fails on V1: {_what(test)}")
    )


def absent(test: TestOutcome) -> bool:
    """Whether a test fails because the tree has no such name or signature: then it says nothing about what the tree does."""
    in_test = test.crash_file.startswith(f"{ACCEPTANCE}/")
    if test.exception in ("ImportError", "ModuleNotFoundError"):
        return True
    if in_test and test.exception == "AttributeError":
        return _MISSING_NAME.match(test.message) is not None
    return in_test and test.exception == "TypeError" and _WRONG_SIGNATURE.search(test.message) is not None


def _what(test: TestOutcome) -> str:
    place = f" ({test.crash_file}:{test.crash_line})" if test.crash_file else ""
    said = _first_line(test.message)
    return f"{test.exception or test.outcome}{f': {said}' if said else ''}{place}"


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:300]
