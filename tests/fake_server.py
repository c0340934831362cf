"""A model server that never computes anything: OpenAI-compatible and llama-server's routes over loopback, with every fault on demand.

    with FakeServer([loading(), "VERDICT: APPROVED"]) as server:
        provider = OpenAICompat("fake", server.url, api_key=None, idle_s=1)

A scenario is a list of answers, one per chat request, the last one repeated; or a function of the request. A plain string is `Say(text)`.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

MAX_BODY = 64 << 20


@dataclass(frozen=True)
class Say:
    """A streamed answer. Seconds for `headers_after`, `stall` (before the first token), `delay` (between pieces).

    `finish=None`: the stream ends without a stop reason. `drop`: the connection breaks after so many characters. `hang`: it stays open
    and silent there. `pings`: comments while it stalls or hangs. `think`: sent as `reasoning_content` first.
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


@dataclass(frozen=True)
class Http:
    """A plain HTTP answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Bytes as the body of an event stream, in pieces, with `delay` seconds between them; endless when `repeat`."""

    pieces: tuple[bytes, ...]
    delay: float = 0.0
    repeat: bool = False


Answer = Say | Http | Raw
Scenario = Sequence["Answer | str"] | Callable[["Recorded"], "Answer | str"]


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


def error(status: int, message: str, kind: str = "", **headers: str) -> Http:
    body = {"error": {"message": message, "type": kind, "code": status}}
    return Http(
        status, json.dumps(body).encode(), {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    )


def loading() -> Http:
    """As llama-server says it."""
    return error(503, "Loading model", "unavailable_error")


def too_large() -> Http:
    """As llama-server says it."""
    said = {"code": 400, "message": "request (9001 tokens) exceeds the available context size (4096 tokens), try increasing it"}
    return Http(400, json.dumps({"error": said | {"type": "exceed_context_size_error", "n_prompt_tokens": 9001, "n_ctx": 4096}}).encode())


def html(status: int = 200) -> Http:
    return Http(status, b"<!DOCTYPE html><html><title>Bad gateway</title></html>", {"Content-Type": "text/html; charset=utf-8"})


def loop(line: str = "The function returns the value.", lines: int = 5000) -> Say:
    return Say(f"{line}\n" * lines, chunk=64)


def invalid_utf8() -> Raw:
    return Raw((b'data: {"choices": [{"index": 0, "delta": {"content": "caf\xe9"}}]}\n\n',))


def flood() -> Raw:
    """Never ends, never repeats a line: keeps to no `max_tokens`."""
    return Raw((event({"choices": [{"index": 0, "delta": {"content": "".join(chr(0x4E00 + n) for n in range(20_000))}}]}),), repeat=True)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def closed_port() -> int:
    """A port of this machine where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class FakeServer:
    """`loading`: so many requests of any route but /health get 503 first. `window` and `tokenize` None: those routes do not exist."""

    def __init__(
        self,
        scenario: Scenario = ("ok",),
        *,
        model: str = "fake-model",
        loading: int = 0,
        window: int | None = 8192,
        max_model_len: int | None = None,
        tokenize: bool = True,
        api_key: str | None = None,
    ) -> None:
        self.model, self.loading, self.window, self.max_model_len = model, loading, window, max_model_len
        self.tokenize, self.api_key = tokenize, api_key
        self.requests: list[Recorded] = []
        self.hung_up = threading.Event()
        """Set when a client left before its answer was complete."""
        self._scenario = scenario
        self._asked = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _Handler, self)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def calls(self) -> list[Recorded]:
        """The chat requests."""
        return [request for request in self.requests if request.path.endswith("/chat/completions")]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, request: Recorded) -> Answer:
        """Chooses the answer to one recorded request."""
        with self._lock:
            self.requests.append(request)
            if request.path != "/health" and self.loading > 0:
                self.loading -= 1
                return loading()
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return error(401, f"Invalid API Key: {request.headers.get('authorization')}", "authentication_error")
        path = request.path.removeprefix("/v1")
        if path == "/chat/completions":
            return self._chat(request)
        return self._route(path, request) or error(404, "File Not Found", "not_found_error")

    def _chat(self, request: Recorded) -> Answer:
        with self._lock:
            number, self._asked = self._asked, self._asked + 1
        scenario = self._scenario
        answer = scenario(request) if callable(scenario) else scenario[min(number, len(scenario) - 1)]
        return Say(answer) if isinstance(answer, str) else answer

    def _route(self, path: str, request: Recorded) -> Http | None:
        if path == "/health":
            return _json({"status": "ok"}) if self.loading <= 0 else loading()
        if path == "/models":
            entry: dict[str, Any] = {"id": self.model, "object": "model", "meta": {"n_ctx_train": 32768}}
            return _json({"object": "list", "data": [entry | ({"max_model_len": self.max_model_len} if self.max_model_len else {})]})
        if path == "/props" and self.window is not None:
            return _json({"default_generation_settings": {"n_ctx": self.window}, "total_slots": 1, "model_alias": self.model})
        if path == "/tokenize" and self.tokenize:
            return _json({"tokens": list(range(-(-len(request.body["content"]) // 4)))})
        return None

    def pause(self, seconds: float) -> bool:
        """False when the server is closing."""
        return not self._closing.wait(seconds) if seconds > 0 else not self._closing.is_set()


def _json(value: object) -> Http:
    return Http(200, json.dumps(value).encode(), {"Content-Type": "application/json; charset=utf-8"})


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], fake: FakeServer) -> None:
        super().__init__(address, handler)
        self.fake = fake

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are part of the game."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5
    server: _Server

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length", 0)), MAX_BODY)
        self._serve(json.loads(self.rfile.read(length)))

    def _serve(self, body: Any) -> None:
        self.close_connection = True
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.fake.answer(Recorded(self.command, self.path, headers, body))
        try:
            if isinstance(answer, Http):
                self._plain(answer)
            else:
                self._stream(_say(answer, self.server.fake.model) if isinstance(answer, Say) else _raw(answer))
        except (_Left, ConnectionError):
            self.server.fake.hung_up.set()

    def _plain(self, answer: Http) -> None:
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), "Connection": "close", **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def _stream(self, steps: Iterator[bytes | float | None]) -> None:
        """Bytes are sent, a number is a pause in seconds, None breaks the connection. Headers go out with the first bytes."""
        begun = False
        for step in steps:
            if isinstance(step, int | float):
                self._pause(step)
                continue
            if not begun:
                self._begin()
                begun = True
            if step is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if step:
                self.wfile.write(f"{len(step):x}\r\n".encode() + step + b"\r\n")
        if not begun:
            self._begin()
        self.wfile.write(b"0\r\n\r\n")

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.connection], [], [], 0)[0] and not self.connection.recv(1, socket.MSG_PEEK):
                raise _Left
            if not self.server.fake.pause(min(left, 0.02)):
                raise _Left


class _Left(Exception):
    """The client, or the test, is gone."""


_LONG = 3600.0


def _say(say: Say, model: str) -> Iterator[bytes | float | None]:
    yield say.headers_after
    yield b": ok\n\n"
    yield from _silence(say.stall, say.pings)
    for start in range(0, len(say.think), say.chunk):
        yield _chunk(model, {"reasoning_content": say.think[start : start + say.chunk]})
        yield say.delay
    end = min((n for n in (say.drop, say.hang) if n is not None), default=len(say.text))
    for start in range(0, end, say.chunk):
        yield _chunk(model, {"content": say.text[start : min(start + say.chunk, end)]})
        yield say.delay
    if say.hang is not None:
        yield from _silence(_LONG, say.pings)
    if say.drop is not None:
        yield None
    if say.error is not None:
        yield event({"error": say.error})
        return
    if say.finish is not None:
        yield _chunk(model, {}, say.finish)
        usage = {"usage": say.usage} if say.usage is not None else {}
        yield event({"choices": [], "model": model, **usage, **({"timings": say.timings} if say.timings else {})})
        if say.done:
            yield b"data: [DONE]\n\n"


def _silence(seconds: float, pings: bool) -> Iterator[bytes | float]:
    while seconds > 0:
        yield min(seconds, 0.05)
        seconds -= 0.05
        if pings:
            yield b": ping\n\n"


def _raw(raw: Raw) -> Iterator[bytes | float]:
    while True:
        for piece in raw.pieces:
            yield piece
            yield raw.delay
        if not raw.repeat:
            return


def _chunk(model: str, delta: Mapping[str, str], finish: str | None = None) -> bytes:
    return event({"object": "chat.completion.chunk", "model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
