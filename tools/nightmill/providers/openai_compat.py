"""Any server that speaks `/v1/chat/completions`: llama-server, vLLM, hosted ones."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

import httpx

from nightmill.errors import ConfigError
from nightmill.providers.answer import Answer
from nightmill.providers.base import NoVerdict, Reply, Request
from nightmill.providers.exchange import Call, Clock, Exchange, Head, timed
from nightmill.providers.failures import MAX_BODY, Failures, is_html
from nightmill.providers.sse import BadStream, Chunk, Event, EventParser, Usage, count, decode

ASK_S = 10.0
"""How long a small question (window, token count) may take, seconds."""
MAX_ANSWER = 16 << 20
"""Bytes of an answer to such a question: token numbers of a million-token text."""
_WINDOW_KEYS = ("max_model_len", "context_length", "context_window")
"""vLLM, and two hosted dialects. llama-server's `n_ctx_train` is what the model was trained on, not what the slot has."""


def _never() -> bool:
    return False


class OpenAICompat:
    """`url` with or without `/v1`. Times in seconds: `connect_s` to connect, `first_token_s` from there to the first token (the
    prefill; its progress reports restart it), `idle_s` between tokens; pings do not count. There is no limit on the whole.

    Raises ConfigError for a URL or key that cannot be used. Methods raise NoVerdict for everything the server or network does.
    """

    def __init__(
        self, name: str, url: str, *, api_key: str | None, idle_s: float, connect_s: float = 10, first_token_s: float = 600
    ) -> None:
        self.name = name
        self._base, self._root, where = _addresses(url)
        key = (api_key or "").strip()
        if not all("!" <= c <= "~" for c in key):
            raise ConfigError(f"provider {name}: the API key holds characters that no header can carry: check api_key_env or api_key_file")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._failures = Failures(where, key or None)
        self._idle_s, self._connect_s, self._first_token_s = idle_s, connect_s, first_token_s
        self._tls = httpx.create_ssl_context() if self._base.startswith("https:") else None
        self._absent: set[str] = set()

    def complete(self, request: Request, on_text: Callable[[str], None], stopping: Callable[[], bool]) -> Reply:
        """Streams one answer. Raises NoVerdict with the text so far in `partial`, Stopped within about POLL_S of a stop."""
        started = time.monotonic()
        answer = Answer(request, on_text)
        clock = Clock(self._connect_s, self._first_token_s, self._idle_s, self._failures.where)
        call = Call("POST", f"{self._base}/chat/completions", self._headers, _body(request))
        finish, model, usage = "", "", Usage()
        try:
            with closing(self._chunks(call, clock, stopping)) as chunks:
                for chunk in chunks:
                    if chunk.alive:
                        clock.token()
                    if chunk.text or chunk.reasoning:
                        answer.add(chunk.text, chunk.reasoning)
                    finish, model, usage = chunk.finish or finish, chunk.model or model, _merge(usage, chunk.usage)
        except NoVerdict as error:
            if not finish or error.kind not in ("dropped", "idle"):  # only the statistics after the answer are missing
                error.partial = error.partial or answer.text
                raise
        if finish == "error":
            raise NoVerdict("server_error", f"{self._failures.where} ended the answer with an error", partial=answer.text)
        return answer.reply(finish, model, usage, time.monotonic() - started)

    def window(self, model: str) -> int | None:
        """/props of llama-server (per slot), else what /v1/models says of `model`, else None. Raises NoVerdict when nobody answers."""
        props = self._get("/props", f"{self._root}/props")
        if n_ctx := count(_at(props, "default_generation_settings", "n_ctx")):
            return n_ctx
        models = self._get("/models", f"{self._base}/models")
        data = _at(models, "data")
        listed = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
        entry = next((entry for entry in listed if entry.get("id") == model), listed[0] if len(listed) == 1 else {})
        said = [count(entry.get(key)) for key in _WINDOW_KEYS] + [count(_at(entry, "meta", "n_ctx"))]
        return next((n for n in said if n), None)

    def count(self, text: str) -> int | None:
        """By POST /tokenize (llama-server); None when the server has none or did not answer."""
        try:
            answer = self._ask("/tokenize", Call("POST", f"{self._root}/tokenize", self._headers, {"content": text}))
        except NoVerdict:
            return None
        tokens = _at(answer, "tokens")
        return len(tokens) if isinstance(tokens, list) else None

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def _get(self, route: str, url: str) -> object:
        return self._ask(route, Call("GET", url, self._headers))

    def _ask(self, route: str, call: Call) -> object:
        """A small question's JSON; None when the server does not have this route, which is remembered."""
        if route in self._absent:
            return None
        clock = Clock(self._connect_s, ASK_S, ASK_S, self._failures.where)
        try:
            with self._items(call, clock, _never) as items:
                head, body = _head(items), _read(items, MAX_ANSWER)
        except NoVerdict as error:
            if error.kind != "idle":
                raise
            raise NoVerdict("unreachable", f"{self._failures.where} did not answer {route} within {ASK_S:g} s") from error
        answer = _json(body)
        if head.status == 200:
            return answer
        failure = self._failures.status(head.status, head.headers, body)
        if failure.kind in ("loading", "rate_limited") or (failure.kind == "unauthorized" and _own(answer)):
            raise failure
        if route == "/models" and failure.kind in ("unauthorized", "server_error"):
            raise failure
        if failure.kind != "server_error":
            self._absent.add(route)
        return None

    def _chunks(self, call: Call, clock: Clock, stopping: Callable[[], bool]) -> Generator[Chunk]:
        """Ends at `[DONE]` or at the end of the stream."""
        with self._items(call, clock, stopping) as items:
            head = _head(items)
            if head.status != 200:
                raise self._failures.status(head.status, head.headers, _read(items, MAX_BODY))
            kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind in ("text/html", "application/json"):
                raise self._not_a_stream(_read(items, MAX_BODY))
            parser = EventParser()
            try:
                for event in _events(parser, items):
                    chunk = decode(event)
                    if chunk.error is not None:
                        raise self._failures.in_stream(chunk.error)
                    if chunk.done:
                        return
                    yield chunk
            except BadStream as error:
                raise self._failures.garbage(str(error)) from error
            if not parser.events and parser.foreign:
                raise self._failures.garbage(f"something else than an event stream: {parser.foreign!r}")

    def _not_a_stream(self, body: bytes) -> NoVerdict:
        if is_html(body):
            return self._failures.garbage("an HTML page instead of an answer: a proxy or a web site stands at this url")
        value = _json(body)
        if isinstance(value, dict) and value.get("error"):
            return self._failures.in_stream(value)
        return self._failures.garbage("JSON instead of an event stream")

    def _items(self, call: Call, clock: Clock, stopping: Callable[[], bool]) -> closing[Generator[Head | bytes]]:
        return closing(timed(Exchange(call, connect_s=self._connect_s, tls=self._tls), clock, stopping, self._failures))


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


def _body(request: Request) -> Mapping[str, Any]:
    """`take` moves the seed, so that `nightmill redo` hears another answer."""
    return {
        "model": request.model,
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "temperature": request.temperature,
        "seed": request.seed + request.take,
        "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _merge(old: Usage, new: Usage | None) -> Usage:
    if new is None:
        return old
    return Usage(
        *(
            b if b is not None else a
            for a, b in zip((old.prompt, old.cached, old.completion), (new.prompt, new.cached, new.completion), strict=True)
        )
    )


def _events(parser: EventParser, items: Iterator[Head | bytes]) -> Iterator[Event]:
    for piece in items:
        assert isinstance(piece, bytes)
        yield from parser.feed(piece)
    yield from parser.close()


def _json(body: bytes) -> object:
    """None for anything else."""
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value


def _own(answer: object) -> bool:
    """llama-server itself refuses the key; a gateway that forbids unknown routes looks different."""
    return (_at(answer, "error", "type"), _at(answer, "error", "code")) == ("authentication_error", 401)


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


def _at(value: object, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
