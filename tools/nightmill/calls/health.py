"""How each backend (provider and model) has been doing: a pure fold over events, so that a restart and another process agree."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from nightmill.providers.base import Kind
from nightmill.run.events import CallFinished, CallStarted, Event, ReplyRefused, WindowProbed

BACKOFF_FACTOR, BACKOFF_STEP, BACKOFF_CAP = 2.0, 1.0, 64.0
"""A rate limit: backoff × 2 + 1, never above the cap (DESIGN 7)."""
BACKOFF_HALF_LIFE_S = 10.0
"""By the clock (DESIGN 7): from the cap to below 1 in a minute."""
SUCCESS_FACTOR = 0.5
"""A success halves the backoff (DESIGN 7)."""
ERROR_HALF_LIFE_S = 30.0
"""A sample counts half after this time (DESIGN 7)."""
LEAST_SAMPLES = 5.0
"""The error rate's denominator is at least this (DESIGN 7): fewer samples are filled up with successes, one fresh failure reads 0.2."""
QUALITY_PADDING = 5
"""Replies that kept their format, assumed of a model nobody asked yet. A choice of ours: the same caution as for errors."""
LATENCIES = 50
"""Successful calls whose seconds make the median. A choice of ours: a phase of the work, not the whole night."""


@dataclass(frozen=True)
class Effect:
    """What the end of a call says about the backend. None: nothing."""

    failed: bool | None
    """A sample of the error rate."""
    kept: bool | None = None
    """A sample of quality: whether it gave a whole reply of its own accord."""
    limited: bool = False
    """Raises the backoff."""


_FINE = Effect(failed=False, kept=True)
_POOR = Effect(failed=False, kept=False)
_DOWN = Effect(failed=True)
_SILENT = Effect(failed=None)

EFFECTS: Mapping[Kind, Effect] = {
    "unreachable": _DOWN,
    "unauthorized": _DOWN,
    "no_quota": Effect(failed=True, limited=True),
    "no_model": _DOWN,
    "rate_limited": Effect(failed=None, limited=True),  # busy, not broken: it has a term of its own
    "loading": _DOWN,  # it cannot answer now; forgotten soon after it can
    "server_error": _DOWN,
    "stream_error": _DOWN,
    "bad_request": _DOWN,  # this server does not take what we send; another one may
    "too_large": _SILENT,  # a prompt that was fitted to a wrong window: a setting
    "truncated": _DOWN,  # a server that drops a part of the prompt in silence cannot be trusted with one
    "dropped": _DOWN,
    "idle": _DOWN,
    "length": Effect(failed=False),  # it served; `max_tokens` is a setting
    "empty": _POOR,  # from here on the server works and the model does not
    "reasoning_only": _POOR,
    "refusal": _POOR,
    "loop": _POOR,
    "restarted": _SILENT,  # the answer is asked for as a whole instead
    "html": _DOWN,
    "bad_utf8": _DOWN,
    "garbage": _DOWN,
}
"""Kind of a NoVerdict → what it says. Each served answer, a poor one included, halves the backoff."""

_BY_OUTCOME: dict[str, Effect] = {"ok": _FINE}
_BY_OUTCOME.update((str(kind), effect) for kind, effect in EFFECTS.items())


@dataclass(frozen=True)
class Trouble:
    """The last call that ended badly. `at` is Unix time."""

    kind: str
    detail: str
    at: float


@dataclass(frozen=True)
class Vitals:
    """A backend at one moment. Replayed calls are counted nowhere."""

    provider: str
    model: str
    """As run.yaml names it, whatever name the server answers with."""
    calls: int = 0
    latency_s: float | None = None
    """Median seconds of the last LATENCIES successful calls; None before the first."""
    error_rate: float = 0.0
    backoff: float = 0.0
    quality: float = 1.0
    """Share of replies that kept their format, filled up with QUALITY_PADDING that did."""
    last_used: float | None = None
    """Unix time."""
    turn: int = 0
    """Rises with each use of any backend; 0 when this one was never used. Tells who waited longest, whatever the clock does."""
    window: int | None = None
    """As last used or probed, in tokens."""
    trouble: Trouble | None = None


@dataclass
class _Track:
    """The fold of one backend. `failures`, `samples` and `backoff` are as of `at`."""

    at: float
    failures: float = 0.0
    samples: float = 0.0
    backoff: float = 0.0
    calls: int = 0
    answered: int = 0
    broken: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))
    last_used: float | None = None
    turn: int = 0
    window: int | None = None
    trouble: Trouble | None = None

    def decayed(self, at: float) -> tuple[float, float, float]:
        """(failures, samples, backoff) at a later moment; an earlier one, by a clock that was set back, counts as no time passed."""
        age = max(0.0, at - self.at)
        weight = 0.5 ** (age / ERROR_HALF_LIFE_S)
        return self.failures * weight, self.samples * weight, self.backoff * 0.5 ** (age / BACKOFF_HALF_LIFE_S)

    def apply(self, event: CallFinished) -> None:
        effect = _BY_OUTCOME.get(event.outcome, _SILENT)
        self.failures, self.samples, self.backoff = self.decayed(event.at)
        self.at = event.at
        self.calls += 1
        if effect.failed is not None:
            self.samples += 1
            self.failures += effect.failed
        if effect.limited:
            self.backoff = min(BACKOFF_CAP, self.backoff * BACKOFF_FACTOR + BACKOFF_STEP)
        elif effect.failed is False:
            self.backoff *= SUCCESS_FACTOR
        if effect.kept is not None:
            self.answered += 1
            self.broken += not effect.kept
        if event.outcome == "ok":
            self.seconds.append(event.seconds)
        else:
            self.trouble = Trouble(event.outcome, event.detail, event.at)


class Health:
    """Subscribe `add` to the EventLog. Safe between threads. `now` gives Unix time in seconds, as in the events' `at`."""

    def __init__(self, events: Iterable[Event] = (), now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._tracks: dict[tuple[str, str], _Track] = {}
        self._asked: dict[str, str] = {}
        """Key of a call → the model it asked for."""
        self._unread: dict[str, _Track] = {}
        """Key of a call → who answered it, until its reply is refused or comes from the store."""
        self._calls: Counter[str] = Counter()
        self._turn = 0
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        with self._lock:
            for track in self._tracks.values():  # the clock was set back: what happened "later" happened just now
                track.at = min(track.at, event.at)
            if isinstance(event, CallStarted):
                self._asked[event.key] = event.model
                track = self._used(event.provider, event.model, event.at)
                track.window = event.window or track.window
            elif isinstance(event, CallFinished):
                self._finished(event)
            elif isinstance(event, ReplyRefused) and (answered := self._unread.pop(event.key, None)):
                answered.broken += 1
            elif isinstance(event, WindowProbed):
                self._track(event.provider, event.model, event.at).window = event.window

    def of(self, provider: str, model: str) -> Vitals:
        """`model` as run.yaml names it. A backend that was never asked has no failures and full quality."""
        with self._lock:
            track = self._tracks.get((provider, model))
            if track is None:
                return Vitals(provider, model)
            failures, samples, backoff = track.decayed(self._now())
            return Vitals(
                provider,
                model,
                calls=track.calls,
                latency_s=median(track.seconds) if track.seconds else None,
                error_rate=failures / max(LEAST_SAMPLES, samples),
                backoff=backoff,
                quality=(track.answered - track.broken + QUALITY_PADDING) / (track.answered + QUALITY_PADDING),
                last_used=track.last_used,
                turn=track.turn,
                window=track.window,
                trouble=track.trouble,
            )

    def calls(self, role: str) -> int:
        """How many calls for a role have ended."""
        with self._lock:
            return self._calls[role]

    def _finished(self, event: CallFinished) -> None:
        if event.replayed:
            self._unread.pop(event.key, None)
            return
        track = self._used(event.provider, event.named or self._asked.get(event.key, event.model), event.at)
        track.apply(event)
        self._calls[event.role] += 1
        if event.outcome == "ok":
            self._unread[event.key] = track

    def _used(self, provider: str, model: str, at: float) -> _Track:
        track = self._track(provider, model, at)
        self._turn += 1
        track.last_used, track.turn = at, self._turn
        return track

    def _track(self, provider: str, model: str, at: float) -> _Track:
        return self._tracks.setdefault((provider, model), _Track(at))
