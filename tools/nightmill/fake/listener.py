"""HTTP/1.1 over a socket for the fake server: one connection per request, and an answer that can break off at any byte."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import socketserver
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

from nightmill.fake.answers import Answer, Gone, Http, Recorded, Say, error, event
from nightmill.fake.speech import Step, raw_steps, whole

MAX_BODY = 64 << 20


class Host(Protocol):
    """What answers."""

    def answer(self, request: Recorded) -> tuple[Answer, str]:
        """The answer, and the name of the fault that it is."""

    def speech(self, say: Say, request: Recorded) -> Generator[Step]: ...

    def pause(self, seconds: float) -> bool:
        """False when the server is closing."""

    def die(self, seconds: float) -> None: ...

    def served(self, request: Recorded, result: str, *, left: bool = False) -> None:
        """One request is over; `left`: the client did not wait for its end."""


class Listener(socketserver.ThreadingTCPServer):
    """`address` is host and port; port 0 is a free one. Raises OSError when it cannot be had."""

    daemon_threads = False
    block_on_close = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], host: Host) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.host = host
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def break_all(self) -> None:
        """Cuts every open connection."""
        with self._guard:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are part of the game."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5
    server: Listener

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        try:
            length = min(int(self.headers.get("Content-Length", 0)), MAX_BODY)
            body = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError):
            self.close_connection = True
            self._plain(error(400, "the body is not JSON", "invalid_request_error"))
            return
        self._serve(body)

    def _serve(self, body: Any) -> None:
        self.close_connection = True
        host = self.server.host
        request = Recorded(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        answer, fault = host.answer(request)
        try:
            result = self._send(answer, request)
        except (_Left, ConnectionError):
            host.served(request, f"{fault or 'answering'}, broken off", left=True)
        else:
            host.served(request, f"{result} ({fault})" if fault else result)

    def _send(self, answer: Answer, request: Recorded) -> str:
        """Returns what was done, for the log."""
        if isinstance(answer, Gone):
            self.server.host.die(answer.seconds)
            return f"dead for {answer.seconds:g} s"
        if isinstance(answer, Http):
            self._plain(answer)
            return str(answer.status)
        with closing(self.server.host.speech(answer, request) if isinstance(answer, Say) else raw_steps(answer)) as steps:
            return self._stream(steps) if request.wants("stream") or not isinstance(answer, Say) else self._at_once(steps)

    def _plain(self, answer: Http) -> None:
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), "Connection": "close", **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def _at_once(self, steps: Iterator[Step]) -> str:
        """The same without streaming: one JSON object at the end."""
        events: list[Mapping[str, Any]] = []
        for step in steps:
            if step is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return "broken off by the server"
            if isinstance(step, int | float):
                self._pause(step)
            elif isinstance(step, Mapping):
                events.append(step)
        answer = whole(events)
        status = 500 if "error" in answer else 200
        self._plain(Http(status, json.dumps(answer).encode(), {"Content-Type": "application/json; charset=utf-8"}))
        return str(status)

    def _stream(self, steps: Iterator[Step]) -> str:
        """Headers go out with the first bytes."""
        begun, sent, counted = False, 0, ""
        for step in steps:
            if isinstance(step, int | float):
                self._pause(step)
                continue
            if not begun:
                self._begin()
                begun = True
            if step is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return f"200, broken off by the server after {sent} bytes"
            if isinstance(step, Mapping):
                counted = _counted(step) or counted
            if data := event(step) if isinstance(step, Mapping) else step:
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                sent += len(data)
        if not begun:
            self._begin()
        self.wfile.write(b"0\r\n\r\n")
        return f"200, {counted or f'{sent} bytes'}"

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
            if not self.server.host.pause(min(left, 0.02)):
                raise _Left


def _counted(step: Mapping[str, Any]) -> str:
    """The usage that an event tells, for the log."""
    usage = step.get("usage") or {}
    if not {"prompt_tokens", "completion_tokens", "prompt_tokens_details"} <= usage.keys():
        return ""
    cached = usage["prompt_tokens_details"].get("cached_tokens", 0)
    return f"{usage['prompt_tokens']} tokens read, {cached} of them cached, {usage['completion_tokens']} written"


class _Left(Exception):
    """The client, or the test, is gone."""
