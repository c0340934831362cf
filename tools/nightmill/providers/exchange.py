"""One HTTP request whose answer is read by a thread, so that the caller can look at the clock and leave at any moment."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import httpx

from nightmill.errors import Stopped
from nightmill.providers.base import NoVerdict
from nightmill.providers.failures import Failures

POLL_S = 0.2
"""How soon a stop is noticed, seconds."""
_WAITING = 256
"""Pieces read ahead of the caller, so that a flood from the server does not fill the memory."""


@dataclass(frozen=True)
class Head:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""


@dataclass(frozen=True)
class Call:
    method: str
    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any] | None = None
    """Sent as ASCII JSON: half a character in a prompt is the server's to refuse, not a traceback here."""


class Exchange:
    """A context manager; leaving it closes the connection at once, whatever the thread is doing.

    `next` gives the Head, then pieces of the body, then None at its end. There are no time limits but `connect_s` for the
    connection: the caller has the clock. Redirects are not followed, proxy variables are not read.
    """

    def __init__(self, call: Call, *, connect_s: float, tls: ssl.SSLContext | None) -> None:
        self.connected = False
        self.connect_s = connect_s
        self._call = call
        self._client = httpx.Client(
            http2=False,
            trust_env=False,
            follow_redirects=False,
            verify=tls or False,  # False only for http://, where nothing is verified
            timeout=httpx.Timeout(None, connect=connect_s),
        )
        self._items: queue.Queue[Head | bytes | BaseException | None] = queue.Queue(_WAITING)
        self._left = threading.Event()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="nightmill-call", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._cut()

    def next(self, timeout: float) -> Head | bytes | None:
        """Raises queue.Empty after `timeout` seconds, httpx.HTTPError when the exchange failed."""
        item = self._items.get(timeout=timeout)
        if isinstance(item, BaseException):
            raise item
        return item

    def _run(self) -> None:
        try:
            with self._client as client:
                self._read(client)
            self._put(None)
        except BaseException as error:  # carried to the caller, who raises it
            self._put(error)

    def _read(self, client: httpx.Client) -> None:
        call = self._call
        headers = {**call.headers, "Accept-Encoding": "identity", "Connection": "close"}
        content = None if call.body is None else json.dumps(call.body).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        with client.stream(call.method, call.url, headers=headers, content=content, extensions={"trace": self._trace}) as response:
            self._put(Head(response.status_code, {name.lower(): value for name, value in response.headers.items()}))
            for piece in response.iter_bytes():
                self._put(piece)
                if self._left.is_set():
                    return

    def _put(self, item: Head | bytes | BaseException | None) -> None:
        while not self._left.is_set():
            with contextlib.suppress(queue.Full):
                self._items.put(item, timeout=0.2)
                return

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Learns the socket: closing a response from another thread does not wake its reader, shutting the socket down does."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._left.is_set():
                self._cut()
        elif event == "http11.send_request_headers.started":
            self.connected = True

    def _cut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class Clock:
    """Which limit runs now, in seconds: connecting, first token, between tokens."""

    def __init__(self, connect_s: float, first_token_s: float, idle_s: float, where: str) -> None:
        self._limits = (2 * connect_s + POLL_S, first_token_s, idle_s)  # twice: TCP and TLS each have their own
        self._where = where
        self._phase = 0
        self._since = time.monotonic()
        self._connected = self._since
        self.first_token_s: float | None = None
        """Seconds from the connection to the first token."""

    def token(self) -> None:
        self._phase, self._since = 2, time.monotonic()
        if self.first_token_s is None:
            self.first_token_s = self._since - self._connected

    def progress(self) -> None:
        """The prompt is still being read: the wait for the first token begins anew."""
        if self._phase < 2:
            self._phase, self._since = 1, time.monotonic()

    def left(self, connected: bool) -> float:
        """Seconds left, above 0. Raises NoVerdict when there are none."""
        if connected and self._phase == 0:
            self._phase, self._since = 1, time.monotonic()
            self._connected = self._since
        left = self._since + self._limits[self._phase] - time.monotonic()
        if left > 0:
            return left
        if self._phase == 0:
            raise NoVerdict("unreachable", f"no connection to {self._where} within {self._limits[0]:g} s")
        what, setting = ("first token", "first_token_s") if self._phase == 1 else ("token", "idle_s")
        raise NoVerdict("idle", f"no {what} from {self._where} for {self._limits[self._phase]:g} s ({setting})")


def timed(exchange: Exchange, clock: Clock, stopping: Callable[[], bool], failures: Failures) -> Generator[Head | bytes]:
    """The Head, then the pieces of the body. Raises NoVerdict, and Stopped within about POLL_S after `stopping()` turns true.

    Close the generator to close the connection.
    """
    polled = 0.0
    with exchange:
        while True:
            now = time.monotonic()
            if now - polled >= POLL_S:
                polled = now
                if stopping():
                    raise Stopped("stopped in the middle of a call; everything finished is kept, run doit again to go on")
            try:
                item = exchange.next(min(POLL_S, clock.left(exchange.connected)))
            except queue.Empty:
                continue
            except httpx.HTTPError as error:
                raise failures.transport(error, exchange.connect_s) from error
            if item is None:
                return
            yield item
