"""What a gate's record means for one milestone among unfinished neighbours, and which of two trees is better."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.build.editing import guard
from nightmill.build.judge import Duty, Judgement, judge
from nightmill.gate.records import Diagnostic, GateRecord, StepRecord, TestOutcome, Verdict

STUBS = {"money.py": ("net", "Ledger.total"), "till.py": ("till",)}
MINE = Duty(("money.py",), "Implement net and Ledger.total.")


def outcome(name: str, word: str = "passed", **more: Any) -> TestOutcome:
    return TestOutcome.model_validate({"id": f"acceptance/test_a.py::{name}", "outcome": word, **more})


def stubbed(name: str, file: str, function: str) -> TestOutcome:
    return outcome(name, "failed", exception="NotImplementedError", crash_file=file, crash_function=function)


def record(*tests: TestOutcome, build: str = "passed", verdict: Verdict | None = None, diagnostics: int = 0) -> GateRecord:
    found = tuple(Diagnostic(file="money.py", line=n + 1, message="bad") for n in range(diagnostics))
    clean = bool(tests) and all(t.outcome == "passed" for t in tests)
    steps = [StepRecord.model_validate({"name": "build", "status": build, "diagnostics": found})]
    if build == "passed":
        steps.append(StepRecord(name="test", status="passed" if clean else "failed", tests=tests))
    return GateRecord(verdict=verdict or ("green" if clean else "red"), reason="the gate's reason", steps=tuple(steps), tree="t")


def ids(*names: str) -> frozenset[str]:
    return frozenset(f"acceptance/test_a.py::{name}" for name in names)


def test_a_test_that_runs_into_anothers_stub_waits_and_does_not_make_it_red() -> None:
    found = judge(record(outcome("a"), stubbed("b", "till.py", "till")), {"till.py": ("till",)}, MINE, frozenset())
    assert (found.green, found.pending, found.failed) == (True, ("acceptance/test_a.py::b",), ())
    assert found.reason == "it builds and 1 tests pass, 1 are red for others"


@pytest.mark.parametrize("function", ["net", "Ledger.total", "total"])
def test_a_test_that_runs_into_its_own_stub_is_its_own_to_mend(function: str) -> None:
    found = judge(record(stubbed("a", "money.py", function)), STUBS, MINE, frozenset())
    assert (found.verdict, found.pending, [t.id for t in found.failed]) == ("red", (), ["acceptance/test_a.py::a"])


@pytest.mark.parametrize(
    "red",
    [
        stubbed("a", "till.py", "helper"),
        stubbed("a", "new.py", "till"),
        stubbed("a", "", "till"),
        outcome("a", "failed", exception="AssertionError", crash_file="till.py", crash_function="till"),
        outcome("a", "error"),
        outcome("a", "skipped"),
        outcome("a", "xpassed"),
    ],
    ids=["no stub raised it", "no such stub file", "outside the tree", "another exception", "error", "skipped", "xpassed"],
)
def test_only_a_real_stub_of_somebody_else_excuses_a_red_test(red: TestOutcome) -> None:
    found = judge(record(outcome("b"), red), STUBS | {"money.py": ()}, MINE, frozenset())
    assert (found.verdict, found.pending, len(found.failed)) == ("red", (), 1)


def test_green_tests_do_not_excuse_an_own_stub_that_is_left() -> None:
    found = judge(record(outcome("a")), {"money.py": ("Ledger.total",), "till.py": ("till",)}, MINE, frozenset())
    assert (found.verdict, found.unwritten) == ("red", ("money.py: Ledger.total",))
    assert found.reason == "not implemented: money.py: Ledger.total"


@pytest.mark.parametrize("now", [outcome("a", "failed", message="assert 1 == 2"), stubbed("a", "till.py", "till"), outcome("b")])
def test_a_test_that_passed_before_and_does_not_now_is_lost_whatever_the_excuse(now: TestOutcome) -> None:
    found = judge(record(now, outcome("c")), {"till.py": ("till",)}, MINE, ids("a", "c"))
    assert (found.verdict, found.lost) == ("red", tuple(ids("a")))
    assert "passed before and does not now" in found.reason


@pytest.mark.parametrize("verdict", ["incomplete", "not_run"])
def test_what_was_not_measured_is_never_green(verdict: Verdict) -> None:
    found = judge(record(outcome("a"), verdict=verdict), {}, MINE, frozenset())
    assert (found.verdict, found.reason) == (verdict, "the gate's reason")


def test_a_tree_that_does_not_build_has_lost_nothing_yet_and_gives_the_gates_reason() -> None:
    found = judge(record(build="failed", diagnostics=3), {}, MINE, ids("a"))
    assert (found.verdict, found.builds, found.lost, found.diagnostics) == ("red", False, (), 3)
    assert found.reason == "the gate's reason"


# -- shared files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "others", "owes"),
    [
        ("Implement net.", ("Implement gross.",), True),
        ("Implement gross.", ("Implement net.",), False),
        ("Implement net and gross.", ("Call net.",), True),
        ("Do the rest.", ("Implement the network.",), True),
        ("Do the rest.", ("Build the cabinet.",), True),
        ("Implement the network.", ("Implement `net`.",), False),
        ("", (), True),
    ],
    ids=[
        "named in mine",
        "named in another's",
        "named in both",
        "part of a word in another's",
        "end of a word in another's",
        "part of a word in mine",
        "named nowhere",
    ],
)
def test_in_a_shared_file_the_tasks_say_whose_function_it_is_and_in_doubt_it_is_mine(
    mine: str, others: tuple[str, ...], owes: bool
) -> None:
    duty = Duty(("money.py",), mine, tuple((("money.py",), task) for task in others))
    assert duty.owes("money.py", "net") is duty.owes("money.py", "Ledger.net") is owes
    assert not duty.owes("till.py", "net")
    red = judge(record(outcome("b"), stubbed("a", "money.py", "net")), {"money.py": ("net",)}, duty, frozenset())
    assert (red.verdict, bool(red.pending), bool(red.unwritten)) == (("red", False, True) if owes else ("green", True, False))


# -- better ------------------------------------------------------------------------------------

JUDGEMENTS = st.builds(
    Judgement,
    verdict=st.sampled_from(["green", "red", "incomplete"]),
    reason=st.just(""),
    passed=st.frozensets(st.sampled_from("abc")),
    unwritten=st.sampled_from([(), ("x",), ("x", "y")]),
    diagnostics=st.integers(0, 2),
    builds=st.booleans(),
)


@given(JUDGEMENTS, JUDGEMENTS, JUDGEMENTS)
def test_better_is_a_strict_partial_order(a: Judgement, b: Judgement, c: Judgement) -> None:
    assert not a.better_than(a)
    assert not (a.better_than(b) and b.better_than(a))
    assert not (a.better_than(b) and b.better_than(c)) or a.better_than(c)


@given(JUDGEMENTS, JUDGEMENTS)
def test_the_better_one_never_lost_a_test_a_build_or_a_green(a: Judgement, b: Judgement) -> None:
    if a.better_than(b):
        assert a.passed >= b.passed and (a.builds or not b.builds) and not b.green


def worth(passed: str = "", *, green: bool = False, builds: bool = True, unwritten: int = 0, diagnostics: int = 0) -> Judgement:
    verdict: Verdict = "green" if green else "red"
    return Judgement(verdict, "", frozenset(passed), unwritten=("x",) * unwritten, diagnostics=diagnostics, builds=builds)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (worth("ab", green=True), worth("ab")),
        (worth("ab"), worth("a")),
        (worth("a"), worth(builds=False)),
        (worth("a", unwritten=1), worth("a", unwritten=2)),
        (worth(builds=False, diagnostics=1), worth(builds=False, diagnostics=2)),
    ],
)
def test_what_counts_as_better(better: Judgement, worse: Judgement) -> None:
    assert better.better_than(worse) and not worse.better_than(better)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (worth("abc"), worth("d")),
        (worth("b", diagnostics=0), worth("a", diagnostics=9)),
        (worth("abc", builds=False), worth("a")),
        (worth("a"), worth("a")),
        (worth("a", green=True), worth("a", green=True)),
    ],
    ids=["three for one", "fewer diagnostics for another test", "tests for a build", "the same", "two greens"],
)
def test_what_is_not_better_either_way_or_not_at_all(a: Judgement, b: Judgement) -> None:
    assert not a.better_than(b)


# -- what may be written at all ----------------------------------------------------------------


def test_the_guard_names_why_a_path_is_not_to_be_written() -> None:
    why = guard(
        ("money.py", "both.py"), {"till.py": "till", "both.py": "till"}, lambda p: "steers the tests" if p == "conftest.py" else None
    )
    assert why("acceptance/test_a.py") == why("acceptance") == "the acceptance tests are locked"
    assert why("conftest.py") == "steers the tests"
    assert why("till.py") == "it belongs to milestone till"
    assert why("money.py") is why("both.py") is why("new.py") is None


def test_a_task_that_names_a_function_of_another_file_takes_nothing_away() -> None:
    duty = Duty(("x.py", "y.py"), "Implement x and y.", earlier=((("y.py", "z.py"), "Implement main of z.py."),))
    assert duty.owes("x.py", "main") and not duty.owes("y.py", "main")


def test_what_was_red_on_a_merged_side_is_not_the_merges_fault_but_what_the_merge_broke_is() -> None:
    def red(name: str, message: str) -> TestOutcome:
        return outcome(name, "failed", exception="AssertionError", message=message, crash_file="acceptance/test_a.py")

    sides = (record(red("a", "1 == 2"), outcome("b")), record(red("a", "1 == 2"), stubbed("b", "till.py", "till")))
    merged = record(red("a", "1 == 2"), red("b", "no attribute trips"))
    found = judge(merged, {"till.py": ("till",)}, MINE, ids("b"), sides)
    assert found.inherited == ("acceptance/test_a.py::a",)
    assert [t.id for t in found.failed] == ["acceptance/test_a.py::b"]
