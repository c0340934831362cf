"""What a provider is asked and what it gives back; the reasons for which no verdict on the model is possible."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal[
    "unreachable",  # refused, no route, DNS, TLS
    "unauthorized",  # 401, 403
    "no_quota",  # 402, or a 429 that says the account is used up
    "no_model",  # 404 on the model or the route
    "rate_limited",  # 429
    "loading",  # 503 while a model loads
    "server_error",  # 5xx
    "stream_error",  # an error object in a stream that had begun
    "bad_request",  # any other 4xx
    "too_large",  # the server says that prompt plus output exceed its window
    "truncated",  # the server answered a part of the prompt and did not say so
    "dropped",  # the stream ended without a stop reason
    "idle",  # no token for the idle timeout
    "length",  # cut off at max_tokens
    "empty",  # nothing at all
    "reasoning_only",  # it thought, and gave no answer
    "refusal",  # the server's or the model's own content filter
    "loop",  # the same lines again and again
    "restarted",  # a continuation that began again or repeated itself
    "html",  # a page of a proxy or a web site
    "bad_utf8",  # bytes that are no text
    "garbage",  # anything else that is no event stream
]


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a call used, by the server's own count; None where it told nothing. Seconds are wall time."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """The part of the prompt that came from the server's cache."""
    evaluated_tokens: int | None = None
    """The part of the prompt that was computed for this call."""
    completion_tokens: int | None = None
    seconds: float = 0.0
    first_token_s: float | None = None
    """From the connection to the first token."""


class NoVerdict(Exception):
    """A call ended without a reply that says anything about the model: never charged to an agent.

    `partial` holds the text received so far; `retry_after` is the server's own wish in seconds, when it sent one; `remedy` is what the
    person can do, where the provider knows it better than the table in calls/outcome; `spent` is what it cost all the same.
    """

    spent = Spent()

    def __init__(self, kind: Kind, detail: str, *, partial: str = "", retry_after: float | None = None, remedy: str = "") -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.partial = partial
        self.retry_after = retry_after
        self.remedy = remedy


@dataclass(frozen=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Request:
    """One call. `label` says what it is for (`contract:1#1`): shown to the person, used by the scripted provider, not part of the key."""

    model: str
    messages: tuple[Message, ...]
    temperature: float
    seed: int
    max_tokens: int
    label: str
    take: int = 0
    """Raised by `nightmill redo`, so that the same question is asked afresh."""

    @property
    def key(self) -> str:
        """SHA-256 over everything that is sent, hex."""
        sent = [self.model, [[m.role, m.content] for m in self.messages], self.temperature, self.seed, self.max_tokens, self.take]
        return hashlib.sha256(json.dumps(sent, ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True)
class Terms:
    """How one call is made: no part of what is asked, so no part of its key. Times in seconds; None is the provider's own default."""

    first_token_s: float | None = None
    """From the connection to the first token: the prefill of this prompt. Progress reports restart it."""
    idle_s: float | None = None
    """Between tokens."""
    resume: str = ""
    """What an interrupted call had written of this answer: the provider goes on behind it. Only for one that `continues`."""
    on_thought: Callable[[str], None] | None = None
    """Gets each piece of reasoning as it comes: such an answer cannot be continued later."""


USUAL = Terms()
"""All of it the provider's own defaults."""


@dataclass(frozen=True)
class Reply(Spent):
    """A finished answer."""

    text: str
    model: str
    finish: str = "stop"
    reasoning: str = ""
    estimated: bool = False
    """The token counts are estimates of ours, not the server's."""
    resumed: int = 0
    """Characters at the start of `text` that an interrupted call had written; the counts are those of the rest."""


class Provider(Protocol):
    name: str

    def complete(self, request: Request, on_text: Callable[[str], None], stopping: Callable[[], bool], terms: Terms = USUAL) -> Reply:
        """Streams one answer; `on_text` gets each piece of visible text as it comes, without what was resumed.

        Raises NoVerdict, or errors.Stopped soon after `stopping()` turns true.
        """

    def window(self, model: str) -> int | None:
        """Context window of the slot that will answer, in tokens; None when the server does not say. Raises NoVerdict."""

    def probe(self, model: str) -> int | None:
        """The same, measured with prompts of growing size; None when that shows nothing. Raises NoVerdict."""

    def count(self, text: str) -> int | None:
        """Tokens in `text` by the server's own tokenizer; None when it has none. Raises NoVerdict when it does not answer now."""

    def continues(self, model: str) -> bool:
        """Whether it can go on behind the beginning of an answer: probed once, never assumed. False when nobody answers."""

    def close(self) -> None: ...
