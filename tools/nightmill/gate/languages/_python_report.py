"""Reads what `_pytest_report.py` wrote in the sandbox and says what it proves. Written for a report that may be missing, torn or forged."""

from __future__ import annotations

import hmac
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nightmill.gate.languages.base import plain, unlocated
from nightmill.gate.limits import Ran
from nightmill.gate.records import StepRecord, StepStatus, TestOutcome

ENDED_BY_CODE = frozenset({"wall", "output", "memory", "disk"})
"""Limits that tested code runs into by itself; `stopped` is ours."""

_NONE_COLLECTED = 5
"""pytest's exit status for an empty collection."""


@dataclass
class Report:
    """A report as far as it can be believed."""

    started: bool = False
    collected: list[str] = field(default_factory=list)
    results: list[TestOutcome] = field(default_factory=list)
    broken: list[TestOutcome] = field(default_factory=list)
    """Files that did not collect, tests that were deselected."""
    running: str = ""
    """The test, or the file being imported, that had started and not ended."""
    exit: int | None = None
    """pytest's own exit status; None without the final line."""
    fault: str = ""
    """Why the report proves nothing as a whole; empty when it is complete and consistent."""

    @property
    def tests(self) -> tuple[TestOutcome, ...]:
        return (*self.broken, *self.results)


def read_report(data: bytes | None, key: bytes, declared: Sequence[str] = (), *, first: bool = False) -> Report:
    """The report written with `key` about tests among which must be the `declared` ones, parameters not counted.

    `first`: the runner was told to end at the first test that does not pass, so that others may lack a result.
    Never raises for what the tested code did to it.
    """
    report = Report()
    try:
        for event in _authentic(data or b"", key):
            _take(report, event)
    except (ValueError, KeyError, TypeError) as error:
        report.fault = f"the report was tampered with: {error}"
        return report
    torn = bool(data) and not (data or b"").endswith(b"\n")
    report.fault = "bytes follow the test runner's summary" if torn and report.exit is not None else _fault(report, declared, first=first)
    return report


def _authentic(data: bytes, key: bytes) -> Iterator[dict[str, Any]]:
    """The events whose HMAC is right. A torn last line is no event. Raises ValueError for any other foreign line."""
    mac = hmac.new(key, digestmod="sha256")
    *lines, _torn = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        tag, _, text = line.partition(b" ")
        mac.update(text + b"\n")
        if not hmac.compare_digest(tag, mac.hexdigest().encode()):
            raise ValueError(f"line {number} is not the test runner's")
        event = json.loads(text)
        if not isinstance(event, dict):
            raise ValueError(f"line {number} is not an event")
        yield event


def _take(report: Report, event: dict[str, Any]) -> None:
    match event["event"]:
        case "started":
            report.started = True
        case "collected":
            report.collected += [_str(i) for i in event["ids"]]
            report.running = ""
        case "broken":
            report.broken.append(_outcome(event))
        case "start":
            report.running = _str(event["id"])
        case "result":
            report.results.append(_outcome(event))
            report.running = ""
        case "finished":
            report.exit = int(event["exit"])


def _outcome(event: dict[str, Any]) -> TestOutcome:
    return TestOutcome(
        id=_str(event["id"]),
        outcome=event["outcome"],
        exception=_str(event.get("exception", "")),
        message=_str(event.get("message", "")),
        crash_file=_str(event.get("file", "")),
        crash_line=event.get("line", 0),
        crash_function=_str(event.get("function", "")),
        traceback=_str(event.get("traceback", "")),
        touched=tuple(map(_str, event.get("touched", ()))),
    )


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a text belongs")
    return plain(value)


def _fault(report: Report, declared: Sequence[str], *, first: bool) -> str:
    if not report.started:
        return "the test runner did not start"
    if report.exit is None:
        return f"the test run ended before its summary{f', in {report.running}' if report.running else ''}"
    ids = [t.id for t in report.results]
    ended = set(ids)
    if twice := [*_more_than_once(ids), *_more_than_once(report.collected)]:
        return f"{twice[0]} was reported twice"
    if unknown := sorted(ended - set(report.collected)):
        return f"{unknown[0]} has a result but was never collected"
    cut_short = first and any(t.outcome != "passed" for t in report.tests)
    if not cut_short and (missing := [i for i in report.collected if i not in ended]):
        return f"{len(missing)} of {len(report.collected)} collected tests have no result, first {missing[0]}"
    known = {i.split("[", 1)[0] for i in report.collected}
    if not report.broken and (lost := [i for i in declared if i not in known]):
        return f"{lost[0]} stands in the locked tests and was not collected"
    return ""


def _more_than_once(ids: list[str]) -> list[str]:
    return [i for i, n in Counter(ids).items() if n > 1]


def step_of_tests(ran: Ran, report: Report, command: tuple[str, ...]) -> StepRecord:
    """The test step's record. Passed only when the report is whole, its summary agrees with the process, and every test passed."""
    status, why = _judge(ran, report)
    tests = report.tests
    if report.running and report.exit is None:
        tests = (*tests, TestOutcome(id=report.running, outcome="error", exception="Ended", message=why))
    return StepRecord(
        name="test",
        status=status,
        command=command,
        exit=ran.exit,
        signal=ran.signal,
        killed=ran.killed,
        seconds=ran.seconds,
        detail=why if status != "incomplete" else unlocated(why, ran.output),
        tests=tests,
    )


def _judge(ran: Ran, report: Report) -> tuple[StepStatus, str]:
    where = f" in {report.running}" if report.running else ""
    if ran.killed == "stopped":
        return "incomplete", "stopped before the tests ended"
    if report.started and ran.killed in ENDED_BY_CODE:
        return "failed", f"the tests ran into the {ran.killed} limit after {ran.seconds:.0f} s{where}"
    if report.started and report.exit is None and ran.signal is not None:
        return "failed", f"the tests crashed by signal {ran.signal}{where}"
    if report.fault:
        return "incomplete", f"{report.fault} (exit {ran.exit})"
    if report.exit != ran.exit:
        return "incomplete", f"the test runner said exit {report.exit}, the process ended with {ran.exit}"
    bad = [t for t in report.tests if t.outcome != "passed"]
    if bad:
        kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(t.outcome for t in bad).items())
        return "failed", f"{kinds} of {len(report.tests)} tests, first {bad[0].id}"
    if not report.results:
        none = report.exit == _NONE_COLLECTED
        return "incomplete", "no tests were collected" if none else f"pytest ended with {report.exit} before any test"
    if report.exit != 0:
        return "incomplete", f"every test passed, yet pytest ended with {report.exit}"
    return "passed", f"{len(report.results)} tests passed"
