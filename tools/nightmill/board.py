"""The state behind the live display: stages, running calls and totals of this invocation. Knows no terminal."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from nightmill.calls.account import Account
from nightmill.lines import Line, StageLine, State, cost, count, listed, one_line, seconds
from nightmill.run import events

SILENT_S = 5.0
"""A stream without a token for this long is said to be silent."""


@dataclass
class RunningCall:
    """One call that streams. Times are of the board's clock, in seconds."""

    stage: str
    label: str
    model: str
    prompt_tokens: int
    started: float
    first: float = 0.0
    last: float = 0.0
    pieces: int = 0
    characters: int = 0

    @property
    def tokens(self) -> int:
        """An estimate: most servers send a token a piece; where pieces are larger, four characters count as a token."""
        return max(self.pieces, self.characters // 4)

    @property
    def name(self) -> str:
        """The label without the stage's name, which stands above it."""
        return one_line(self.label.removeprefix(self.stage), 24) or "call"

    def text(self, now: float) -> str:
        if not self.pieces:
            return f"{self.model} · reading {count(self.prompt_tokens, 'token')}"
        parts = [self.model, f"~{count(self.tokens, 'token')}"]
        if now - self.first >= 1:
            parts.append(f"{(self.tokens - 1) / (now - self.first):.1f} tokens/s")
        if now - self.last > SILENT_S:
            parts.append(f"silent for {seconds(now - self.last)}")
        return listed(parts, " · ")


@dataclass(frozen=True)
class Row:
    """A line of the live display: a stage, or a call (`state` None) below its stage."""

    name: str
    text: str
    state: State | None = None
    elapsed: float | None = None


@dataclass(frozen=True)
class View:
    rows: tuple[Row, ...]
    hidden: str
    """What did not fit, `9 fresh, 3 stale`."""
    footer: str


_SHOW_FIRST: tuple[State, ...] = ("running", "failed", "held", "waiting", "blocked", "stale", "made", "kept", "fresh")
_AFTER: dict[str, State] = {"made": "made", "kept": "kept", "held": "held", "failed": "failed", "waiting": "waiting", "stopped": "stale"}


@dataclass
class Board:
    """Safe between threads: every method takes the board's lock and calls nothing outside."""

    clock: Callable[[], float] = time.monotonic
    stages: dict[str, StageLine] = field(default_factory=dict)
    calls: dict[tuple[str, str], RunningCall] = field(default_factory=dict)
    spent: Account = field(default_factory=Account)
    """Of this invocation."""
    forecast: events.Forecast | None = None
    findings: Counter[str] = field(default_factory=Counter)
    _since: dict[str, float] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def plan(self, lines: Sequence[StageLine]) -> None:
        """The stages as they are now known, in order. What this invocation made stays `made`, what runs stays `running`."""
        with self._lock:
            before = self.stages
            self.stages = {line.name: line for line in lines}
            for name, line in self.stages.items():
                old = before.get(name)
                if old and (old.state == "running" or (old.state == "made" and line.state == "fresh")):
                    self.stages[name] = old

    def apply(self, event: events.Event) -> None:
        with self._lock:
            self.spent.add(event)
            if isinstance(event, events.StageStarted):
                self._since[event.stage] = self.clock()
                self.findings[event.stage] = 0
                self._set(event.stage, "running", event.why)
            elif isinstance(event, events.StageFinished):
                self.calls = {key: call for key, call in self.calls.items() if call.stage != event.stage}
                self._set(event.stage, _AFTER[event.status], event.reason)
            elif isinstance(event, events.CallStarted):
                model = one_line(event.model, 40)
                self.calls[event.stage, event.label] = RunningCall(event.stage, event.label, model, event.prompt_tokens, self.clock())
            elif isinstance(event, events.CallFinished):
                self.calls.pop((event.stage, event.label), None)
            elif isinstance(event, events.AttemptFinished):
                self._set(event.stage, "running", f"attempt {event.attempt} {event.outcome}, {event.passed} of {event.owed} tests pass")
            elif isinstance(event, events.Finding):
                self.findings[event.stage] += 1
            elif isinstance(event, events.Forecast):
                self.forecast = event

    def _set(self, stage: str, state: State, why: str) -> None:
        line = self.stages.get(stage, StageLine(stage, "", state))
        self.stages[stage] = replace(line, state=state, why=one_line(why))

    def tokens(self, stage: str, label: str, text: str) -> None:
        """A streamed piece; one that belongs to no running call is passed over."""
        with self._lock:
            call = self.calls.get((stage, label))
            if call is None:
                return
            call.last = self.clock()
            call.first = call.first or call.last
            call.pieces += 1
            call.characters += len(text)

    def view(self, rows: int) -> View:
        """What to show in `rows` lines, the footer not counted; the least interesting stages give way first."""
        with self._lock:
            now = self.clock()
            shown, hidden = self._fitting(rows - len(self.calls))
            out: list[Row] = []
            for line in shown:
                running = line.state == "running"
                out.append(Row(line.name, line.why or line.doc, line.state, now - self._since.get(line.name, now) if running else None))
                mine = [call for call in self.calls.values() if call.stage == line.name]
                out += [Row(call.name, call.text(now), None, now - call.started) for call in mine]
            return View(tuple(out), hidden, self.totals())

    def name_width(self) -> int:
        with self._lock:
            return max(map(len, self.stages), default=0)

    def _fitting(self, rows: int) -> tuple[list[StageLine], str]:
        lines = list(self.stages.values())
        if len(lines) <= rows:
            return lines, ""
        ranked = sorted(range(len(lines)), key=lambda i: (_SHOW_FIRST.index(lines[i].state), i))
        kept = set(ranked[: max(rows - 1, 1)])
        states = Counter(line.state for i, line in enumerate(lines) if i not in kept)
        return [line for i, line in enumerate(lines) if i in kept], listed(f"{states[s]} {s}" for s in _SHOW_FIRST if states[s])

    def totals(self) -> str:
        """`4 made, 9 fresh · 12 calls · 48,211 tokens · 4:31`."""
        with self._lock:
            states = Counter(line.state for line in self.stages.values())
            ended: tuple[State, ...] = ("made", "kept", "fresh", "failed", "held", "waiting", "blocked", "stale")
            stages = listed(f"{states[s]} {s}" for s in ended if states[s])
            calls = count(self.spent.calls, "call") if self.spent.calls else ""
            spent = count(self.spent.tokens, "token") if self.spent.tokens else ""
            return listed((stages, calls, spent, seconds(self.clock() - self.began)), " · ")

    def ending(self, event: events.RunEnded) -> list[Line]:
        """The last words of a run: the outcome, then each stage that needs the person's attention."""
        with self._lock:
            worked = bool(self._since) or not self.stages
            if event.exit == 0:
                text = f"done: {self.totals()}" if worked else f"nothing to do: {count(len(self.stages), 'stage')} fresh"
                return [Line(event.at, "", text, "good"), *self._compared(event.at)]
            reason = one_line(event.reason, 400)
            head = f"{event.word} (exit {event.exit})" + (f": {reason}" if reason else "")
            lines = [Line(event.at, "", head, "warn" if event.exit in (75, 130) else "bad")]
            for line in self.stages.values():
                if line.state in ("failed", "held", "waiting", "blocked"):
                    why = one_line(line.why, 400)
                    lines.append(Line(event.at, line.name, f"{line.state}: {why}" if why else line.state, "warn"))
            return [*lines, Line(event.at, "", self.totals(), "dim"), *self._compared(event.at)]

    def _compared(self, at: float) -> list[Line]:
        """The forecast against what this invocation took."""
        told = self.forecast
        if told is None:
            return []
        took = cost(self.spent.calls, self.spent.tokens, max(self.clock() - self.began, 1))
        return [Line(at, "", f"forecast {cost(told.calls, told.tokens, told.seconds)}; took {took}", "dim")]
