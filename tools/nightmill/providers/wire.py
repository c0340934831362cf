"""One server as the protocol sees it: where it is, small questions answered in JSON, answers streamed in chunks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from nightmill.errors import ConfigError
from nightmill.providers.base import NoVerdict
from nightmill.providers.exchange import Call, Clock, Exchange, Head, timed
from nightmill.providers.failures import MAX_BODY, Failures
from nightmill.providers.sse import BadStream, BadText, Chunk, Event, EventParser, Usage, decode

ASK_S = 10.0
"""How long a small question (window, token count) may take, seconds."""
MAX_ANSWER = 16 << 20
"""Bytes of an answer to such a question: token numbers of a million-token text."""
LABEL_HEADER = "X-Nightmill-Call"
"""What a call is for, percent-encoded where a header needs it, so that a server's log can be read beside ours."""
_LABEL = 200
_PLAIN = "/:#@!$&'()*+,;=?[]"


def never() -> bool:
    return False


@dataclass(frozen=True)
class Short:
    """A few tokens, asked for to learn something about the server."""

    text: str
    reasoning: str
    usage: Usage


class Wire:
    """`url` with or without `/v1`; `connect_s` in seconds. Raises ConfigError for a URL or key that cannot be used.

    Methods raise NoVerdict for everything the server or network does.
    """

    def __init__(self, name: str, url: str, api_key: str | None, connect_s: float) -> None:
        self.base, self.root, self.where = _addresses(url)
        key = (api_key or "").strip()
        if not all("!" <= c <= "~" for c in key):
            raise ConfigError(f"provider {name}: the API key holds characters that no header can carry: check api_key_env or api_key_file")
        self.failures = Failures(self.where, key or None)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._connect_s = connect_s
        self._tls = httpx.create_ssl_context() if self.base.startswith("https:") else None
        self.llama = False
        """It has shown to be llama-server, which reads fields that strict servers refuse."""
        self._absent: set[str] = set()

    def clock(self, first_token_s: float, idle_s: float) -> Clock:
        return Clock(self._connect_s, first_token_s, idle_s, self.where)

    def ask(self, route: str, body: Mapping[str, Any] | None = None) -> object:
        """The JSON at `route` of the server's root (of the protocol's base for /models); POSTed when there is a body.

        None when the server does not have this route, which is remembered, or has no answer now; {} when it refuses the question.
        """
        name = route.partition("?")[0]
        if name in self._absent:
            return None
        url = (self.base if name == "/models" else self.root) + route
        call = Call("GET" if body is None else "POST", url, self._headers, body)
        try:
            with self._items(call, self.clock(ASK_S, ASK_S), never) as items:
                head, raw = _head(items), _read(items, MAX_ANSWER)
        except NoVerdict as error:
            if error.kind != "idle":
                raise
            raise NoVerdict("unreachable", f"{self.where} did not answer {name} within {ASK_S:g} s") from error
        answer = as_json(raw)
        if head.status == 200 and not isinstance(at(answer, "error"), str):  # LM Studio answers unknown routes so
            return answer
        return self._unanswered(name, self.failures.status(head.status, head.headers, raw), answer)

    def has(self, route: str) -> bool:
        """False once the server has shown not to have this route."""
        return route not in self._absent

    def _unanswered(self, name: str, failure: NoVerdict, answer: object) -> object:
        if failure.kind in ("loading", "rate_limited", "no_quota") or (failure.kind == "unauthorized" and _own(answer)):
            raise failure
        if name == "/models" and failure.kind in ("unauthorized", "server_error"):
            raise failure
        if failure.kind == "bad_request" and isinstance(answer, dict):
            return {}
        if failure.kind != "server_error":
            self._absent.add(name)
        return None

    def completion(self, body: Mapping[str, Any], clock: Clock, stopping: Callable[[], bool], label: str) -> closing[Generator[Chunk]]:
        """A context manager around the chunks of one answer; it ends at `[DONE]` or at the end of the stream."""
        headers = {**self._headers, LABEL_HEADER: quote(label[:_LABEL], safe=_PLAIN)} if label else self._headers
        return closing(self._chunks(Call("POST", f"{self.base}/chat/completions", headers, body), clock, stopping))

    def short(self, body: Mapping[str, Any], first_token_s: float, label: str) -> Short:
        """The first tokens of an answer, as many as `body` allows; cut off or empty is no failure here."""
        text, reasoning, usage = "", "", Usage()
        with self.completion(body, self.clock(first_token_s, first_token_s), never, label) as chunks:
            for chunk in chunks:
                text, reasoning, usage = text + chunk.text, reasoning + chunk.reasoning, usage.merge(chunk.usage)
        return Short(text, reasoning, usage)

    def _chunks(self, call: Call, clock: Clock, stopping: Callable[[], bool]) -> Generator[Chunk]:
        with self._items(call, clock, stopping) as items:
            head = _head(items)
            if head.status != 200:
                raise self.failures.status(head.status, head.headers, _read(items, MAX_BODY))
            kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind in ("text/html", "application/json"):
                raise self.failures.instead(_read(items, MAX_BODY))
            parser = EventParser()
            try:
                for event in _events(parser, items):
                    chunk = decode(event)
                    if chunk.error is not None:
                        raise self.failures.in_stream(chunk.error)
                    if chunk.done:
                        return
                    yield chunk
            except BadText as error:
                raise self.failures.bad_utf8(str(error)) from error
            except BadStream as error:
                raise self.failures.garbage(str(error)) from error
            if not parser.events and parser.foreign:
                say = self.failures.html if parser.foreign.lstrip().startswith("<") else self.failures.garbage
                raise say(f"something else than an event stream: {parser.foreign!r}")

    def _items(self, call: Call, clock: Clock, stopping: Callable[[], bool]) -> closing[Generator[Head | bytes]]:
        return closing(timed(Exchange(call, connect_s=self._connect_s, tls=self._tls), clock, stopping, self.failures))


def _addresses(url: str) -> tuple[str, str, str]:
    """(base of the protocol's routes, root of the server's own routes, host and port to show). Raises ConfigError."""
    shown = re.sub("//.*@", "//…@", url)
    try:
        parsed = httpx.URL(url.strip())
        parsed.raw_host.decode("ascii").encode("idna")  # what the resolver will do: empty and overlong labels
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ConfigError(f"url {shown!r} is not a URL: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65_535:
        raise ConfigError(f"url {shown!r} must look like http://127.0.0.1:8080/v1")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise ConfigError(f"the url of {parsed.host} must have no user, query or fragment: name the key by api_key_env or api_key_file")
    base = str(parsed).rstrip("/").removesuffix("/chat/completions")
    if not re.search(r"/v\d+[a-z0-9]*(/|$)", parsed.path):
        base += "/v1"
    return base, base.removesuffix("/v1"), parsed.netloc.decode("ascii")


def _events(parser: EventParser, items: Iterator[Head | bytes]) -> Iterator[Event]:
    for piece in items:
        assert isinstance(piece, bytes)
        yield from parser.feed(piece)
    yield from parser.close()


def as_json(body: bytes) -> object:
    """None for anything else."""
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value


def at(value: object, *keys: str) -> Any:
    """What lies under these keys; None where there is no such thing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _own(answer: object) -> bool:
    """llama-server itself refuses the key; a gateway that forbids unknown routes looks different."""
    return (at(answer, "error", "type"), at(answer, "error", "code")) == ("authentication_error", 401)


def _head(items: Iterator[Head | bytes]) -> Head:
    head = next(items)
    assert isinstance(head, Head)
    return head


def _read(items: Iterator[Head | bytes], limit: int) -> bytes:
    """The body, or its first `limit` bytes."""
    body = bytearray()
    for piece in items:
        assert isinstance(piece, bytes)
        body += piece
        if len(body) >= limit:
            break
    return bytes(body[:limit])
