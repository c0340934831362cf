"""Two runs of the same tests on the same tree, as one record: a test that did not pass in both did not pass."""

from __future__ import annotations

from nightmill.gate.records import StepRecord, TestOutcome

_KINDS = {"passed": "passes", "failed": "fails", "error": "fails"} | {kind: f"is {kind}" for kind in ("skipped", "xfailed", "xpassed")}


def ended(step: StepRecord) -> bool:
    """Whether the runner came to its own end, so that a second run can be compared with it."""
    return bool(step.tests) and step.status in ("passed", "failed") and step.signal is None and step.killed is None


def merged(first: StepRecord, second: StepRecord) -> StepRecord:
    """`first` with `second` as its `again`: the worse of two outcomes counts, and a test whose outcomes differ says so in `flaky`.

    A second run that was killed, or did not come to its end, makes the whole what it is.
    """
    again = second.model_copy(update={"tests": ()})
    if not ended(second):
        where = circumstances(second)
        update = {"again": again, "status": second.status, "signal": second.signal, "killed": second.killed}
        detail = f"{where}: {second.detail}"
        broken = tuple(t for t in second.tests if t.outcome != "passed")
        known = {t.id for t in broken}
        return first.model_copy(update={**update, "detail": detail, "tests": (*(t for t in first.tests if t.id not in known), *broken)})
    there = {t.id: t for t in second.tests}
    tests = [_worse(t, there.get(t.id), second) for t in first.tests]
    tests += [_new(t, second) for t in second.tests if t.id not in {t.id for t in first.tests}]
    flaky = [t.id for t in tests if t.flaky]
    status = "passed" if all(t.outcome == "passed" for t in tests) else "failed"
    detail = f"{first.detail}, in both runs; {circumstances(second)} was the second" if status == "passed" else first.detail
    if flaky:
        detail = f"{len(flaky)} of {len(tests)} tests are flaky, first {flaky[0]}: {next(t.flaky for t in tests if t.flaky)}"
    return first.model_copy(update={"again": again, "status": status, "detail": detail, "tests": tuple(tests)})


def circumstances(step: StepRecord) -> str:
    """How a second run differed, for people: `shuffled by 7, TZ=…`."""
    parts = ([f"shuffled by {step.seed}"] if step.seed else []) + list(step.surroundings)
    return ", ".join(parts) or "run once more"


def _worse(first: TestOutcome, second: TestOutcome | None, step: StepRecord) -> TestOutcome:
    if second is None:
        note = f"{_KINDS[first.outcome]} in the first run and is not there in the second ({circumstances(step)})"
        worst = first if first.outcome != "passed" else first.model_copy(update={"outcome": "error"})
        return _flaky(worst, note)
    touched = tuple(sorted({*first.touched, *second.touched}))
    if _KINDS[first.outcome] == _KINDS[second.outcome]:
        return first.model_copy(update={"touched": touched})
    note = f"{_KINDS[first.outcome]} in the first run and {_KINDS[second.outcome]} in the second ({circumstances(step)})"
    worst = second if first.outcome == "passed" else first
    return _flaky(worst.model_copy(update={"touched": touched}), note)


def _new(second: TestOutcome, step: StepRecord) -> TestOutcome:
    note = f"is not there in the first run and {_KINDS[second.outcome]} in the second ({circumstances(step)})"
    return _flaky(second if second.outcome != "passed" else second.model_copy(update={"outcome": "error"}), note)


def _flaky(test: TestOutcome, note: str) -> TestOutcome:
    """The note stands before the message too: whoever mends the code reads the message."""
    return test.model_copy(update={"flaky": note, "message": f"flaky: {note}" + (f"\n{test.message}" if test.message else "")})
