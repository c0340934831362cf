"""From step records to one verdict. The order of RULES is the meaning: the first rule that has something to say decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nightmill.gate.records import StepRecord, Verdict

Ruling = tuple[Verdict, str]
"""A verdict and its reason, one line."""


def decide(steps: Sequence[StepRecord]) -> Ruling:
    """green, red, incomplete or not_run, with the reason. Advisory steps have no say; what did not run never counts as passed."""
    gating = [s for s in steps if not s.advisory]
    for rule in RULES:
        ruling = rule(gating)
        if ruling:
            return ruling
    return "not_run", next((_reason(s) for s in gating if s.status == "not_run"), "nothing was run")


def _passed(steps: list[StepRecord]) -> Ruling | None:
    tests = [t for s in steps for t in s.tests]
    if tests and all(s.status == "passed" for s in steps) and all(t.outcome == "passed" for t in tests):
        which = f"all {len(tests)} tests" if len(tests) > 1 else "its one test"
        return "green", f"it builds and {which} passed" + (", in two runs" if any(s.again for s in steps) else "")
    return None


def _located_error(steps: list[StepRecord]) -> Ruling | None:
    for step in steps:
        errors = [d for d in step.diagnostics if d.severity == "error"]
        if errors and step.status == "failed":
            first, more = errors[0], f" and {len(errors) - 1} more" if len(errors) > 1 else ""
            place = (f"{first.file}:{first.line}: " if first.line else f"{first.file} ") if first.file else ""
            return "red", f"{place}{first.message}{more}"
    return None


def _crash_after_build(steps: list[StepRecord]) -> Ruling | None:
    """The code under test ended its own test run: by a signal, or by running into a limit."""
    for before, step in enumerate(steps):
        built = before > 0 and all(s.status == "passed" for s in steps[:before])
        if built and step.status == "failed" and (step.signal is not None or step.killed):
            return "red", _reason(step)
    return None


def _test_summary(steps: list[StepRecord]) -> Ruling | None:
    for step in steps:
        bad = [t for t in step.tests if t.outcome != "passed"]
        if step.status in ("failed", "passed") and bad:
            kinds = ", ".join(f"{n} {kind}" for kind, n in Counter("flaky" if t.flaky else t.outcome for t in bad).items())
            return "red", f"{kinds} of {len(step.tests)} tests, first {bad[0].id}"
    return None


def _nothing_collected(steps: list[StepRecord]) -> Ruling | None:
    if steps and all(s.status == "passed" for s in steps) and not any(s.tests for s in steps):
        return "incomplete", "no tests were collected"
    return None


def _environment(steps: list[StepRecord]) -> Ruling | None:
    """What is left is nobody's proof: a step that did not end properly, or one that failed without saying where."""
    for step in steps:
        if step.status in ("incomplete", "failed"):
            return "incomplete", _reason(step)
    return None


def _reason(step: StepRecord) -> str:
    first_line = step.detail.split("\n", 1)[0]
    return f"{step.name}: {first_line or step.status.replace('_', ' ')}"


RULES = (_passed, _located_error, _crash_after_build, _test_summary, _nothing_collected, _environment)
