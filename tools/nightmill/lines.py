"""What happened, as lines for a person: events in words, and text of models and compilers made harmless for a terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch
from typing import Literal

from nightmill.gate.records import GateRecord
from nightmill.run import events

NEVER = "not made yet"
"""Why a stage starts that has no stamp yet."""

State = Literal["fresh", "kept", "stale", "running", "held", "failed", "waiting", "blocked", "made"]
Tone = Literal["good", "bad", "warn", "dim", "plain"]


@dataclass(frozen=True)
class StageLine:
    """One stage as the person sees it. `why` is one line: the facts that differ, what it waits for, how it failed."""

    name: str
    doc: str
    state: State
    why: str = ""


@dataclass(frozen=True)
class Line:
    """Something that happened to `stage` (empty: to the run). `at` is Unix time; `text` is safe and on one line."""

    at: float
    stage: str
    text: str
    tone: Tone = "plain"

    @property
    def clock(self) -> str:
        """Local wall time, `02:14:07`."""
        return time.strftime("%H:%M:%S", time.localtime(self.at))

    def plain(self, width: int = 0) -> str:
        """Without colours; the stage's name is padded to `width` characters."""
        return f"{self.clock}  {self.stage:<{width}}  {self.text}" if self.stage or width else f"{self.clock}  {self.text}"


_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor, erase
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # terminated strings: title, links, clipboard, graphics
    r"|\x1b[ -/]*[0-~]?"  # everything shorter; an unterminated string keeps its text, which is harmless without its introducer
)
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_DROPPED: dict[int, str | None] = {c: None for c in (*range(0x20), *range(0x7F, 0xA0), *map(ord, _BIDI)) if c not in (0x09, 0x0A)}
_DROPPED |= {0x2028: "\n", 0x2029: "\n"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def terminal_safe(text: str) -> str:
    """`text` without escape sequences, control characters (but tab and newline), text-direction overrides and lone surrogates.

    A carriage return becomes a newline: what would have overwritten a line stands below it.
    """
    text = _ESCAPES.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_DROPPED)


def one_line(text: str, limit: int = 240) -> str:
    """`terminal_safe`, its lines joined, cut after `limit` characters. Blanks inside a line stay: they may be what it speaks of."""
    text = " ".join(part for line in terminal_safe(text).split("\n") if (part := line.replace("\t", " ").strip()))
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def seconds(value: float) -> str:
    """A duration for people: `0.4 s`, `31 s`, `4:09`, `1:02:30`."""
    if value < 10:
        return f"{value:.1f} s"
    return f"{round(value)} s" if round(value) < 60 else stopwatch(round(value))


def stopwatch(value: float) -> str:
    """A running time that keeps its width: `0:07`, `12:40`, `1:02:30`."""
    hours, rest = divmod(int(value), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def count(number: int, noun: str) -> str:
    """`1 call`, `1,204 calls`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def about(value: float) -> str:
    """A duration that is an estimate: `40 s`, `12 min`, `3.5 h`."""
    return f"{value:.0f} s" if value < 90 else f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def cost(calls: int, tokens: int, value: float) -> str:
    """`24 calls, 31k tokens, 12 min`; no time when it is 0."""
    many = f"{tokens / 1000:,.0f}k tokens" if tokens >= 10_000 else count(tokens, "token")
    return listed((count(calls, "call"), many, about(value) if value else ""))


def listed(parts: Iterable[str], joint: str = ", ") -> str:
    return joint.join(p for p in parts if p)


def gate_text(record: GateRecord) -> str:
    """`green · 12 of 12 tests pass · all steps passed`."""
    tests = record.tests
    passed = f"{len(record.passed)} of {count(len(tests), 'test')} pass" if tests else ""
    return listed((record.verdict.replace("_", " "), passed, one_line(record.reason)), " · ")


@singledispatch
def narrate(event: events.Event) -> Line | None:
    """The event in words, or None when it only moves counters."""
    return None


@narrate.register
def _(event: events.StageStarted) -> Line:
    why = one_line(event.why)
    return Line(event.at, event.stage, f"started: {why}" if why and why != NEVER else "started", "dim")


_ENDINGS: dict[str, Tone] = {"made": "good", "kept": "good", "held": "warn", "waiting": "warn", "stopped": "warn", "failed": "bad"}


@narrate.register
def _(event: events.StageFinished) -> Line:
    took = f" in {seconds(event.seconds)}" if event.status == "made" else ""
    reason = one_line(event.reason, 400)
    return Line(event.at, event.stage, f"{event.status}{took}" + (f": {reason}" if reason else ""), _ENDINGS[event.status])


@narrate.register
def _(event: events.CallStarted) -> Line | None:
    if not event.left_out:
        return None
    return Line(event.at, event.stage, f"{one_line(event.label)}: left out to fit the window: {', '.join(event.left_out)}", "warn")


@narrate.register
def _(event: events.CallFinished) -> Line | None:
    if event.outcome == "ok":
        return None
    return Line(event.at, event.stage, f"no answer from {one_line(event.model)} ({event.outcome}): {one_line(event.detail)}", "warn")


@narrate.register
def _(event: events.ReplyRefused) -> Line:
    return Line(event.at, event.stage, f"reply refused: {one_line(event.rule)}", "warn")


@narrate.register
def _(event: events.EditRefused) -> Line:
    return Line(event.at, event.stage, f"edit refused (attempt {event.attempt}): {one_line('; '.join(event.reasons))}", "warn")


@narrate.register
def _(event: events.GateRan) -> Line | None:
    """The gate on the whole. A milestone's gate counts tests that wait for others: there the attempt tells what it means."""
    if event.attempt or ":" in event.stage:
        return None
    return Line(event.at, event.stage, f"gate: {gate_text(event.record)}", _tone(event.record.verdict))


@narrate.register
def _(event: events.AttemptFinished) -> Line | None:
    if event.outcome == "refused":
        return None
    reason = f": {one_line(event.reason)}" if event.reason else ""
    kept = ", kept" if event.best else ", taken back" if event.tree else ""
    return Line(event.at, event.stage, f"attempt {event.attempt} ({event.asked}): {event.outcome}{kept}{reason}", _tone(event.outcome))


def _tone(outcome: str) -> Tone:
    return "good" if outcome == "green" else "bad" if outcome == "red" else "warn"


@narrate.register
def _(event: events.Forecast) -> Line:
    over = f"more than is left of {', '.join(event.over)}" if event.over else ""
    text = f"forecast: {cost(event.calls, event.tokens, event.seconds)} ({one_line(event.basis)})"
    return Line(event.at, "", listed((text, over), "; "), "warn" if over else "dim")


@narrate.register
def _(event: events.Note) -> Line:
    return Line(event.at, event.stage, one_line(event.text, 400))
