"""What a run has spent, as a fold over its events: the same events give the same figures, in one piece, in many, or after a kill."""

from __future__ import annotations

from dataclasses import dataclass, field

from nightmill.run.events import AttemptFinished, CallFinished, CallStarted, Event, RunEnded, RunStarted, StageStarted

NO_CALL = frozenset({"unreachable", "loading", "rate_limited"})
"""Outcomes after which the same is asked again every few seconds: no model was at work, and waiting must not use up a cap on calls."""

NO_WORK = NO_CALL | {"unauthorized", "no_quota", "no_model", "server_error", "bad_request", "too_large", "html", "garbage"}
"""Outcomes with which a server turned a request away before any token was computed."""


CHARS_PER_TOKEN = 4
"""The usual rule of thumb for English and code: for what an interrupted call had received, which nobody counted."""


@dataclass
class _Invocation:
    """Between a run_started and the last event seen of it."""

    at: float
    up: float
    last_at: float
    last_up: float

    @property
    def seconds(self) -> float:
        """By the clock that does not jump; logs from before it existed have wall-clock times only."""
        return max(0.0, self.last_up - self.up if self.last_up > 0 else self.last_at - self.at)


@dataclass
class Account:
    """Not safe between threads. `add` every event once, in the order of the log."""

    calls: int = 0
    """That reached a model; replays of stored replies cost nothing."""
    tokens: int = 0
    money: float = 0.0
    attempts: int = 0
    keys: set[str] = field(default_factory=set)
    """Of the requests that have a finished reply."""
    night: float | None = None
    """Unix time at which the present night began: the first run_started after a run that ended properly. None between two nights."""
    _worked: float = 0.0
    _worked_tonight: float = 0.0
    _invocation: _Invocation | None = None
    _open: dict[tuple[str, str, str], CallStarted] = field(default_factory=dict)
    _lost: dict[str, CallStarted] = field(default_factory=dict)
    _received: dict[str, int] = field(default_factory=dict)
    _asked: dict[str, set[str]] = field(default_factory=dict)
    _tried: dict[str, set[str]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """In which a process was at work; time between two invocations does not count."""
        return self._worked + self._current

    @property
    def seconds_tonight(self) -> float:
        return self._worked_tonight + self._current

    @property
    def _current(self) -> float:
        return self._invocation.seconds if self._invocation else 0.0

    def add(self, event: Event) -> None:
        if self._invocation and not isinstance(event, RunStarted):
            self._invocation.last_at = event.at
            self._invocation.last_up = max(self._invocation.last_up, event.up)
        if isinstance(event, RunStarted):
            self._begin(event)
        elif isinstance(event, RunEnded):
            self.bury()
            self._close()
            self.night = None
        elif isinstance(event, StageStarted):
            self._asked[event.stage] = set()
        elif isinstance(event, CallStarted):
            place = (event.stage, event.label, event.key)
            self._went_on(event)
            self._bury(self._open.pop(place, None))
            self._open[place] = event
        elif isinstance(event, CallFinished):
            self._finished(event)
        elif isinstance(event, AttemptFinished):
            self._attempted(event)

    def bury(self) -> None:
        """Counts calls that nobody will finish: to be told when the process that made them is gone. A server has read the prompt."""
        for started in self._open.values():
            self._bury(started)
        self._open.clear()

    def _bury(self, started: CallStarted | None) -> None:
        if started:
            self.calls += 1
            self.tokens += max(0, started.prompt_tokens)
            self.money += max(0.0, started.cost)
            self._lost[started.key] = started

    def _went_on(self, event: CallStarted) -> None:
        """What a killed call had received of its answer was written too, as far as the next one goes on from it."""
        if event.key in self._lost:
            received = event.resumed // CHARS_PER_TOKEN
            self.tokens += max(0, received - self._received.get(event.key, 0))
            self._received[event.key] = max(received, self._received.get(event.key, 0))

    def _begin(self, event: RunStarted) -> None:
        self.bury()
        killed = self._invocation is not None
        self._close()
        if not killed or self.night is None:
            self.night, self._worked_tonight = event.at, 0.0
        self._invocation = _Invocation(event.at, event.up, event.at, event.up)

    def _close(self) -> None:
        self._worked += self._current
        self._worked_tonight += self._current
        self._invocation = None

    def _finished(self, event: CallFinished) -> None:
        started = self._open.pop((event.stage, event.label, event.key), None)
        if event.outcome == "ok":
            self.keys.add(event.key)
            self._asked.setdefault(event.stage, set()).add(event.key)
        if event.replayed:
            return
        if started is None and (lost := self._lost.pop(event.key, None)):  # killed after the reply was stored: counted in part already
            self.money += max(0.0, event.cost - lost.cost)
            self.tokens += max(0, tokens_of(event, lost) - max(0, lost.prompt_tokens))
        else:
            self.calls += event.outcome not in NO_CALL
            self.money += max(0.0, event.cost)
            self.tokens += tokens_of(event, started)

    def _attempted(self, event: AttemptFinished) -> None:
        """An attempt whose calls were all part of counted ones is a replay after a restart."""
        asked = self._asked.pop(event.stage, set())
        tried = self._tried.setdefault(event.stage, set())
        self.attempts += bool(asked - tried) and event.outcome != "no verdict"
        tried |= asked


def tokens_of(event: CallFinished, started: CallStarted | None) -> int:
    return sum(used(event, started))


def used(event: CallFinished, started: CallStarted | None) -> tuple[int, int]:
    """Prompt and completion tokens of a call: the server's own counts; where it gave none, what was reserved for it.

    Of the reserve for the answer a half counts: an answer that comes to its own end takes anything between none and all of it.
    One that was cut off at the reserve took all of it; a request that was turned away took nothing.
    """
    prompt, answer = event.prompt_tokens, event.completion_tokens
    if prompt is None and answer is None and event.outcome in NO_WORK:
        return 0, 0
    if prompt is None:
        prompt = started.prompt_tokens if started else 0
    if answer is None:
        answer = started.max_tokens // (1 if event.outcome == "length" else 2) if started else 0
    return max(0, prompt), max(0, answer)
