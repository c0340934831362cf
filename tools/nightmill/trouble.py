"""What went wrong in a run: its events with their line numbers, which of them are problems, and how a person names one."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nightmill.calls.outcome import Outcome, classify, outcome
from nightmill.errors import UsageError
from nightmill.lines import one_line
from nightmill.run.events import (
    AttemptFinished,
    CallFinished,
    CallStarted,
    EditRefused,
    Event,
    GateRan,
    Note,
    RunEnded,
    RunStarted,
    StageFinished,
    StageStarted,
    parse_event,
)
from nightmill.summary import WHOLE

KEY_DIGITS = 6
"""Hex digits that make a call's key out of a word."""
_ALL = "nightmill explain --all lists the problems"


@dataclass(frozen=True)
class Entry:
    """An event and its line in events.jsonl, from 1."""

    number: int
    event: Event

    @property
    def stage(self) -> str:
        """ "" for what concerns the run as a whole."""
        return getattr(self.event, "stage", "")


@dataclass(frozen=True)
class Trouble:
    entry: Entry
    outcome: Outcome


@dataclass(frozen=True)
class Log:
    entries: tuple[Entry, ...]
    torn: int = 0
    """Lines that could not be read."""

    def after(self, entry: Entry) -> Iterator[Entry]:
        return (e for e in self.entries if e.number > entry.number)

    def before(self, entry: Entry) -> Iterator[Entry]:
        """The latest first."""
        return (e for e in reversed(self.entries) if e.number < entry.number)

    def invocation(self, entry: Entry) -> int:
        """The line on which the invocation of an event starts."""
        return next((e.number for e in self.before(entry) if isinstance(e.event, RunStarted)), 0)

    def execution(self, entry: Entry) -> list[Entry]:
        """What the same execution of a stage did before this, oldest first."""
        found: list[Entry] = []
        for e in self.before(entry):
            if isinstance(e.event, RunStarted) or (isinstance(e.event, StageStarted) and e.stage == entry.stage):
                break
            if e.stage == entry.stage:
                found.append(e)
        return found[::-1]


def numbered(path: Path) -> Log:
    """Every readable event with its line; a torn or foreign line is passed over and counted. An absent file is an empty log."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Log(())
    parsed = [(n, parse_event(line)) for n, line in enumerate(lines, 1) if line.strip()]
    return Log(tuple(Entry(n, event) for n, event in parsed if event), sum(event is None for _, event in parsed))


def alive(pid: int) -> bool:
    """Whether a process of this machine has that id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def troubles(log: Log, runs: Callable[[int], bool] = alive) -> list[Trouble]:
    """Every problem, oldest first. A refused edit and a red gate of an attempt are told by that attempt; the gate on what an attempt
    starts from is no problem, red as it is. `runs`: whether a process that has not said how it ended is still at work.
    """
    attempts = [(e.number, e.stage, e.event.attempt) for e in log.entries if isinstance(e.event, AttemptFinished)]
    found = [
        Trouble(entry, row)
        for entry in log.entries
        if (row := classify(entry.event)) and not _told_by_attempt(entry, attempts) and not _seed(entry, row)
    ]
    found += [Trouble(entry, outcome("killed")) for entry in _cut_off(log, runs)]
    return sorted(found, key=lambda trouble: trouble.entry.number)


def _told_by_attempt(entry: Entry, attempts: Sequence[tuple[int, str, int]]) -> bool:
    event = entry.event
    if not isinstance(event, EditRefused | GateRan):
        return False
    return any(number > entry.number and (stage, n) == (event.stage, event.attempt) for number, stage, n in attempts)


def _seed(entry: Entry, row: Outcome) -> bool:
    event = entry.event
    return isinstance(event, GateRan) and not event.attempt and event.stage != WHOLE and row.name != "trouble"


def _cut_off(log: Log, runs: Callable[[int], bool]) -> Iterator[Entry]:
    """What was under way when a process ended without a word: its calls, else its stages, else the invocation itself."""
    started: Entry | None = None
    calls: dict[tuple[str, str], Entry] = {}
    stages: dict[str, Entry] = {}
    for entry in log.entries:
        event = entry.event
        if isinstance(event, RunStarted | RunEnded):
            if started and isinstance(event, RunStarted):
                yield from calls.values() or stages.values() or [started]
            started, calls, stages = (entry if isinstance(event, RunStarted) else None), {}, {}
        elif isinstance(event, CallStarted):
            calls[event.label, event.key] = entry
        elif isinstance(event, CallFinished):
            calls.pop((event.label, event.key), None)
        elif isinstance(event, StageStarted):
            stages[event.stage] = entry
        elif isinstance(event, StageFinished):
            stages.pop(event.stage, None)
    if started and isinstance(started.event, RunStarted) and not runs(started.event.pid):
        yield from calls.values() or stages.values() or [started]


def cause(log: Log, entry: Entry, found: Sequence[Trouble]) -> Entry:
    """The problem that led to this one: behind the end of a run the stage that gave its exit code, behind that its last event."""
    known = {trouble.entry.number: trouble for trouble in found}
    while (before := _before(log, entry, known)) is not None:
        entry = before
    return entry


def _before(log: Log, entry: Entry, known: dict[int, Trouble]) -> Entry | None:
    event = entry.event
    if isinstance(event, RunEnded):
        start, row = log.invocation(entry), known.get(entry.number)
        ended = [e for e in log.before(entry) if e.number > start and isinstance(e.event, StageFinished) and e.number in known]
        code = row.outcome.policy.exit_code if row else None
        return next((e for e in ended if known[e.number].outcome.policy.exit_code == code), ended[0] if ended else None)
    if isinstance(event, StageFinished):
        last = next((e for e in reversed(log.execution(entry)) if not isinstance(e.event, Note)), None)
        return last if last and last.number in known else None
    return None


def find(log: Log, name: str, found: Sequence[Trouble]) -> Entry | None:
    """The event a person means: a line number (`#123`), the start of a call's key, a call's label, or a stage (its last problem).

    None when a stage is meant in which nothing went wrong. Raises UsageError, with what comes near, for anything else.
    """
    shown = one_line(name, 60)
    if match := re.fullmatch(r"(#?)(\d{1,12})", name, re.ASCII):
        found_there = next((e for e in log.entries if e.number == int(match[2])), None)
        if found_there or match[1] or len(name) < KEY_DIGITS:
            return found_there or _no_line(log, shown)
    if re.fullmatch(rf"[0-9a-f]{{{KEY_DIGITS},64}}", name):
        return _call(log, name, found)
    labels = {label for e in log.entries if (label := getattr(e.event, "label", ""))}
    stages = {e.stage for e in log.entries if e.stage}
    if name in labels:
        return _last(found, lambda e: getattr(e.event, "label", "") == name) or _last_of(log, "label", name)
    if name in stages or any(stage.startswith(f"{name}:") for stage in stages):
        return _last(found, lambda e: e.stage == name or e.stage.startswith(f"{name}:"))
    near = difflib.get_close_matches(name, sorted(labels | stages), 3)
    hint = f"did you mean {', '.join(near)}?" if near else "give a line number, a call's key or label, or a stage;"
    raise UsageError(f"no event {shown}: {hint} {_ALL}")


def _no_line(log: Log, name: str) -> Entry:
    last = log.entries[-1].number if log.entries else 0
    raise UsageError(f"no event {name}: events.jsonl ends with #{last}; {_ALL}")


def _call(log: Log, prefix: str, found: Sequence[Trouble]) -> Entry:
    keys = sorted({key for e in log.entries if (key := getattr(e.event, "key", "")).startswith(prefix)})
    if not keys:
        raise UsageError(f"no call whose key begins with {prefix}: {_ALL}")
    if len(keys) > 1:
        raise UsageError(f"{len(keys)} calls begin with {prefix}: give more digits of {', '.join(key[:16] for key in keys[:3])}")
    entry = _last(found, lambda e: getattr(e.event, "key", "") == keys[0]) or _last_of(log, "key", keys[0])
    assert entry is not None
    return entry


def _last(found: Sequence[Trouble], wanted: Callable[[Entry], bool]) -> Entry | None:
    return next((t.entry for t in reversed(found) if wanted(t.entry)), None)


def _last_of(log: Log, field: str, value: str) -> Entry | None:
    return next((e for e in reversed(log.entries) if getattr(e.event, field, "") == value), None)
