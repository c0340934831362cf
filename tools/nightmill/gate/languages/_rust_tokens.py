"""Rust as tokens: strings of every kind, characters, lifetimes and nested comments kept apart, and every bracket with its partner."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Kind = Literal["name", "lifetime", "string", "char", "number", "punct"]

_SPACE = re.compile(r"(?:[\s\ufeff\u200e\u200f]+|//[^\n]*)+")
_COMMENT = re.compile(r"/\*|\*/")
_RAW = re.compile(r"(?:b|c)?r(#*)\"")
_STRING = re.compile(r"[bc]?\"(?:[^\"\\]|\\.)*\"", re.S)
_CHAR = re.compile(r"b?'(?:[^'\\\n\r\t]|\\(?:u\{[0-9a-fA-F_]*\}|x[0-9a-fA-F]{2}|[^\n]))'")
_LIFETIME = re.compile(r"'(?:r#)?(?:[^\W\d]|_)\w*")
_NUMBER = re.compile(r"0[xob][\da-fA-F_]+\w*|[0-9][0-9_]*(?:\.(?![.\w])|\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9_]+)?\w*")
_NAME = re.compile(r"(?:r#)?(?:[^\W\d]|_)(?:\w|[^\x00-\x7f\s])*")
_PUNCT = re.compile(r"::|->|=>|\.\.\.|\.\.=|\.\.|[{}()\[\];,<>+\-*/%&|^!~?:=.@#$]")
_CLOSERS = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    start: int
    """Offset in the file, in characters."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Unreadable(Exception):
    """No token can begin or end here: `at` is the offset."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, eq=False)
class Code:
    """A file's tokens. `partner`: index of a bracket → index of the one that closes or opens it."""

    text: str
    tokens: Sequence[Token]
    partner: dict[int, int]

    def line(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    def column(self, offset: int) -> int:
        return offset - self.text.rfind("\n", 0, offset)

    def at(self, index: int, *texts: str) -> bool:
        """Whether the tokens from `index` on are these."""
        found = self.tokens[max(index, 0) : index + len(texts)]
        return index >= 0 and [t.text for t in found] == list(texts)

    def over(self, index: int) -> int:
        """The index after this token, or after the whole bracket that it opens."""
        return self.partner.get(index, index) + 1 if self.tokens[index].text in ("(", "[", "{") else index + 1

    def slice(self, first: int, after: int) -> str:
        """The text from one token to before another."""
        return self.text[self.tokens[first].start : self.tokens[after - 1].end] if after > first else ""

    def words(self, first: int, after: int) -> tuple[str, ...]:
        """The tokens of a range as they are written, without what stands between them."""
        return tuple(t.text for t in self.tokens[first:after])


@lru_cache(maxsize=256)
def read(text: str) -> Code:
    """Raises Unreadable for what cannot be Rust: an open string or comment, a bracket without its partner."""
    tokens: list[Token] = []
    at = text.find("\n") if text.startswith("#!") and not re.match(r"#!\s*\[", text) else 0
    at = len(text) if at < 0 else at
    while (at := _space(text, at)) < len(text):
        kind, end = _next(text, at)
        tokens.append(Token(kind, text[at:end], at))
        at = end
    return Code(text, tuple(tokens), _partners(tokens))


def code(text: str) -> Code | None:
    """The file's tokens; None when it cannot be read."""
    try:
        return read(text)
    except Unreadable:
        return None


def _space(text: str, at: int) -> int:
    while True:
        found = _SPACE.match(text, at)
        at = found.end() if found else at
        if not text.startswith("/*", at):
            return at
        at = _comment(text, at)


def _comment(text: str, start: int) -> int:
    depth = 0
    for mark in _COMMENT.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise Unreadable("unterminated block comment", start)


def _next(text: str, at: int) -> tuple[Kind, int]:
    if found := _RAW.match(text, at):
        end = text.find('"' + found[1], found.end())
        if end < 0:
            raise Unreadable("unterminated raw string", at)
        return "string", end + 1 + len(found[1])
    if text[at] == '"' or text[at : at + 2] in ('b"', 'c"'):
        if not (found := _STRING.match(text, at)):
            raise Unreadable("unterminated string", at)
        return "string", found.end()
    kinds: tuple[tuple[Kind, re.Pattern[str]], ...] = (
        ("char", _CHAR),
        ("lifetime", _LIFETIME),
        ("number", _NUMBER),
        ("name", _NAME),
        ("punct", _PUNCT),
    )
    for kind, pattern in kinds:
        if found := pattern.match(text, at):
            return kind, found.end()
    raise Unreadable("unterminated character" if text[at] == "'" else f"unexpected character {text[at]!r}", at)


def _partners(tokens: Sequence[Token]) -> dict[int, int]:
    opened: list[int] = []
    found: dict[int, int] = {}
    for index, token in enumerate(tokens):
        if token.kind != "punct":
            continue
        if token.text in ("(", "[", "{"):
            opened.append(index)
        elif token.text in _CLOSERS:
            if not opened or tokens[opened[-1]].text != _CLOSERS[token.text]:
                raise Unreadable(f"unexpected closing `{token.text}`", token.start)
            found[opened[-1]] = index
            found[index] = opened.pop()
    if opened:
        raise Unreadable(f"`{tokens[opened[-1]].text}` is never closed", tokens[opened[-1]].start)
    return found


def commas(found: Code, first: int, after: int) -> Iterator[tuple[int, int]]:
    """The parts between the commas of a list, as ranges of tokens; angle brackets are not seen. An empty last part is left out."""
    start = index = first
    while index < after:
        if found.tokens[index].text == ",":
            yield start, index
            start = index + 1
        index = found.over(index)
    if start < after:
        yield start, after


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'"}
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F_]+)\}|x([0-9a-fA-F]{2})|\n\s*|(.))", re.S)


def string_value(token: Token) -> str | None:
    """What a string literal says, raw ones included; None for bytes and for any other token."""
    if token.kind != "string" or token.text[0] in "bc":
        return None
    if token.text[0] == "r":
        return token.text[1:].strip("#")[1:-1]
    return _ESCAPE.sub(_unescaped, token.text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    digits = (match[1] or match[2] or "").replace("_", "")
    if digits:
        number = int(digits, 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
    return _ESCAPES.get(match[3], match[3]) if match[3] else ""
