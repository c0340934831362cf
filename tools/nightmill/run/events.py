"""Append-only facts of a run (`.nightmill/events.jsonl`). Counters, budgets, deviations and reports derive from these alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nightmill.gate.records import GateRecord
from nightmill.redact import SHAPES_ONLY, Redactor
from nightmill.run.atomic import append_line


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    at: float = Field(default_factory=time.time)
    """Unix time, seconds; a clock may jump."""
    up: float = 0.0
    """Seconds since the process that wrote it opened the log, by a clock that does not jump. Set by EventLog."""


class RunStarted(_Event):
    kind: Literal["run_started"] = "run_started"
    pid: int
    version: str
    command: str


class RunEnded(_Event):
    kind: Literal["run_ended"] = "run_ended"
    exit: int
    word: str
    reason: str = ""


class StageStarted(_Event):
    kind: Literal["stage_started"] = "stage_started"
    stage: str
    why: str = ""
    """The facts that differ, in one line."""


class StageFinished(_Event):
    kind: Literal["stage_finished"] = "stage_finished"
    stage: str
    status: Literal["made", "kept", "held", "failed", "waiting", "stopped"]
    reason: str = ""
    error: str = ""
    """Class of the error that ended it (nightmill.errors); "" when none did."""
    seconds: float = 0.0


class CallStarted(_Event):
    kind: Literal["call_started"] = "call_started"
    stage: str
    label: str
    key: str
    provider: str
    model: str
    prompt_tokens: int
    """Counted before sending, by the server's tokenizer or by the stated bound."""
    max_tokens: int = 0
    """Reserved for the answer and its reasoning."""
    window: int | None = None
    left_out: tuple[str, ...] = ()
    """Sections that did not fit."""
    resumed: int = 0
    """Characters of an interrupted answer that this call goes on from."""
    cost: float = 0.0
    """Money that reading the prompt costs, in the currency of the models' `price`."""


class CallFinished(_Event):
    kind: Literal["call_finished"] = "call_finished"
    stage: str
    label: str
    key: str
    provider: str
    model: str
    """The model that answered."""
    named: str = ""
    """The model that was asked for, where another one answered."""
    outcome: str
    """`ok`, or the kind of a NoVerdict."""
    detail: str = ""
    replayed: bool = False
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    evaluated_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float = 0.0
    first_token_s: float | None = None
    cost: float = 0.0
    """Money, in the currency of the models' `price`."""
    resumed: int = 0
    next: str = ""
    """What is done after a call without a verdict, one line."""
    remedy: str = ""
    """What the person can do about it, where the provider knows better than the table of outcomes."""
    role: str = ""
    """Who was asked for, as in run.yaml's `models`."""


class ReplyRefused(_Event):
    kind: Literal["reply_refused"] = "reply_refused"
    stage: str
    label: str
    key: str
    rule: str


class EditRefused(_Event):
    kind: Literal["edit_refused"] = "edit_refused"
    stage: str
    attempt: int
    reasons: tuple[str, ...]


class GateRan(_Event):
    kind: Literal["gate_ran"] = "gate_ran"
    stage: str
    attempt: int
    record: GateRecord


class AttemptFinished(_Event):
    kind: Literal["attempt_finished"] = "attempt_finished"
    stage: str
    attempt: int
    asked: Literal["rewrite", "patch"]
    differs: str
    """In what this attempt differed from the one before."""
    outcome: str
    """`green`, `red`, `incomplete`, `refused`, `unparseable`, `no verdict`."""
    charged: bool
    passed: int = 0
    owed: int = 0
    """Tests that count for this milestone: all but those that wait for others."""
    diagnostics: int = 0
    reason: str = ""
    """What the judgement on this milestone says, one line."""
    tree: str = ""
    best: bool = False


class Finding(_Event):
    kind: Literal["finding"] = "finding"
    stage: str
    source: str
    """The agent (skill) or check that noticed it."""
    verdict: str = ""
    where: str = ""
    """A clause (`C3`), a row (`T4`) or `file:line`."""
    text: str


class Forecast(_Event):
    """What this invocation will take for the stages that are to be made. `seconds` is 0 while no speed was ever measured."""

    kind: Literal["forecast"] = "forecast"
    calls: int
    tokens: int
    seconds: float
    basis: str
    """Where the figures come from, one line."""
    over: tuple[str, ...] = ()
    """Caps that it exceeds, as they are set: `budgets.minutes = 30`."""


class WindowProbed(_Event):
    """A context window that was measured because the server does not tell it."""

    kind: Literal["window_probed"] = "window_probed"
    provider: str
    model: str
    window: int


class Note(_Event):
    """Something the person may want to know, with no consequence."""

    kind: Literal["note"] = "note"
    stage: str = ""
    text: str


Event = Annotated[
    RunStarted
    | RunEnded
    | StageStarted
    | StageFinished
    | CallStarted
    | CallFinished
    | ReplyRefused
    | EditRefused
    | GateRan
    | AttemptFinished
    | Finding
    | Forecast
    | WindowProbed
    | Note,
    Field(discriminator="kind"),
]
_ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)


class EventLog:
    """Appends events to a JSONL file and tells subscribers, without secrets.

    Safe between threads; one process at a time (the run's lock).
    """

    def __init__(self, path: Path, redactor: Redactor = SHAPES_ONLY) -> None:
        self.path = path
        self._redactor = redactor
        self._lock = threading.Lock()
        self._subscribers: list[Callable[[Event], None]] = []
        self._opened = time.monotonic()

    def subscribe(self, callback: Callable[[Event], None]) -> None:
        self._subscribers.append(callback)

    def emit(self, event: Event) -> None:
        event = self._redacted(event.model_copy(update={"up": round(time.monotonic() - self._opened, 3)}))
        line = event.model_dump_json(exclude_defaults=False).encode() + b"\n"
        with self._lock:
            append_line(self.path, line, sync=False)
        for callback in self._subscribers:
            callback(event)

    def _redacted(self, event: Event) -> Event:
        fields = event.model_dump()
        redacted = self._redactor.strings(fields)
        return event if redacted == fields else _ADAPTER.validate_python(redacted)

    def __iter__(self) -> Iterator[Event]:
        """Every readable event, oldest first; a torn or foreign line is passed over."""
        yield from read_events(self.path)


def read_events(path: Path) -> Iterator[Event]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n"):
        if event := parse_event(line):
            yield event


def parse_event(line: bytes) -> Event | None:
    """One line of the file; None when it is empty, torn or foreign."""
    try:
        return _ADAPTER.validate_json(line) if line.strip() else None
    except ValidationError:
        return None
