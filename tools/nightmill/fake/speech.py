"""An answer as a model server gives it: a slot is waited for, the prompt evaluated, tokens written one after the other, and counted."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from nightmill.fake.answers import Raw, Recorded, Say
from nightmill.fake.settings import Settings
from nightmill.fake.slots import CHARS_PER_TOKEN, Slot, Slots, render, tokens

Step = bytes | float | Mapping[str, Any] | None
"""Bytes are sent as they are, a number is a pause in seconds, a mapping is an event, None breaks the connection."""
LONG_S = 3600.0
_QUEUE_S = 0.01
_EVENTS_PER_S = 50
"""Events per second at most when `decode_tps` is set: several tokens share one then."""


def raw_steps(raw: Raw) -> Generator[Step]:
    while True:
        for piece in raw.pieces:
            yield piece
            yield raw.delay
        if not raw.repeat:
            return


def continued(say: Say, prefix: str, *, echo: bool) -> Say:
    """What is left to say behind `prefix`; `say` as it is when that is not its beginning."""
    if not prefix or not say.text.startswith(prefix):
        return say
    return replace(say, text=say.text[len(prefix) :], think="", echo=prefix if echo else "")


def speak(say: Say, request: Recorded, slots: Slots, settings: Settings) -> Generator[Step]:
    """The steps of a chat answer. Close the iterator to give the slot back."""
    yield say.headers_after
    yield b": ok\n\n"
    prompt = render(request.messages, continues=settings.continues)
    limit = say.truncate or settings.truncate
    if limit is not None:
        prompt = prompt[-limit * CHARS_PER_TOKEN :]
    while (slot := slots.take(prompt)) is None:
        yield _QUEUE_S
    try:
        yield from _Speech(say, request, settings, slot, prompt, counted=settings.counts or limit is not None).steps()
    finally:
        slots.release(slot)


class _Speech:
    def __init__(self, say: Say, request: Recorded, settings: Settings, slot: Slot, prompt: str, *, counted: bool) -> None:
        self._say, self._request, self._settings, self._slot, self._prompt, self._counted = say, request, settings, slot, prompt, counted
        self._total = tokens(prompt)
        self._reused = min(slot.shared(prompt), self._total - 1)  # the last token is always evaluated
        self._written: list[str] = []
        self._prompt_s = self._decode_s = 0.0
        self._cut = False

    def steps(self) -> Iterator[Step]:
        started = time.monotonic()
        yield from self._prefill()
        yield from _silence(self._say.stall, self._say.pings)
        self._prompt_s = time.monotonic() - started
        try:
            yield from self._decode()
        finally:
            self._slot.held = self._prompt + "".join(self._written)
        self._decode_s = time.monotonic() - started - self._prompt_s
        yield from self._end()

    def _prefill(self) -> Iterator[Step]:
        settings, done = self._settings, self._reused
        started = time.monotonic()
        while done < self._total:
            batch = min(settings.batch, self._total - done)
            if settings.prefill_tps:
                yield batch / settings.prefill_tps
            done += batch
            self._slot.held = self._prompt[: done * CHARS_PER_TOKEN]
            if self._counted and self._request.wants("return_progress"):
                progress = {"total": self._total, "cache": self._reused, "processed": done}
                spent = {"time_ms": round(1000 * (time.monotonic() - started))}
                yield self._chunk({"role": "assistant", "content": None}) | {"prompt_progress": progress | spent}

    def _decode(self) -> Iterator[Step]:
        say = self._say
        if say.echo:
            yield self._chunk({"content": say.echo})
        room = self._room()
        yield from self._write("reasoning_content", say.think[:room])
        text = say.text[: None if room is None else max(0, room - len(say.think))]
        self._cut = len(text) < len(say.text) or (room is not None and room < len(say.think))
        end = min((n for n in (say.drop, say.hang) if n is not None), default=len(text))
        yield from self._write("content", text[:end])
        if say.hang is not None:
            yield from _silence(LONG_S, say.pings)
        if say.drop is not None:
            yield None

    def _write(self, name: str, text: str) -> Iterator[Step]:
        rate = self._settings.decode_tps
        each = max(1, round(rate / _EVENTS_PER_S)) if rate else 0
        size = each * CHARS_PER_TOKEN or self._say.chunk
        for start in range(0, len(text), size):
            if rate:
                yield each / rate
            piece = text[start : start + size]
            self._written.append(piece)
            yield self._chunk({name: piece})
            yield self._say.delay

    def _room(self) -> int | None:
        """Characters that may be written; None when nobody counts."""
        if not self._counted:
            return None
        body, window = self._request.body, self._settings.window
        rooms = [n for n in (body.get("max_tokens"), body.get("max_completion_tokens")) if isinstance(n, int) and n > 0]
        return min([*rooms, *([max(0, window - self._total)] if window else [])], default=1 << 20) * CHARS_PER_TOKEN

    def _end(self) -> Iterator[Step]:
        say = self._say
        if say.error is not None:
            yield {"error": say.error}
            return
        if say.finish is None:
            return
        yield self._chunk({}, "length" if self._cut else say.finish)
        usage, timings = say.usage, say.timings
        if self._counted:
            usage, timings = usage or self._usage(), timings or self._timings()
        statistics = {"choices": [], "model": self._model} | ({"usage": usage} if usage is not None else {})
        yield statistics | ({"timings": timings} if timings else {})
        if say.done:
            yield b"data: [DONE]\n\n"

    def _usage(self) -> Mapping[str, Any]:
        written = tokens("".join(self._written))
        details = {"prompt_tokens_details": {"cached_tokens": self._reused}}
        return {"prompt_tokens": self._total, "completion_tokens": written, "total_tokens": self._total + written} | details

    def _timings(self) -> Mapping[str, Any]:
        evaluated, written = self._total - self._reused, tokens("".join(self._written))
        return {
            "cache_n": self._reused,
            "prompt_n": evaluated,
            "prompt_ms": 1000 * self._prompt_s,
            "prompt_per_second": evaluated / max(self._prompt_s, 1e-6),
            "predicted_n": written,
            "predicted_ms": 1000 * self._decode_s,
            "predicted_per_second": written / max(self._decode_s, 1e-6),
        }

    @property
    def _model(self) -> str:
        return self._say.model or self._settings.model

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return {"object": "chat.completion.chunk", "model": self._model, "choices": choices}


def _silence(seconds: float, pings: bool) -> Iterator[Step]:
    while seconds > 0:
        yield min(seconds, 0.05)
        seconds -= 0.05
        if pings:
            yield b": ping\n\n"


def whole(steps: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The events of a stream as the one answer to a request without `stream: true`; {"error": …} when there was one."""
    said: dict[str, str] = {}
    answer: dict[str, Any] = {"object": "chat.completion"}
    finish = None
    for step in steps:
        if "error" in step:
            return {"error": step["error"]}
        answer |= {name: step[name] for name in ("model", "usage", "timings") if name in step}
        for choice in step["choices"]:
            finish = choice["finish_reason"] or finish
            for name in ("content", "reasoning_content"):
                said[name] = said.get(name, "") + (choice["delta"].get(name) or "")
    message = {"role": "assistant", **{name: text for name, text in said.items() if text or name == "content"}}
    return answer | {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
