"""How fast each model reads and writes, measured from the calls of a run: for timeouts and forecasts."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from nightmill.run.events import CallFinished, CallStarted, Event

RECENT = 20
"""Samples kept per model: an hour or two of work, so that another quantization or a busier machine is noticed the same night."""

LEAST_PROMPT = 64
"""Evaluated tokens of a call whose prefill is measured: in a shorter one the connection and the first decoding step weigh too much."""

LEAST_ANSWER = 16
"""The same for decoding."""

WORST_PREFILL = 10.0
"""Tokens per second assumed of a server that was never measured: a 7 B model on two old CPU cores reads about 10, so that 30,000 tokens
may take 50 minutes."""

WORST_DECODE = 0.2
"""The same for writing: 5 s a token is what a model larger than the memory does from a fast disk."""

FIRST_FLOOR_S = 180.0
"""Waiting that is not the prefill of this prompt: an answer of another slot or queue place (4,096 tokens at 25 per second) comes first."""

IDLE_FLOOR_S = 60.0
"""Between two tokens, beside what is computed: a swapped-out process, a laptop that slept, a proxy that gathers."""

BATCH = 2048
"""Tokens of somebody else's prompt that llama-server computes between two of our tokens (its default `-b`)."""

PIECE = 16
"""Tokens that a server may gather before it sends them."""

LONGEST_QUEUE_S = 3600.0
"""For the answers of other calls: beyond an hour, a server that is stuck is likelier than one that is busy."""

SAFETY = 3.0
"""A measured speed may be this many times too high for the next call: attention over a prompt ten times as long, other slots, heat."""

Model = tuple[str, str]
"""Provider and model, as run.yaml names them."""


@dataclass(frozen=True)
class Speed:
    """Tokens per second; None is unmeasured. `prefill` and `decode` are typical (medians), `slow_prefill` and `slow_decode` the lower
    quartiles. Only tokens that were really computed count, so that a prompt cache makes nothing look fast."""

    prefill: float | None = None
    decode: float | None = None
    slow_prefill: float | None = None
    slow_decode: float | None = None


UNMEASURED = Speed()


@dataclass
class _Samples:
    prefill: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    decode: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def speed(self) -> Speed:
        return Speed(_median(self.prefill), _median(self.decode), _quartile(self.prefill), _quartile(self.decode))


class Speeds:
    """A fold over events, safe between threads. `remembered` are speeds of earlier runs: they hold for what this run has not measured."""

    def __init__(self, events: Iterable[Event] = (), remembered: Mapping[Model, Speed] | None = None) -> None:
        self._lock = threading.Lock()
        self._samples: dict[Model, _Samples] = {}
        self._asked: dict[str, str] = {}
        self._remembered = dict(remembered or {})
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Subscribe this to the EventLog."""
        if isinstance(event, CallStarted):
            with self._lock:
                self._asked[event.key] = event.model
        if not isinstance(event, CallFinished) or event.replayed:
            return
        prefill, decode = measured(event)
        with self._lock:
            model = self._asked.pop(event.key, "") or event.named or event.model
            samples = self._samples.setdefault((event.provider, model), _Samples())
            if prefill is not None:
                samples.prefill.append(prefill)
            if decode is not None:
                samples.decode.append(decode)

    def of(self, provider: str, model: str) -> Speed:
        """Measured in this run, else remembered, each of the two for itself."""
        with self._lock:
            now = self._samples.get((provider, model), _Samples()).speed
        before = self._remembered.get((provider, model), UNMEASURED)
        reading = now if now.prefill is not None else before
        writing = now if now.decode is not None else before
        return Speed(reading.prefill, writing.decode, reading.slow_prefill, writing.slow_decode)

    def measured(self) -> dict[Model, Speed]:
        """Of the models of which this run has measured something."""
        with self._lock:
            models = [model for model, samples in self._samples.items() if samples.prefill or samples.decode]
        return {model: self.of(*model) for model in models}


def measured(event: CallFinished) -> tuple[float | None, float | None]:
    """Prefill and decode speed of one call in tokens per second; None where it was too short or its server told too little."""
    prefill = decode = None
    first = event.first_token_s
    if first is None or not 0 < first < math.inf:
        return None, None
    evaluated = event.evaluated_tokens or 0
    if evaluated >= LEAST_PROMPT:
        prefill = evaluated / first
    written, took = (event.completion_tokens or 0) - 1, event.seconds - first
    if written >= LEAST_ANSWER and 0 < took < math.inf:
        decode = written / took
    return prefill, decode


def patience(prompt_tokens: int, speed: Speed = UNMEASURED, ahead_tokens: int = 0) -> tuple[float, float]:
    """`first_token_s` and `idle_s` for a call with this prompt. Generous: a slow answer cut off is lost, a dead server only noticed late.

    `ahead_tokens` are those that other calls to the same server may still write: it may take them first.
    """
    reading = speed.slow_prefill / SAFETY if speed.slow_prefill else WORST_PREFILL
    writing = speed.slow_decode / SAFETY if speed.slow_decode else WORST_DECODE
    first = FIRST_FLOOR_S + max(0, prompt_tokens) / reading + min(LONGEST_QUEUE_S, max(0, ahead_tokens) / writing)
    return first, IDLE_FLOOR_S + BATCH / reading + PIECE / writing


def _median(samples: Iterable[float]) -> float | None:
    values = list(samples)
    return median(values) if values else None


def _quartile(samples: Iterable[float]) -> float | None:
    """The lower one: of four samples the second smallest, of one that one."""
    values = sorted(samples)
    return values[len(values) // 4] if values else None
