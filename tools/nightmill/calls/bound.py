"""How many tokens a text can be at most, for a server that has no tokenizer to ask."""

from __future__ import annotations

import re

BYTES_PER_TOKEN = 2.5
"""Source code and prose measured 3 to 4.5 bytes a token on current vocabularies; this leaves a margin."""

_WORD = 20
"""Letters; a longer run is no word."""

_PIECE = re.compile(
    r"(?P<blob>(?=[A-Za-z+/]{0,23}[0-9])[A-Za-z0-9+/]{24,})"  # base64, hex, a hash
    r"|(?P<word>[A-Z]?[a-z]+)|(?P<capitals>[A-Z]+)|(?P<signs>[!-/:-@\[-`{-~]+)"
    r"|(?P<one>[0-9\n\x80-\u07ff]|\ (?=[0-9]))|(?P<rare>[\u0800-\uffff])|(?P<emoji>[\U00010000-\U0010ffff])"
)
_SHARE = {"blob": 1.0, "capitals": 0.6, "signs": 0.75, "one": 1.0, "rare": 1.7, "emoji": 3.0}
"""Tokens a character, rounded up from what Qwen 2.5 (152,000 tokens) takes for such text at the worst: every digit is one, an emoji
may be three, a run of base64 0.75 a character and of hex 0.9."""


def bound(text: str) -> int:
    """Tokens in `text`, meant never to be too few: by its bytes, or by its pieces where those come to more.

    Measured on a real llama-server with source, prose in nine scripts, tables of numbers, base64, random letters, signs and emoji: 1.0 to
    1.9 times the real number for what is ASCII, up to 4 times for other scripts.
    """
    pieces = sum(_tokens(str(piece.lastgroup), piece.end() - piece.start()) for piece in _PIECE.finditer(text))
    return int(max(len(text.encode(errors="replace")) / BYTES_PER_TOKEN, pieces)) + 1


def _tokens(kind: str, length: int) -> float:
    if kind == "word":
        return -(-length // 4) if length <= _WORD else _SHARE["capitals"] * length
    return max(1.0, _SHARE[kind] * length)
