"""Every fault on demand: name → what is answered instead. A parameter with a reader in its type can be written beside the fault's name."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nightmill.fake import answers
from nightmill.fake.answers import Answer, Gone, Http, Raw, Recorded, Say
from nightmill.fake.strict import Characters, Count, Flag, Seconds, Status, Text


@dataclass(frozen=True)
class Turn:
    """One chat request, and what would be answered to it."""

    request: Recorded
    number: int
    """Chat requests are counted from 1; 0 for those that only try out what the server can."""
    whole: Say
    """The reply from its beginning."""
    reply: Say
    """What is left of it behind the message that the client wants continued."""
    echo: str = ""
    """That message, where this server repeats it."""


Builder = Callable[..., Answer | None]
"""Takes the Turn and the fault's parameters; None: the fault does not concern this request."""


def loading(turn: Turn, s: Seconds = 0.0) -> Answer:
    """503 as llama-server says it; with `s` on all routes for so long."""
    return answers.loading(s)


def rate_limited(turn: Turn, retry_after: Seconds | None = None) -> Answer:
    """429."""
    wish = {} if retry_after is None else {"Retry_After": f"{retry_after:g}"}
    return answers.error(429, "Rate limit reached for requests: slow down", "rate_limit_error", **wish)


def no_quota(turn: Turn, status: Status = 429) -> Answer:
    """The account is used up; some say 402."""
    return answers.error(status, "You exceeded your current quota, please check your plan and billing details", "insufficient_quota")


def server_error(turn: Turn, status: Status = 500, message: Text = "Internal Server Error") -> Answer:
    """Any 5xx."""
    return answers.error(status, message, "server_error")


def stream_error(turn: Turn, after: Characters | None = None, message: Text = "slot failed: out of memory", code: Status = 500) -> Answer:
    """An error object in the stream, after so many characters."""
    return replace(turn.reply, text=turn.reply.text[: _half(turn, after)], error={"message": message, "code": code, "type": "server_error"})


def unauthorized(turn: Turn, status: Status = 401) -> Answer:
    """The key is refused."""
    return answers.error(status, "Invalid API Key", "authentication_error")


def no_model(turn: Turn) -> Answer:
    """404 for the model."""
    return answers.error(404, f"model '{_asked(turn)}' not found", "not_found_error")


def bad_request(turn: Turn, message: Text = "temperature must be a number below 2") -> Answer:
    """400."""
    return answers.error(400, message, "invalid_request_error")


def too_large(turn: Turn, prompt: Count = 9001, window: Count = 4096) -> Answer:
    """The prompt exceeds the window, as llama-server says it."""
    return answers.too_large(prompt, window)


def drop(turn: Turn, after: Characters | None = None) -> Answer:
    """The connection breaks after so many characters; half of the reply when not said."""
    return replace(turn.reply, drop=_half(turn, after))


def no_finish(turn: Turn, after: Characters | None = None) -> Answer:
    """The stream ends in order, but early and without a stop reason."""
    return replace(turn.reply, text=turn.reply.text[: _half(turn, after)], finish=None)


def hang(turn: Turn, after: Characters | None = None, pings: Flag = False) -> Answer:
    """Silence after so many characters; the connection stays open."""
    return replace(turn.reply, hang=_half(turn, after), pings=pings)


def stall(turn: Turn, s: Seconds = 3600.0, pings: Flag = False) -> Answer:
    """Silence before the first token, for so many seconds."""
    return replace(turn.reply, stall=s, pings=pings)


def length(turn: Turn, after: Characters | None = None) -> Answer:
    """Cut off, with the stop reason `length`."""
    return replace(turn.reply, text=turn.reply.text[: _half(turn, after)], finish="length")


def empty(turn: Turn) -> Answer:
    """Nothing at all."""
    return replace(turn.reply, text="", think="")


def reasoning_only(turn: Turn) -> Answer:
    """The whole reply is sent as reasoning."""
    return replace(turn.reply, text="", echo="", think=turn.whole.text)


def refusal(turn: Turn, text: Text = "") -> Answer:
    """The content filter, after `text`."""
    return replace(turn.reply, text=text, echo="", think="", finish="content_filter")


def loop(turn: Turn, line: Text = "The function returns the value.", lines: Count = 5000) -> Answer:
    """The same line again and again."""
    return answers.loop(line, lines)


def flood(turn: Turn) -> Answer:
    """Text without end that keeps to no `max_tokens`."""
    return answers.flood()


def html(turn: Turn, status: Status = 200) -> Answer:
    """A page of a proxy."""
    return answers.html(status)


def bad_utf8(turn: Turn) -> Answer:
    """Bytes that are no text."""
    return answers.invalid_utf8()


def garbage(turn: Turn) -> Answer:
    """Something else than an event stream."""
    return Raw((b"SSH-2.0-OpenSSH\n",))


def no_stream(turn: Turn) -> Answer:
    """A JSON object where a stream was asked for."""
    return Http(200, b'{"choices": []}', {"Content-Type": "application/json"})


def truncated(turn: Turn, tokens: Count = 64) -> Answer:
    """Only the last `tokens` of the prompt are read, in silence, and counted."""
    return replace(turn.reply, truncate=tokens)


def wrong_model(turn: Turn, model: Text = "another-model") -> Answer:
    """Another model answers than the one that was named."""
    return replace(turn.reply, model=model)


def dead(turn: Turn, s: Seconds = 30.0) -> Answer:
    """All connections break, caches are lost, and for so many seconds nothing listens."""
    return Gone(s)


def restart_continuation(turn: Turn) -> Answer | None:
    """A continuation that starts over."""
    return replace(turn.whole, echo=turn.echo) if turn.request.prefix else None


def repeat_continuation(turn: Turn, lines: Count = 3) -> Answer | None:
    """A continuation that first says the last lines again."""
    if not turn.request.prefix:
        return None
    again = "".join(turn.request.prefix.splitlines(keepends=True)[-lines:])
    return replace(turn.reply, text=again + turn.reply.text)


def refuse_continuation(turn: Turn) -> Answer | None:
    """400 for a last message of the assistant."""
    said = "Assistant response prefill is incompatible with enable_thinking."
    return answers.error(400, said, "invalid_request_error") if turn.request.prefix else None


_NAMED: tuple[Builder, ...] = (
    *(loading, rate_limited, no_quota, server_error, stream_error, unauthorized, no_model, bad_request, too_large, truncated),
    *(drop, no_finish, hang, stall, length, empty, reasoning_only, refusal, loop, flood, html, bad_utf8, garbage, no_stream),
    *(wrong_model, dead, restart_continuation, repeat_continuation, refuse_continuation),
)
FAULTS: Mapping[str, Builder] = {
    **{builder.__name__: builder for builder in _NAMED},
    "unreachable": dead,
    "dropped": drop,
    "idle": hang,
    "restarted": restart_continuation,
}
"""Each failure of providers/base.Kind is here under its own name."""


@dataclass(frozen=True)
class Rule:
    """When a fault comes: at chat requests number `first` to `last` whose label fits the pattern, at most `times` times."""

    fault: str
    given: Mapping[str, object] = field(default_factory=dict)
    first: int = 1
    last: int | None = None
    label: str = "*"
    times: int | None = 1

    def answer(self, turn: Turn) -> Answer | None:
        """None when it does not concern this request."""
        if turn.number < self.first or (self.last is not None and turn.number > self.last):
            return None
        return FAULTS[self.fault](turn, **self.given) if fnmatch.fnmatchcase(turn.request.label, self.label) else None


class Plan:
    """Rules with what is left of them; the first one that fits a request is used. Not safe for threads."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = rules
        self._done = [0] * len(rules)

    def answer(self, turn: Turn) -> tuple[Answer, str] | None:
        """The fault that comes now, and its name."""
        for n, rule in enumerate(self._rules):
            if (rule.times is None or self._done[n] < rule.times) and (answer := rule.answer(turn)) is not None:
                self._done[n] += 1
                return answer, rule.fault
        return None


def _half(turn: Turn, after: int | None) -> int:
    return len(turn.reply.text) // 2 if after is None else after


def _asked(turn: Turn) -> object:
    return turn.request.body.get("model")
