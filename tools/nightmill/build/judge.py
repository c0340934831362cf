"""What a gate's record means for one milestone, whose neighbours may still be stubs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nightmill.gate.records import GateRecord, TestOutcome, Verdict

Stubs = Mapping[str, tuple[str, ...]]
"""File → qualified names of functions that are still to be written."""


@dataclass(frozen=True)
class Duty:
    """What a milestone owes. `files` are its own, `task` is its text.

    `earlier` and `later` are (files, task) of the milestones that also have one of its files, by their place in the plan.
    """

    files: tuple[str, ...]
    task: str = ""
    later: tuple[tuple[tuple[str, ...], str], ...] = ()
    earlier: tuple[tuple[tuple[str, ...], str], ...] = ()

    def owes(self, file: str, function: str) -> bool:
        """Whether a function of a file is this milestone's to write.

        In a shared file it is the first milestone's whose task names it; one that no task names is everybody's.
        """
        if file not in self.files:
            return False
        name = function.rpartition(".")[2]
        if any(file in files and _names(task, name) for files, task in self.earlier):
            return False
        return _names(self.task, name) or not any(file in files and _names(task, name) for files, task in self.later)


def _names(text: str, word: str) -> bool:
    return bool(word) and re.search(rf"\b{re.escape(word)}\b", text) is not None


@dataclass(frozen=True)
class Judgement:
    """`failed` are tests this milestone must mend, `pending` those that wait for another milestone's stub, `lost` passed before it,
    `inherited` were red before it in the very same way, while somebody else still has work to do.
    """

    verdict: Verdict
    reason: str
    passed: frozenset[str]
    failed: tuple[TestOutcome, ...] = ()
    pending: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    inherited: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()
    diagnostics: int = 0
    builds: bool = False

    @property
    def green(self) -> bool:
        return self.verdict == "green"

    def ranks_above(self, other: Judgement) -> bool:
        """Better as a whole: green, then what builds, more tests passed, less unwritten, fewer diagnostics. It may lose a test."""
        return self._rank > other._rank

    def better_than(self, other: Judgement) -> bool:
        """Strictly better, and no test lost on the way. Fewer diagnostics alone do not count when a test went red."""
        if other.green or (other.builds and not self.builds) or not self.passed >= other.passed:
            return False
        return self._rank > other._rank

    @property
    def _rank(self) -> tuple[bool, bool, int, int, int]:
        return (self.green, self.builds, len(self.passed), -len(self.unwritten), -self.diagnostics)


def judge(
    record: GateRecord, stubs: Stubs, duty: Duty, before: frozenset[str], seeds: Sequence[GateRecord] = (), *, alone: bool = False
) -> Judgement:
    """Green: it builds, leaves no stub of its own, loses no test that passed `before`, and every red test waits for others.

    `seeds`: the gates on what it started from, for what it inherits. `alone`: nobody else will write anything, so no test waits.
    """
    build = next((s for s in record.steps if s.name == "build"), None)
    builds = build is not None and build.status == "passed"
    failing = [t for t in record.tests if t.outcome not in ("passed", "xfailed")]
    pending = tuple(t.id for t in failing if not alone and t.id not in before and _waits(t, stubs, duty))
    neighbours = any(not duty.owes(file, name) for file, names in stubs.items() for name in names)
    old = {_signature(t) for seed in seeds for t in seed.tests} if neighbours else set()
    inherited = tuple(
        t.id for t in failing if t.id not in (*pending, *before) and t.exception != "NotImplementedError" and _signature(t) in old
    )
    failed = tuple(t for t in failing if t.id not in pending and t.id not in inherited)
    lost = tuple(sorted(before - record.passed)) if record.tests else ()
    unwritten = tuple(f"{file}: {name}" for file in duty.files for name in stubs.get(file, ()) if duty.owes(file, name))
    verdict, reason = _verdict(record, builds, failed, lost, unwritten, (*pending, *inherited))
    return Judgement(verdict, reason, record.passed, failed, pending, lost, inherited, unwritten, len(record.diagnostics), builds)


def _signature(test: TestOutcome) -> tuple[str, ...]:
    return (test.id, test.outcome, test.exception, test.message, test.crash_file)


def _waits(test: TestOutcome, stubs: Stubs, duty: Duty) -> bool:
    """Whether a test is red because it ran into a stub that is somebody else's."""
    if test.exception != "NotImplementedError" or not test.crash_file:
        return False
    names = stubs.get(test.crash_file, ())
    here = test.crash_function in names or test.crash_function.rpartition(".")[2] in {n.rpartition(".")[2] for n in names}
    return here and not duty.owes(test.crash_file, test.crash_function)


def _verdict(
    record: GateRecord,
    builds: bool,
    failed: tuple[TestOutcome, ...],
    lost: tuple[str, ...],
    unwritten: tuple[str, ...],
    others: tuple[str, ...],
) -> tuple[Verdict, str]:
    if not builds or record.verdict in ("incomplete", "not_run"):
        return record.verdict, record.reason
    if record.verdict == "red" and (any(s.signal is not None or s.killed for s in record.steps) or not (failed or others)):
        return "red", record.reason
    if lost:
        return "red", f"{lost[0]} passed before and does not now" + (f", and {len(lost) - 1} more" if len(lost) > 1 else "")
    if failed:
        return "red", f"{len(failed)} of {len(record.tests)} tests are red, first {failed[0].id}"
    if unwritten:
        return "red", f"not implemented: {', '.join(unwritten[:6])}"
    waiting = f", {len(others)} are red for others" if others else ""
    return "green", f"it builds and {len(record.passed)} tests pass{waiting}"
