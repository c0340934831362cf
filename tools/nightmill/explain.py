"""`nightmill explain [EVENT]`: what went wrong: its class, the evidence, who was charged, what was done next and what a person can do."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence

from nightmill.calls.outcome import Outcome, classify
from nightmill.evidence_lines import Told, evidence
from nightmill.followed import brief, followed, settled
from nightmill.lines import one_line
from nightmill.run.events import AttemptFinished, EditRefused, GateRan, ReplyRefused
from nightmill.trouble import Entry, Log, Trouble, cause, find, numbered, troubles

FINE = "nothing went wrong"
NOBODY = "nobody"
_LIMIT = 400
_BRIEF = 140
_KILLED = "the process ended there without a word"


def explain(options: argparse.Namespace) -> int:
    """`options.event`: a line number, a call's key or label, a stage, or None; `options.all`: every problem in one line each.

    Raises UsageError for an event that is not there, and outside of a run.
    """
    from nightmill.graph.commands import stages_of
    from nightmill.graph.session import open_here

    session = open_here()
    log = numbered(session.run.events.path)
    agents = {stage.name: stage.skill for stage in stages_of(session) if stage.skill}
    text = listing(log, agents) if options.all else explanation(log, options.event, agents)
    sys.stdout.write(text + "\n")
    return 0


def explanation(log: Log, name: str | None, agents: Mapping[str, str]) -> str:
    """The text for the event of that name (see trouble.find), or for the last thing that went wrong. `agents`: stage → its own skill."""
    found = troubles(log)
    entry = _latest(log, found) if name is None else find(log, name, found)
    if entry is None:
        return "\n".join([FINE if name is None else f"{FINE} in {one_line(name)}", *_torn(log)])
    row = next((t.outcome for t in found if t.entry is entry), None) or classify(entry.event)
    lines = [f"#{entry.number} {_clock(entry)} {brief(entry.event)}"]
    lines += _part("class", [f"{row.policy.of}: {row.name.replace('_', ' ')}" if row else FINE])
    lines += _part("evidence", [*evidence(entry.event, Told(log, entry)), _KILLED if row and row.name == "killed" else ""])
    if row:
        lines += _part("charged", [_charged(entry, row, log, agents)])
        lines += _part("next", followed(log, entry))
        lines += _part("led to", [f"#{t.entry.number} {brief(t.entry.event)}" for t in _consequences(log, entry, found)])
        lines += _part("to do", [settled(log, entry) or _remedy(entry, row)])
    return "\n".join([*lines, *_torn(log)])


def listing(log: Log, agents: Mapping[str, str]) -> str:
    """Every problem in one line: its number, when, class, what, and the agent that was charged."""
    lines = []
    for trouble in troubles(log):
        entry, row = trouble.entry, trouble.outcome
        kind = f"{row.policy.of}: {row.name.replace('_', ' ')}"
        who = _charged(entry, row, log, agents)
        charged = "" if who.startswith(NOBODY) else f" (charged: {who})"
        lines.append(f"#{entry.number:<5} {_clock(entry)}  {kind:<27}  {one_line(brief(entry.event), _BRIEF)}{charged}")
    return "\n".join([*(lines or [FINE]), *_torn(log)])


def _latest(log: Log, found: Sequence[Trouble]) -> Entry | None:
    """What the last problem came from."""
    return cause(log, found[-1].entry, found) if found else None


def _remedy(entry: Entry, row: Outcome) -> str:
    """What the person can do: the provider's own advice before the table's."""
    return getattr(entry.event, "remedy", "") or row.policy.remedy.replace("STAGE", entry.stage or "STAGE")


def _clock(entry: Entry) -> str:
    return time.strftime("%H:%M:%S", time.localtime(entry.event.at))


def _part(name: str, lines: Sequence[str]) -> list[str]:
    """One heading and its lines in a column; nothing without lines."""
    return [f"{name if n == 0 else '':<10}{one_line(line, _LIMIT)}" for n, line in enumerate(filter(None, lines))]


def _torn(log: Log) -> list[str]:
    return [f"(lines of events.jsonl that could not be read: {log.torn})"] if log.torn else []


def _consequences(log: Log, entry: Entry, found: Sequence[Trouble]) -> list[Trouble]:
    """Later problems that this one led to: the end of its stage, the end of its run."""
    later = [t for t in found if t.entry.number > entry.number]
    return [t for t in later if cause(log, t.entry, found) is entry]


def _charged(entry: Entry, row: Outcome, log: Log, agents: Mapping[str, str]) -> str:
    """`target_implementer (coder-7b)`, or nobody and why not."""
    event = entry.event
    if isinstance(event, GateRan) and row.policy.charges and not event.attempt:
        return f"{NOBODY}: this gate judges the whole as it lies there; attempts are charged one by one"
    if isinstance(event, AttemptFinished) and not event.charged:
        return f"{NOBODY}: {row.nobody or 'the attempt says so'}"
    if not row.policy.charges or not isinstance(event, AttemptFinished | ReplyRefused | EditRefused | GateRan):
        return f"{NOBODY}: {row.nobody or 'its attempts were charged one by one'}"
    told = Told(log, entry)
    if first := told.judged_before:
        return f"{NOBODY}: this reply was replayed, and charged at #{first.number}"
    agent = told.reviewer or agents.get(entry.stage) or f"the agent of {entry.stage}"
    return f"{one_line(agent)} ({one_line(told.model)})" if told.model else one_line(agent)
