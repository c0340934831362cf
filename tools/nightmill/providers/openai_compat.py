"""Any server that speaks `/v1/chat/completions`: llama-server, vLLM, Ollama, LM Studio, hosted ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nightmill.providers import prefill, windows
from nightmill.providers.answer import Answer
from nightmill.providers.base import USUAL, NoVerdict, Reply, Request, Terms
from nightmill.providers.exchange import Clock
from nightmill.providers.sse import Chunk, Usage, count
from nightmill.providers.wire import Wire, at

CONNECT_S = 10.0
FIRST_TOKEN_S = 900.0
"""The prefill of a long prompt where nothing has been measured: 32,000 tokens at 35 a second, the slowest that is still of use."""
IDLE_S = 120.0
"""Between tokens, likewise: another request's prefill may come between them."""
CHARS_PER_TOKEN = 4
"""The usual rule of thumb, for the part of an answer that no tokenizer counts."""


class OpenAICompat:
    """`url` with or without `/v1`. Times in seconds: `connect_s` to connect, `first_token_s` from there to the first token (the
    prefill; its progress reports restart it), `idle_s` between tokens; pings do not count. The terms of a call override the last two;
    None is FIRST_TOKEN_S and IDLE_S. There is no limit on the whole.

    Raises ConfigError for a URL or key that cannot be used. Methods raise NoVerdict for everything the server or network does.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        api_key: str | None,
        idle_s: float | None = None,
        connect_s: float = CONNECT_S,
        first_token_s: float | None = None,
    ) -> None:
        self.name = name
        self._wire = Wire(name, url, api_key, connect_s)
        self._idle_s = IDLE_S if idle_s is None else idle_s
        self._first_token_s = FIRST_TOKEN_S if first_token_s is None else first_token_s
        self._model = ""
        """The model last asked for: gateways tokenize by its name."""
        self._forms: dict[str, prefill.Form | None] = {}
        self._counts = False
        """It has told the tokens of a text."""

    def complete(self, request: Request, on_text: Callable[[str], None], stopping: Callable[[], bool], terms: Terms = USUAL) -> Reply:
        """Streams one answer. Raises NoVerdict with the text so far in `partial`, Stopped within about POLL_S of a stop.

        `restarted`: the resumed text cannot be continued here, or was not; the same call without it may do. White space at its end is
        not sent: see continuation.cut.
        """
        started = time.monotonic()
        self._model = request.model
        answer = Answer(request, on_text, terms)
        resume = terms.resume.rstrip()
        clock = self._clock(terms)
        body = _body(request)
        if self._wire.llama:
            body["return_progress"] = True
        if resume:
            body.update(self._behind(request, resume))
        heard = _Heard()
        try:
            self._stream(body, clock, stopping, request.label, answer, heard)
            return answer.reply(heard.finish, heard.model, heard.usage, time.monotonic() - started, clock.first_token_s)
        except NoVerdict as error:
            if resume and error.kind == "bad_request":
                self._forms[request.model] = None
                raise NoVerdict("restarted", f"a begun answer was refused: {error.detail}") from error
            if error.kind != "restarted":
                error.partial = error.partial or answer.text
            error.spent = heard.usage.spent(time.monotonic() - started, clock.first_token_s)
            raise

    def window(self, model: str) -> int | None:
        """As windows.ASKERS say, else None. Raises NoVerdict when nobody answers. A model that must be loaded for that is loaded."""
        self._model = model
        return windows.told(self._wire, model, lambda: self._read(model, "Hello."))

    def probe(self, model: str) -> int | None:
        """See windows.measured; up to PROBE_CAP tokens, with one token of answer to each prompt."""
        return windows.measured(lambda prompt: self._read(model, prompt))

    def count(self, text: str) -> int | None:
        """By POST /tokenize, in a form that llama-server and vLLM both read; None when the server has none, or refuses this text.

        Raises NoVerdict when it does not answer now: an estimate in place of its count would make another prompt of the same question.
        """
        body = {"model": self._model, "content": text, "prompt": text, "add_special_tokens": False}
        answer = self._wire.ask("/tokenize", body if self._model else {name: body[name] for name in body if name != "model"})
        tokens = at(answer, "tokens")
        number = len(tokens) if isinstance(tokens, list) else count(at(answer, "count"))
        if number is None and answer is None and self._counts and self._wire.has("/tokenize"):
            raise NoVerdict("server_error", f"{self._wire.where} counts no tokens now, and did before")
        self._counts = self._counts or number is not None
        return number

    def continues(self, model: str) -> bool:
        """As prefill.form finds out, once per model. False, and not remembered, when that cannot be learnt now."""
        try:
            return self._form(model) is not None
        except NoVerdict:
            return False

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def _clock(self, terms: Terms) -> Clock:
        first, idle = terms.first_token_s, terms.idle_s
        return self._wire.clock(self._first_token_s if first is None else first, self._idle_s if idle is None else idle)

    def _stream(
        self, body: Mapping[str, Any], clock: Clock, stopping: Callable[[], bool], label: str, answer: Answer, heard: _Heard
    ) -> None:
        """The text goes to `answer`, all else to `heard`."""
        try:
            with self._wire.completion(body, clock, stopping, label) as chunks:
                for chunk in chunks:
                    if chunk.alive:
                        clock.token()
                    elif chunk.progress:
                        clock.progress()
                    if chunk.refusal:
                        answer.refuse(chunk.refusal)
                    if chunk.text or chunk.reasoning:
                        answer.add(chunk.text, chunk.reasoning)
                    heard.add(chunk)
        except NoVerdict as error:
            if not heard.finish or error.kind not in ("dropped", "idle"):  # only the statistics after the answer are missing
                raise
        if heard.finish == "error":
            raise NoVerdict("stream_error", f"{self._wire.where} ended the answer with an error")

    def _behind(self, request: Request, resume: str) -> Mapping[str, Any]:
        """What of the body differs when the answer has begun with `resume`: it may become as long as in one piece, and no longer."""
        form = self._form(request.model)
        if form is None:
            raise NoVerdict("restarted", f"{self._wire.where} does not continue a begun answer of {request.model}")
        written = self.count(resume)
        left = request.max_tokens - (len(resume) // CHARS_PER_TOKEN if written is None else written)
        return {"messages": [*_messages(request), {"role": "assistant", "content": resume}], "max_tokens": max(1, left), **form}

    def _form(self, model: str) -> prefill.Form | None:
        if model not in self._forms:
            self._forms[model] = prefill.form(self._wire, model, self._first_token_s)
        return self._forms[model]

    def _read(self, model: str, prompt: str) -> int | None:
        """Tokens of the prompt that the server says it has read; it answers with one. Loads the model, where the server does that."""
        message = {"role": "user", "content": prompt}
        body = {"model": model, "messages": [message], "temperature": 0, "max_tokens": 1, **_STREAM}
        return self._wire.short(body, self._first_token_s, "probe:window").usage.prompt


@dataclass
class _Heard:
    """What a stream has told so far, beside the text."""

    finish: str = ""
    """The stop reason."""
    model: str = ""
    """Who answers."""
    usage: Usage = field(default_factory=Usage)

    def add(self, chunk: Chunk) -> None:
        self.finish, self.model, self.usage = chunk.finish or self.finish, chunk.model or self.model, self.usage.merge(chunk.usage)


_STREAM: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def _messages(request: Request) -> list[Mapping[str, str]]:
    return [{"role": message.role, "content": message.content} for message in request.messages]


def _body(request: Request) -> dict[str, Any]:
    """`take` moves the seed, so that `nightmill redo` hears another answer."""
    return {
        "model": request.model,
        "messages": _messages(request),
        "temperature": request.temperature,
        "seed": request.seed + request.take,
        "max_tokens": request.max_tokens,
        **_STREAM,
    }
