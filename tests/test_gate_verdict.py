"""The verdict from step records: the order of its rules, and what can never be green."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.gate.records import Diagnostic, StepRecord, TestOutcome
from nightmill.gate.verdict import decide

ERROR = Diagnostic(file="app.py", line=3, message="invalid syntax")
WARNING = Diagnostic(file="app.py", line=4, message="unused", severity="warning")
GOOD, BAD = TestOutcome(id="a::good", outcome="passed"), TestOutcome(id="a::bad", outcome="failed")


def step(name: str, status: Any, **facts: Any) -> StepRecord:
    return StepRecord(name=name, status=status, **facts)


BUILT = step("build", "passed")
LINT = step("lint", "failed", advisory=True, diagnostics=(ERROR,))

CASES: list[tuple[str, list[StepRecord], str, str]] = [
    ("passed", [BUILT, LINT, step("test", "passed", tests=(GOOD,))], "green", "it builds and its one test passed"),
    ("located error", [step("build", "failed", diagnostics=(WARNING, ERROR, ERROR))], "red", "app.py:3: invalid syntax and 1 more"),
    ("error before crash", [step("build", "failed", signal=11, diagnostics=(ERROR,))], "red", "app.py:3: invalid syntax"),
    ("compiler crash", [step("build", "failed", signal=11, detail="gone\noutput")], "incomplete", "build: gone"),
    ("build fails unlocated", [step("build", "failed", exit=1, diagnostics=(WARNING,))], "incomplete", "build: failed"),
    ("crash", [BUILT, step("test", "failed", signal=11, detail="crashed", tests=(GOOD, BAD))], "red", "test: crashed"),
    ("killed", [BUILT, step("test", "failed", killed="wall", detail="too long", tests=(GOOD,))], "red", "test: too long"),
    ("summary", [BUILT, step("test", "failed", tests=(GOOD, BAD, BAD))], "red", "2 failed of 3 tests, first a::bad"),
    ("none collected", [BUILT, step("test", "passed")], "incomplete", "no tests were collected"),
    ("incomplete", [BUILT, step("test", "incomplete", tests=(GOOD,), detail="ended early")], "incomplete", "test: ended early"),
    ("says passed, is not", [BUILT, step("test", "passed", tests=(GOOD, BAD))], "red", "1 failed of 2 tests, first a::bad"),
    ("no tests given", [BUILT, LINT, step("test", "not_run", detail="none given")], "not_run", "test: none given"),
    ("nothing", [], "not_run", "nothing was run"),
    ("only advice", [step("lint", "passed", advisory=True)], "not_run", "nothing was run"),
]


@pytest.mark.parametrize(("steps", "verdict", "reason"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_each_rule_has_its_place(steps: list[StepRecord], verdict: str, reason: str) -> None:
    assert decide(steps) == (verdict, reason)


OUTCOMES = st.lists(st.sampled_from(["passed", "passed", "failed", "error", "skipped", "xfailed", "xpassed"]), max_size=3)
STEPS = st.builds(
    lambda name, status, advisory, outcomes: step(
        name, status, advisory=advisory, tests=tuple(TestOutcome(id=f"t{i}", outcome=o) for i, o in enumerate(outcomes))
    ),
    st.sampled_from(["build", "lint", "test"]),
    st.sampled_from(["passed", "passed", "failed", "incomplete", "not_run"]),
    st.booleans(),
    OUTCOMES,
)


@given(st.lists(STEPS, max_size=4))
def test_green_needs_every_gating_step_and_at_least_one_test_and_every_test_passed(steps: list[StepRecord]) -> None:
    gating = [s for s in steps if not s.advisory]
    tests = [t for s in gating for t in s.tests]
    earned = bool(tests) and all(s.status == "passed" for s in gating) and all(t.outcome == "passed" for t in tests)
    assert (decide(steps)[0] == "green") == earned
    assert decide(steps)[1]
