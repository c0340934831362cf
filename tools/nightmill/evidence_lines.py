"""The facts behind one event of a run, as lines: what `nightmill explain` shows as evidence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, singledispatch

from nightmill.calls.outcome import TABLE
from nightmill.calls.policies import UNLIMITED
from nightmill.gate.records import GateRecord
from nightmill.lines import count, listed, seconds
from nightmill.run import events
from nightmill.trouble import Entry, Log

SHOWN = 6
"""Failing tests or diagnostics that are named; the rest are counted."""
UNWRITTEN = "NotImplementedError"


@dataclass(frozen=True)
class Told:
    """What belongs to an event: the calls of the same execution, the reply it speaks of."""

    log: Log
    entry: Entry

    @cached_property
    def label(self) -> str:
        """Of the call it is about; "" for what is about no call."""
        return getattr(self.entry.event, "label", "")

    @property
    def reviewer(self) -> str:
        """The agent named in the label, where it is not the stage's own."""
        return self.label.partition("/")[2].partition("#")[0]

    @cached_property
    def call(self) -> events.CallFinished | None:
        """The call that gave the reply: by its key, or the last one that the stage's own agent answered."""
        key = getattr(self.entry.event, "key", "")
        for e in self.log.before(self.entry):
            event = e.event
            if not isinstance(event, events.CallFinished) or event.stage != self.entry.stage:
                continue
            if event.key == key if key else event.outcome == "ok" and "/" not in event.label:
                return event
        return None

    @property
    def model(self) -> str:
        return self.call.model if self.call else ""

    @cached_property
    def judged_before(self) -> Entry | None:
        """The same judgement on the same reply in an earlier execution, where this one only replays it."""
        if not self.call or not self.call.replayed:
            return None
        mine = _judgement(self.entry.event)
        return next((e for e in self.log.before(self.entry) if mine and _judgement(e.event) == mine), None)

    @cached_property
    def started(self) -> events.CallStarted | None:
        """The start of the very call that ended with this event."""
        names = [getattr(self.entry.event, name, "") for name in ("label", "key")]
        found = (e.event for e in self.log.before(self.entry) if isinstance(e.event, events.CallStarted))
        return next((e for e in found if [e.label, e.key] == names), None)

    @cached_property
    def record(self) -> GateRecord | None:
        """What the gate saw of an attempt."""
        number = getattr(self.entry.event, "attempt", None)
        found = (e.event for e in reversed(self.log.execution(self.entry)) if isinstance(e.event, events.GateRan))
        return next((e.record for e in found if e.attempt == number), None)


def _judgement(event: events.Event) -> tuple[object, ...]:
    """What makes two judgements the same; () for what judges nothing."""
    if isinstance(event, events.ReplyRefused):
        return event.stage, event.key, event.rule
    return (event.stage, event.attempt, event.outcome, event.tree) if isinstance(event, events.AttemptFinished) else ()


@singledispatch
def evidence(event: object, told: Told) -> list[str]:
    """The facts of an event and of what belongs to it, one a line."""
    return []


@evidence.register
def _(event: events.CallFinished, told: Told) -> list[str]:
    asked = f"{event.label} asked {event.provider} for {event.named or event.model}"
    policy = TABLE.get(event.outcome)
    same = [
        e.event
        for e in told.log.execution(told.entry)
        if isinstance(e.event, events.CallFinished)
        and (e.event.label, e.event.provider, e.event.outcome) == (event.label, event.provider, event.outcome)
    ]
    limit = f" of {policy.tries}" if policy and policy.tries < UNLIMITED else ""
    return [
        asked + (f"; {event.model} answered" if event.named else ""),
        *([event.detail] if event.detail else []),
        *([f"try {len(same) + 1}{limit} of this question there"] if policy and policy.tries > 1 else []),
        *_sizes(told.started),
        *_counted(event),
        f"took {seconds(event.seconds)}" if event.seconds else "",
        f"reply in .nightmill/calls/{event.key}.json" if event.outcome == "ok" else "",
    ]


def _sizes(started: events.CallStarted | None) -> list[str]:
    """What was reserved against the window, what was left out of the prompt, what was gone on from."""
    if started is None:
        return []
    need = started.prompt_tokens + started.max_tokens
    answer = f" + {started.max_tokens:,} for the answer = {need:,}" if started.max_tokens else ""
    window = f"the window holds {started.window:,}" if started.window else "the window is not known"
    return [
        f"prompt of {started.prompt_tokens:,} tokens{answer}; {window}",
        *([f"left out of the prompt to fit: {', '.join(started.left_out)}"] if started.left_out else []),
        *([f"went on behind {started.resumed:,} characters of an interrupted answer"] if started.resumed else []),
    ]


def _counted(event: events.CallFinished) -> list[str]:
    parts = {
        "prompt": event.prompt_tokens,
        "cached": event.cached_tokens,
        "evaluated": event.evaluated_tokens,
        "completion": event.completion_tokens,
    }
    told = listed(f"{value:,} {name}" for name, value in parts.items() if value is not None)
    return [f"tokens by the server's count: {told}"] if told else []


@evidence.register
def _(event: events.CallStarted, told: Told) -> list[str]:
    return [
        f"{event.label} had asked {event.provider} for {event.model}",
        *_sizes(event),
        f"what had come is in .nightmill/calls/{event.key}.partial, unless the call was finished since",
    ]


@evidence.register
def _(event: events.ReplyRefused, told: Told) -> list[str]:
    by = f"{told.model} of {told.call.provider}" if told.call else "an unknown model"
    return [f"{event.label}, by {by}", f"broke the rule: {event.rule}", f"reply in .nightmill/calls/{event.key}.json"]


@evidence.register
def _(event: events.EditRefused, told: Told) -> list[str]:
    by = f", by {told.model}" if told.model else ""
    return [f"attempt {event.attempt}{by}", *event.reasons[:SHOWN], *_more(len(event.reasons), "reason")]


@evidence.register
def _(event: events.GateRan, told: Told) -> list[str]:
    return _gate(event.record)


def _gate(record: GateRecord) -> list[str]:
    """Verdict, the steps that did not pass, the tests that failed, the located complaints, what it ran under."""
    bad = sorted((t for t in record.tests if t.outcome != "passed"), key=lambda t: t.exception == UNWRITTEN)
    unwritten = sum(t.exception == UNWRITTEN for t in bad)
    steps = [s for s in record.steps if s.status != "passed" and not s.advisory]
    return [
        f"gate {record.verdict.replace('_', ' ')}: {record.reason}",
        *(f"step {s.name} {s.status.replace('_', ' ')}" + (f": {s.detail.splitlines()[0]}" if s.detail else "") for s in steps),
        *(f"{t.outcome} {t.id}: {t.message or t.exception}" for t in bad[:SHOWN]),
        *_more(len(bad), "test"),
        *([f"{unwritten:,} of them ran into code that is not written yet"] if unwritten else []),
        *(f"{d.file}:{d.line}: {d.message}" for d in record.diagnostics[:SHOWN]),
        *_more(len(record.diagnostics), "diagnostic"),
        f"tree {record.tree[:12]}, protections {', '.join(record.protections) or 'none recorded'}",
    ]


def _more(number: int, noun: str) -> list[str]:
    return [f"and {count(number - SHOWN, noun)} more"] if number > SHOWN else []


@evidence.register
def _(event: events.AttemptFinished, told: Told) -> list[str]:
    refused = [e.event for e in told.log.execution(told.entry) if isinstance(e.event, events.EditRefused)]
    reasons = next((r.reasons for r in reversed(refused) if r.attempt == event.attempt), ())
    silent = _last(told, events.CallFinished) if event.outcome == "no verdict" else None
    unread = _last(told, events.ReplyRefused) if event.outcome == "unparseable" else None
    return [
        f"attempt {event.attempt} ({event.asked}): {event.differs}" + (f", by {told.model}" if told.model else ""),
        *([event.reason] if event.reason else []),
        *([f"{event.passed} of {event.owed} tests that count here pass"] if event.owed else []),
        *reasons[:SHOWN],
        *([f"#{silent.number} {getattr(silent.event, 'outcome', '')}: {getattr(silent.event, 'detail', '')}"] if silent else []),
        *([f"#{unread.number} broke the rule: {getattr(unread.event, 'rule', '')}"] if unread else []),
        *(_gate(told.record) if told.record else []),
        *(["kept: it is the best so far"] if event.best else []),
    ]


def _last(told: Told, kind: type[events.CallFinished] | type[events.ReplyRefused]) -> Entry | None:
    return next((e for e in reversed(told.log.execution(told.entry)) if isinstance(e.event, kind)), None)


@evidence.register
def _(event: events.Finding, told: Told) -> list[str]:
    return [f"{event.source} says {event.verdict or 'without a verdict'}", f"{event.where}: {event.text}" if event.where else event.text]


@evidence.register
def _(event: events.StageFinished, told: Told) -> list[str]:
    ended = [event.reason] if event.reason else []
    return [*ended, f"after {seconds(event.seconds)}"] if event.seconds else ended


@evidence.register
def _(event: events.RunEnded, told: Told) -> list[str]:
    return [f"exit {event.exit} ({event.word})", *([event.reason] if event.reason else [])]


@evidence.register
def _(event: events.StageStarted, told: Told) -> list[str]:
    return [f"it had started: {event.why}" if event.why else "it had started"]


@evidence.register
def _(event: events.RunStarted, told: Told) -> list[str]:
    return [f"{event.command}, process {event.pid}, nightmill {event.version}"]
