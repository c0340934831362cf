"""Hard caps over the life of a run, counted from its events alone, so that a restart agrees with itself."""

from __future__ import annotations

import threading
import time

from nightmill.config import Budgets
from nightmill.errors import OutOfBudget
from nightmill.run.events import Event, EventLog


class Budget:
    """Counts calls that reached a model, their tokens, and the minutes in which a run was at work."""

    def __init__(self, caps: Budgets, events: EventLog) -> None:
        self.caps = caps
        self.calls = 0
        self.tokens = 0
        self.seconds = 0.0
        self.keys: set[str] = set()
        self._lock = threading.Lock()
        self._reserved = 0
        self._in_flight = 0
        self._since = time.time()
        started: float | None = None
        last = 0.0
        for event in events:
            self._count(event)
            if event.kind == "run_started":
                self.seconds += last - started if started is not None else 0.0
                started = event.at
            elif event.kind == "run_ended" and started is not None:
                self.seconds += event.at - started
                started = None
            last = event.at
        if started is not None:
            self.seconds += last - started
        events.subscribe(self._count)

    def _count(self, event: Event) -> None:
        if event.kind != "call_finished":
            return
        with self._lock:
            if event.outcome == "ok":
                self.keys.add(event.key)
            if not event.replayed:
                self.calls += 1
                self.tokens += (event.prompt_tokens or 0) + (event.completion_tokens or 0)

    @property
    def minutes(self) -> float:
        return (self.seconds + max(0.0, time.time() - self._since)) / 60

    def reserve(self, tokens: int) -> None:
        """Takes a place for one call of up to `tokens` tokens; `release` gives it back. Raises OutOfBudget naming the cap."""
        caps = self.caps
        with self._lock:
            if caps.calls is not None and self.calls + self._in_flight >= caps.calls:
                raise OutOfBudget(f"budget used up: {self.calls} of {caps.calls} calls; raise budgets.calls in run.yaml")
            if caps.tokens is not None and self.tokens + self._reserved + tokens > caps.tokens:
                spent = f"{self.tokens} of {caps.tokens} tokens, and the next call may take {tokens}"
                raise OutOfBudget(f"budget used up: {spent}; raise budgets.tokens in run.yaml")
            if caps.minutes is not None and self.minutes >= caps.minutes:
                raise OutOfBudget(f"budget used up: {self.minutes:.1f} of {caps.minutes:g} minutes; raise budgets.minutes in run.yaml")
            self._reserved += tokens
            self._in_flight += 1

    def release(self, tokens: int) -> None:
        with self._lock:
            self._reserved -= tokens
            self._in_flight -= 1
