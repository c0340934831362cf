"""What the fake server can answer, and the requests it has seen."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LABEL_HEADER = "x-nightmill-call"
"""Carries the label of the call (`contract:1#1`), percent-encoded where a header needs it."""


@dataclass(frozen=True)
class Say:
    """A streamed answer. Seconds for `headers_after`, `stall` (before the first token), `delay` (between pieces).

    `finish=None`: the stream ends without a stop reason. `drop`: the connection breaks after so many characters. `hang`: it stays open
    and silent there. `pings`: comments while it stalls or hangs. `think`: sent as `reasoning_content` first. `echo`: sent before all
    that, as a server does that repeats the message it continues; it does not count for `drop` and `hang`.
    """

    text: str = ""
    think: str = ""
    chunk: int = 16
    headers_after: float = 0.0
    stall: float = 0.0
    delay: float = 0.0
    finish: str | None = "stop"
    drop: int | None = None
    hang: int | None = None
    pings: bool = False
    done: bool = True
    usage: Mapping[str, Any] | None = None
    timings: Mapping[str, Any] | None = None
    error: object = None
    """An error object sent into the stream after the text."""
    echo: str = ""
    model: str | None = None
    """Who answers, when it is not the server's model."""
    truncate: int | None = None
    """Tokens of the prompt that are read, in silence; the server's own setting when None."""


@dataclass(frozen=True)
class Http:
    """A plain HTTP answer. `loading_s`: for so many seconds from now every route says that the model loads."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    loading_s: float = 0.0


@dataclass(frozen=True)
class Raw:
    """Bytes as the body of an event stream, in pieces, with `delay` seconds between them; endless when `repeat`."""

    pieces: tuple[bytes, ...]
    delay: float = 0.0
    repeat: bool = False


@dataclass(frozen=True)
class Gone:
    """The server dies: all its connections break, and for `seconds` nothing listens at its port."""

    seconds: float


Answer = Say | Http | Raw | Gone


@dataclass(frozen=True)
class Recorded:
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any = None

    @property
    def prompt(self) -> str:
        return "\n\n".join(message["content"] for message in self.body["messages"])

    @property
    def label(self) -> str:
        """What the call is for, "" when the client does not tell."""
        return urllib.parse.unquote(self.headers.get(LABEL_HEADER, ""))

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """Those of a chat request that are objects with text."""
        listed = self.body.get("messages") if isinstance(self.body, dict) else None
        return [m for m in listed or () if isinstance(m, dict) and isinstance(m.get("content"), str)]

    @property
    def prefix(self) -> str:
        """The beginning of an answer that the client wants continued: the last message, when it is the assistant's."""
        messages = self.messages
        return str(messages[-1]["content"]) if messages and messages[-1].get("role") == "assistant" else ""

    @property
    def probes(self) -> bool:
        """Whether the client tries out what the server can, and wants no work done."""
        return self.label.startswith("probe:")

    def wants(self, name: str) -> bool:
        """Whether the body says `name: true`."""
        return isinstance(self.body, dict) and self.body.get(name) is True


def as_json(value: object) -> Http:
    return Http(200, json.dumps(value).encode(), {"Content-Type": "application/json; charset=utf-8"})


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def error(status: int, message: str, kind: str = "", **headers: str) -> Http:
    body = {"error": {"message": message, "type": kind, "code": status}}
    return Http(
        status, json.dumps(body).encode(), {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    )


def loading(seconds: float = 0.0) -> Http:
    """As llama-server says it."""
    said = error(503, "Loading model", "unavailable_error")
    return Http(said.status, said.body, said.headers, seconds)


def too_large(prompt: int = 9001, window: int = 4096) -> Http:
    """As llama-server says it."""
    said = {"code": 400, "message": f"request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it"}
    return Http(
        400, json.dumps({"error": said | {"type": "exceed_context_size_error", "n_prompt_tokens": prompt, "n_ctx": window}}).encode()
    )


def html(status: int = 200) -> Http:
    return Http(status, b"<!DOCTYPE html><html><title>Bad gateway</title></html>", {"Content-Type": "text/html; charset=utf-8"})


def loop(line: str = "The function returns the value.", lines: int = 5000) -> Say:
    return Say(f"{line}\n" * lines, chunk=64)


def invalid_utf8() -> Raw:
    return Raw((b'data: {"choices": [{"index": 0, "delta": {"content": "caf\xe9"}}]}\n\n',))


def flood() -> Raw:
    """Never ends, never repeats a line: keeps to no `max_tokens`."""
    return Raw((event({"choices": [{"index": 0, "delta": {"content": "".join(chr(0x4E00 + n) for n in range(20_000))}}]}),), repeat=True)
