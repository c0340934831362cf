"""Making a prompt fit the window of the slot that will answer. What cannot fit is never sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nightmill.calls.bound import BYTES_PER_TOKEN, bound
from nightmill.calls.prompts import Section, messages
from nightmill.errors import ConfigError

__all__ = ["BYTES_PER_TOKEN", "Fitted", "bound", "fit", "unread"]

SHRINK = ("analysis", "tests", "matrix", "source", "schema")
"""Sections that may be left out, in this order. The mission, the contract, the code to change and the task never are."""

LIMIT = "limit"
"""A section that is not sent: the most tokens the answer to this prompt may have. A small model that counts on and on is cut early."""

MESSAGE_TOKENS = 16
"""Allowance per message for the chat template's own tokens."""

MIN_OUTPUT = 256

EXACT_SHARE = 0.9
"""Of our count by the server's own tokenizer, the server must report at least this share, less SLACK_TOKENS."""
SLACK_TOKENS = 64
SUSPECT_BYTES = 5.0
"""Bytes a token from which a count by bytes alone is doubted: text and code measured 2.5 to 4.5 on current vocabularies."""
SAMPLE_BYTES = 4000
SAMPLE_SHARE = 1.3
"""A whole prompt may hold so many times the bytes a token of a piece cut from its middle; beyond it, a part was not read."""


@dataclass(frozen=True)
class Fitted:
    sections: list[Section]
    prompt_tokens: int
    """Counted by the server's tokenizer (`exact`), or bounded."""
    max_tokens: int
    """Reserve for the answer and what is thought before it."""
    left_out: tuple[str, ...]
    exact: bool = False

    @property
    def bytes(self) -> int:
        return sum(len(m.content.encode()) for m in messages(self.sections))


def fit(sections: list[Section], window: int, max_tokens: int, count: Callable[[str], int | None], reasoning_tokens: int = 0) -> Fitted:
    """Shrinks in the fixed order until prompt, output reserve and reasoning reserve are together at most `window` tokens, saying in the
    prompt what is missing.

    The output reserve is at most half of what the reasoning reserve leaves. Raises ConfigError, naming the numbers, when even the rest
    does not fit.
    """
    limit = next((int(s.text) for s in sections if s.name == LIMIT), max_tokens)
    max_tokens, sections = min(max_tokens, limit), [s for s in sections if s.name != LIMIT]
    reserve = max(min(max_tokens, (window - reasoning_tokens) // 2), min(MIN_OUTPUT, max_tokens)) + reasoning_tokens
    left_out: list[str] = []
    candidates = [name for name in SHRINK if any(s.name == name for s in sections)]
    while True:
        tokens, exact = _count(sections, count)
        if tokens + reserve <= window:
            return Fitted(sections, tokens, reserve, tuple(left_out), exact)
        if not candidates:
            thoughts = f" and {reasoning_tokens} of reasoning" if reasoning_tokens else ""
            parts = f"the smallest prompt, {tokens} tokens, and its answer, {reserve - reasoning_tokens}{thoughts},"
            needed = f"{parts} need {tokens + reserve} tokens, but the window is {window}"
            raise ConfigError(f"{needed}: raise the server's context, lower `max_tokens`, or use a smaller source")
        name = candidates.pop(0)
        note = f"(The {name} did not fit here and is left out.)"
        if any(s.name == name and len(s.text) > len(note) for s in sections):
            left_out.append(name)
            sections = [Section(name, note) if s.name == name else s for s in sections]


def _count(sections: list[Section], count: Callable[[str], int | None]) -> tuple[int, bool]:
    counts = [(count(message.content), message.content) for message in messages(sections)]
    total = sum((bound(text) if exact is None else exact) + MESSAGE_TOKENS for exact, text in counts)
    return total, all(exact is not None for exact, _ in counts)


def unread(fitted: Fitted, reported: int | None, sample: Callable[[str], int | None]) -> str:
    """Why the server cannot have read the whole prompt, from the `reported` number of its tokens; "" when it may have.

    `sample(text)`: tokens that the server reports for a short text. Asked only where our own count is a bound and the report looks small.
    """
    if reported is None:
        return ""
    if fitted.exact:
        short = reported < EXACT_SHARE * fitted.prompt_tokens - SLACK_TOKENS
        return f"it read {reported} of the prompt's {fitted.prompt_tokens} tokens" if short else ""
    if fitted.bytes / max(reported, 1) <= SUSPECT_BYTES or fitted.bytes <= 2 * SAMPLE_BYTES:
        return ""
    text = max((m.content for m in messages(fitted.sections)), key=len)
    piece = text[len(text) // 2 :].encode()[:SAMPLE_BYTES].decode(errors="ignore")
    tokens = sample(piece)
    if not tokens or tokens <= MESSAGE_TOKENS:
        return ""
    expected = fitted.bytes * tokens / len(piece.encode())
    short = reported * SAMPLE_SHARE < expected
    return f"it read {reported} of about {expected:.0f} tokens of the prompt" if short else ""
