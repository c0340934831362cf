"""What came after a problem: the events that answer it, in words."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch

from nightmill.lines import narrate, one_line, seconds
from nightmill.run import events
from nightmill.summary import WHOLE
from nightmill.trouble import Entry, Log

NOTHING = "nothing yet: the run has not gone on since"


@singledispatch
def brief(event: events.Event) -> str:
    """An event in one line, with its stage."""
    line = narrate(event)
    stage = getattr(event, "stage", "")
    text = line.text if line else event.kind.replace("_", " ")
    return one_line(f"{stage}: {text}" if stage else text)


@brief.register
def _(event: events.CallFinished) -> str:
    replayed = ", replayed" if event.replayed else ""
    how = f"{event.outcome}{replayed}" + (f": {event.detail}" if event.detail else "")
    return one_line(f"{event.label}: {event.provider}/{event.model}: {how}")


@brief.register
def _(event: events.CallStarted) -> str:
    return one_line(f"{event.label}: {event.provider}/{event.model}: asked")


@brief.register
def _(event: events.ReplyRefused) -> str:
    return one_line(f"{event.label}: reply refused: {event.rule}")


@brief.register
def _(event: events.GateRan) -> str:
    return one_line(f"{event.stage}: gate {event.record.verdict.replace('_', ' ')}: {event.record.reason}")


@brief.register
def _(event: events.AttemptFinished) -> str:
    why = f": {event.reason}" if event.reason else ""
    return one_line(f"{event.stage}: attempt {event.attempt} ({event.asked}) {event.outcome}{', kept' if event.best else ''}{why}")


@brief.register
def _(event: events.Finding) -> str:
    where = f"{event.where}: " if event.where else ""
    return one_line(f"{event.stage}: {event.source} {event.verdict}: {where}{event.text}")


@brief.register
def _(event: events.RunStarted) -> str:
    return one_line(f"{event.command} started")


@brief.register
def _(event: events.RunEnded) -> str:
    return one_line(f"the run ended: {event.word} (exit {event.exit})" + (f": {event.reason}" if event.reason else ""))


def followed(log: Log, entry: Entry) -> list[str]:
    """What nightmill did next, one or two lines: what was planned, and the event that came of it."""
    return [*_planned(entry.event), *_came(entry.event, log, entry)]


def _planned(event: events.Event) -> list[str]:
    return [event.next] if isinstance(event, events.CallFinished) and event.next else []


def _first(log: Log, entry: Entry, *wanted: Callable[[Entry], bool]) -> list[str]:
    """The first later event for the first of these questions that has one."""
    for question in wanted:
        found = next((e for e in log.after(entry) if question(e)), None)
        if found:
            return [f"{seconds(_between(log, entry, found))} later #{found.number} {brief(found.event)}"]
    return [NOTHING]


def _between(log: Log, first: Entry, second: Entry) -> float:
    """Seconds from one event to a later one, by the clock that does not jump where one process wrote both."""
    if first.event.up and log.invocation(first) == log.invocation(second):
        return second.event.up - first.event.up
    return max(second.event.at - first.event.at, 0.0)


def _same_stage(entry: Entry, *kinds: type) -> Callable[[Entry], bool]:
    return lambda e: e.stage == entry.stage and isinstance(e.event, kinds)


@singledispatch
def _came(event: object, log: Log, entry: Entry) -> list[str]:
    return []


@_came.register(events.CallFinished)
@_came.register(events.CallStarted)
@_came.register(events.ReplyRefused)
def _(event: events.CallFinished | events.CallStarted | events.ReplyRefused, log: Log, entry: Entry) -> list[str]:
    """The same question again (a refused reply raises its number), or the end of the attempt or the stage."""
    agent = event.label.partition("#")[0]
    wanted = _same_stage(entry, events.CallFinished, events.AttemptFinished, events.StageFinished)
    return _first(log, entry, lambda e: wanted(e) and getattr(e.event, "label", agent).partition("#")[0] == agent)


@_came.register(events.AttemptFinished)
@_came.register(events.EditRefused)
@_came.register(events.GateRan)
def _(event: events.AttemptFinished, log: Log, entry: Entry) -> list[str]:
    return _first(log, entry, _same_stage(entry, events.AttemptFinished, events.StageFinished))


@_came.register
def _(event: events.Finding, log: Log, entry: Entry) -> list[str]:
    return ["written into deviations.md; nothing was stopped"]


@_came.register(events.StageFinished)
@_came.register(events.StageStarted)
def _(event: events.StageFinished, log: Log, entry: Entry) -> list[str]:
    return _first(log, entry, _same_stage(entry, events.StageFinished), lambda e: isinstance(e.event, events.RunEnded | events.RunStarted))


@_came.register(events.RunEnded)
@_came.register(events.RunStarted)
def _(event: events.RunEnded, log: Log, entry: Entry) -> list[str]:
    return _first(log, entry, lambda e: isinstance(e.event, events.RunStarted), lambda e: isinstance(e.event, events.RunEnded))


def settled(log: Log, entry: Entry) -> str:
    """Why nothing is left to do: what mended this later; "" while nothing did."""
    found = next((e for e in log.after(entry) if _mends(entry.event, e, log)), None)
    return f"nothing: settled by #{found.number} {brief(found.event)}" if found else ""


@singledispatch
def _mends(event: object, later: Entry, log: Log) -> bool:
    return False


@_mends.register(events.CallFinished)
@_mends.register(events.CallStarted)
@_mends.register(events.ReplyRefused)
def _(event: events.CallFinished | events.CallStarted | events.ReplyRefused, later: Entry, log: Log) -> bool:
    """The same agent's next answer that was not refused."""
    answer = later.event
    if not isinstance(answer, events.CallFinished) or answer.outcome != "ok":
        return False
    same = answer.label.partition("#")[0] == event.label.partition("#")[0]
    return same and not any(isinstance(e.event, events.ReplyRefused) and e.event.key == answer.key for e in log.after(later))


@_mends.register(events.AttemptFinished)
@_mends.register(events.EditRefused)
@_mends.register(events.GateRan)
def _(event: events.AttemptFinished | events.EditRefused | events.GateRan, later: Entry, log: Log) -> bool:
    """A green attempt at the same, or a green gate on the whole."""
    now = later.event
    if isinstance(now, events.AttemptFinished):
        return now.stage == event.stage and now.outcome == "green"
    return isinstance(now, events.GateRan) and now.stage == WHOLE and now.record.verdict == "green"


@_mends.register(events.StageFinished)
@_mends.register(events.StageStarted)
def _(event: events.StageFinished | events.StageStarted, later: Entry, log: Log) -> bool:
    return isinstance(later.event, events.StageFinished) and later.stage == event.stage and later.event.status in ("made", "kept")


@_mends.register(events.RunEnded)
@_mends.register(events.RunStarted)
def _(event: events.RunEnded | events.RunStarted, later: Entry, log: Log) -> bool:
    return isinstance(later.event, events.RunEnded) and not later.event.exit
