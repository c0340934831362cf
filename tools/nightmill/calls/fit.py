"""Making a prompt fit the window of the slot that will answer. What cannot fit is never sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nightmill.calls.prompts import Section, messages
from nightmill.errors import ConfigError

SHRINK = ("analysis", "tests", "matrix", "source", "schema")
"""Sections that may be left out, in this order. The mission, the contract, the code to change and the task never are."""

LIMIT = "limit"
"""A section that is not sent: the most tokens the answer to this prompt may have. A small model that counts on and on is cut early."""

BYTES_PER_TOKEN = 2.5
"""Where the server has no tokenizer: source code measured 3 to 4 bytes a token on current vocabularies; this leaves a margin."""

MESSAGE_TOKENS = 16
"""Allowance per message for the chat template's own tokens."""

MIN_OUTPUT = 256


@dataclass(frozen=True)
class Fitted:
    sections: list[Section]
    prompt_tokens: int
    max_tokens: int
    left_out: tuple[str, ...]


def bound(text: str) -> int:
    """Tokens in `text`, never meant to be too few."""
    return int(len(text.encode()) / BYTES_PER_TOKEN) + 1


def fit(sections: list[Section], window: int, max_tokens: int, count: Callable[[str], int | None]) -> Fitted:
    """Shrinks in the fixed order until prompt plus output reserve are at most `window` tokens, saying in the prompt what is missing.

    The output reserve is at most half the window. Raises ConfigError, naming the numbers, when even the rest does not fit.
    """
    limit = next((int(s.text) for s in sections if s.name == LIMIT), max_tokens)
    max_tokens, sections = min(max_tokens, limit), [s for s in sections if s.name != LIMIT]
    reserve = max(min(max_tokens, window // 2), min(MIN_OUTPUT, max_tokens))
    left_out: list[str] = []
    candidates = [name for name in SHRINK if any(s.name == name for s in sections)]
    while True:
        tokens = _count(sections, count)
        if tokens + reserve <= window:
            return Fitted(sections, tokens, reserve, tuple(left_out))
        if not candidates:
            needed = f"the smallest prompt and its answer need {tokens + reserve} tokens, but the window is {window}"
            raise ConfigError(f"{needed}: raise the server's context, or use a smaller source")
        name = candidates.pop(0)
        note = f"(The {name} did not fit here and is left out.)"
        if any(s.name == name and len(s.text) > len(note) for s in sections):
            left_out.append(name)
            sections = [Section(name, note) if s.name == name else s for s in sections]


def _count(sections: list[Section], count: Callable[[str], int | None]) -> int:
    parts = messages(sections)
    total = 0
    for message in parts:
        exact = count(message.content)
        total += (exact if exact is not None else bound(message.content)) + MESSAGE_TOKENS
    return total
