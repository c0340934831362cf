"""Event streams: bytes → events → chunks of a chat completion. Strict: what is not a stream of our kind raises BadStream."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nightmill.providers.base import Spent

MAX_LINE = 4 << 20
"""Bytes. A chunk carries a few tokens; a line beyond this is no chunk."""
MOST_TOKENS = 100_000_000
"""Ten times the largest window on offer. What a server counts beyond it is an error of its own, and would use up any budget."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class BadStream(ValueError):
    """The bytes are not an event stream of chat completion chunks. The text says why, in one line."""


class BadText(BadStream):
    """They are not even text: invalid UTF-8, or half a character in JSON."""


@dataclass(frozen=True)
class Event:
    name: str
    """`message` unless the stream named it; `error` is how some servers report a failure after the headers."""
    data: str


class EventParser:
    """Feeds on pieces of any size and gives complete events; comments (pings) give none.

    Lines end with LF, CRLF or CR; a byte order mark at the start is skipped.
    """

    def __init__(self) -> None:
        self.events = 0
        self.foreign = ""
        """The first line that belongs to no event stream, cut to 80 characters: evidence for a message."""
        self._rest = bytearray()
        self._after_cr = False
        self._first = True
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[Event]:
        """Raises BadStream for invalid UTF-8 and for endless lines or events."""
        if self._after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_cr = False
        if piece:
            self._after_cr = piece.endswith(b"\r")
        *lines, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events = []
        for line in lines:
            self._rest += line
            event = self._line(bytes(self._rest))
            self._rest.clear()
            if event is not None:
                events.append(event)
        self._rest += rest
        if len(self._rest) > MAX_LINE:
            raise BadStream(f"a line of more than {MAX_LINE} bytes")
        return events

    def close(self) -> list[Event]:
        """The event at the end of a stream that stopped without a blank line; a torn line gives nothing."""
        rest = bytes(self._rest).strip()
        if rest == b"data: [DONE]" or not (self.events or b"data:".startswith(rest[:5])):
            self._line(rest)
        event = self._dispatch()
        return [event] if event else []

    def _line(self, raw: bytes) -> Event | None:
        if self._first:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
            self._first = False
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadText(f"invalid UTF-8 (byte 0x{raw[error.start]:02x})") from error
        if not line:
            return self._dispatch()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._append(value)
        elif field == "event":
            self._name = value
        elif field == "error":
            self._name = "error"
            self._append(value)
        elif field not in ("", "id", "retry") and not self.foreign:
            self.foreign = line[:80]
        return None

    def _append(self, value: str) -> None:
        self._data.append(value)
        self._size += len(value)
        if self._size > MAX_LINE:
            raise BadStream(f"an event of more than {MAX_LINE} characters")

    def _dispatch(self) -> Event | None:
        name, data = self._name or "message", self._data
        self._name, self._data, self._size = "", [], 0
        if not data:
            return None
        self.events += 1
        return Event(name, "\n".join(data))


@dataclass(frozen=True)
class Usage:
    """Tokens by the server's own count; None where it gave none."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    evaluated: int | None = None
    """Prompt tokens that did not come from the cache."""

    def spent(self, seconds: float, first_token_s: float | None) -> Spent:
        return Spent(
            prompt_tokens=self.prompt,
            cached_tokens=self.cached,
            evaluated_tokens=self.evaluated,
            completion_tokens=self.completion,
            seconds=seconds,
            first_token_s=first_token_s,
        )

    def merge(self, newer: Usage | None) -> Usage:
        """What `newer` says, completed by this."""
        return replace(self, **{name: n for name, n in vars(newer or Usage()).items() if n is not None})


@dataclass(frozen=True)
class Chunk:
    """What one event says. `alive`: the model writes (a token, a tool call); `progress`: it still reads the prompt."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    finish: str = ""
    model: str = ""
    usage: Usage | None = None
    error: object = None
    alive: bool = False
    progress: bool = False
    done: bool = False


def decode(event: Event) -> Chunk:
    """Raises BadStream when the event is not a chat completion chunk, `[DONE]` or an error object."""
    if event.data.strip() == "[DONE]":
        return Chunk(done=True)
    try:
        value = json.loads(event.data)
    except (ValueError, RecursionError) as error:
        if event.name == "error":
            return Chunk(error=event.data)
        raise BadStream(f"an event that is not JSON: {event.data[:80]!r}") from error
    if event.name == "error":
        return Chunk(error=value.get("error", value) if isinstance(value, dict) else value)
    if not isinstance(value, dict):
        raise BadStream(f"an event that is not an object: {event.data[:80]!r}")
    if value.get("error"):
        return Chunk(error=value["error"])
    return _chunk(value)


def _chunk(value: Mapping[str, Any]) -> Chunk:
    choices = value.get("choices") or []
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise BadStream("a chunk whose `choices` is not a list of objects")
    choice: Mapping[str, Any] = next((c for c in choices if c.get("index", 0) == 0), {})
    delta = choice.get("delta") or {}
    if not isinstance(delta, dict):
        raise BadStream("a chunk whose `delta` is not an object")
    text = _text(delta.get("content"))
    refusal = _text(delta.get("refusal") or _object(choice.get("message")).get("refusal"))
    reasoning = _text(delta.get("reasoning_content") or delta.get("reasoning"))
    return Chunk(
        text=text,
        reasoning=reasoning,
        refusal=refusal,
        finish=_text(choice.get("finish_reason")),
        model=_text(value.get("model")),
        usage=_usage(value),
        alive=bool(text or reasoning or refusal or delta.get("tool_calls")),
        progress=bool(value.get("prompt_progress")),
    )


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadStream(f"text expected, got {type(value).__name__}")
    if _SURROGATE.search(value):
        raise BadText("half a character (a lone surrogate)")
    return value


def _usage(value: Mapping[str, Any]) -> Usage | None:
    """`usage` of the protocol, completed by llama-server's `timings`, where `prompt_n` leaves out what came from the cache."""
    usage, timings = _object(value.get("usage")), _object(value.get("timings"))
    if not usage and not timings:
        return None
    evaluated, reused = count(timings.get("prompt_n")), count(timings.get("cache_n"))
    prompt, cached = count(usage.get("prompt_tokens")), count(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    completion = count(usage.get("completion_tokens"))
    cached = cached if cached is not None else reused
    prompt = prompt if prompt is not None else evaluated + (reused or 0) if evaluated is not None else None
    if evaluated is None and prompt is not None and cached is not None:
        evaluated = max(0, prompt - cached)
    return Usage(
        prompt=prompt,
        cached=cached,
        evaluated=evaluated,
        completion=completion if completion is not None else count(timings.get("predicted_n")),
    )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def count(value: object) -> int | None:
    """A JSON number as a count of tokens; None for anything that cannot be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None
