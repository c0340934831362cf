"""JavaScript as tokens: strings, templates, comments and regular expressions kept apart from code, and every bracket with its partner."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Kind = Literal["name", "punct", "number", "string", "template", "regex"]

_SPACE = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/|<!--[^\n]*)+", re.S)
_NAME = re.compile(r"[#]?(?:[\w$]|\\u\{?[0-9a-fA-F]+\}?|[^\x00-\x7f\s])+")
_NUMBER = re.compile(r"0[xXbBoO][\da-fA-F_]+n?|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d[\d_]*)?n?")
_STRING = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"", re.S)
_REGEX = re.compile(r"/(?![*/])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-zA-Z]*")
_TEMPLATE_TEXT = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*", re.S)
_PUNCT = re.compile(
    r">>>=|\.\.\.|===|!==|\*\*=|<<=|>>=|>>>|&&=|\|\|=|\?\?=|=>|==|!=|<=|>=|&&|\|\||\?\?|\?\.(?!\d)"
    r"|\+\+|--|\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<|>>|\*\*|[{}()\[\];,<>+\-*/%&|^!~?:=.@]"
)
_CLOSERS = {")": "(", "]": "[", "}": "{"}
_BEFORE_REGEX = frozenset(
    {"return", "typeof", "instanceof", "in", "of", "new", "delete", "void", "throw", "case", "do", "else", "yield", "await", "extends"}
)
_CONDITIONS = frozenset({"if", "while", "for", "with"})
_BEFORE_BLOCK = frozenset({")", ";", "{", "}", "else", "do", "try", "finally", "=>"})
_DEEPEST = 60
"""Templates within templates."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    start: int
    """Offset in the file, in characters."""
    fresh: bool
    """Whether it is the first on its line."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Unreadable(Exception):
    """No token can begin or end here: `at` is the offset."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True)
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


@lru_cache(maxsize=256)
def read(text: str) -> Code:
    """Raises Unreadable for what cannot be JavaScript: an open string, a bracket without its partner."""
    tokens: list[Token] = []
    _scan(text, 0, tokens, 0)
    return Code(text, tuple(tokens), _partners(tokens))


def _scan(text: str, at: int, tokens: list[Token], depth: int) -> int:
    """Reads tokens up to the end, or within a template to the brace that ends its substitution; returns the offset there."""
    if depth > _DEEPEST:
        raise Unreadable("templates nested too deeply", at)
    if not depth and text.startswith("#!"):
        at = (text + "\n").index("\n")
    open_braces, began = 0, len(tokens)
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at >= len(text):
            if depth:
                raise Unreadable("unterminated template", at)
            return at
        kind, end = _next(text, at, tokens, began, depth)
        piece = text[at:end]
        if depth and piece == "}" and open_braces == 0:
            return at
        open_braces += (piece == "{") - (piece == "}")
        fresh = not tokens or "\n" in text[tokens[-1].end : at]
        tokens.append(Token(kind, piece, at, fresh))
        at = end


def _next(text: str, at: int, tokens: list[Token], began: int, depth: int) -> tuple[Kind, int]:
    character = text[at]
    if character == "`":
        return "template", _template(text, at, depth)
    if character in "'\"":
        if not (found := _STRING.match(text, at)):
            raise Unreadable("unterminated string", at)
        return "string", found.end()
    if character.isdigit() or (character == "." and text[at + 1 : at + 2].isdigit()):
        number = _NUMBER.match(text, at)
        assert number is not None or not character.isascii()
        return "number", number.end() if number else at + 1
    if found := _NAME.match(text, at):
        return "name", found.end()
    if text.startswith("/*", at):
        raise Unreadable("unterminated comment", at)
    if character == "/" and _may_be_regex(tokens, began):
        if not (found := _REGEX.match(text, at)):
            raise Unreadable("unterminated regular expression", at)
        return "regex", found.end()
    if not (found := _PUNCT.match(text, at)):
        raise Unreadable(f"unexpected character {character!r}", at)
    return "punct", found.end()


def _template(text: str, at: int, depth: int) -> int:
    start, at = at, at + 1
    while True:
        found = _TEMPLATE_TEXT.match(text, at)
        at = found.end() if found else at
        if text.startswith("`", at):
            return at + 1
        if not text.startswith("${", at):
            raise Unreadable("unterminated template", start)
        at = _scan(text, at + 2, [], depth + 1) + 1


def _may_be_regex(tokens: list[Token], began: int) -> bool:
    """Whether a slash here begins a regular expression rather than a division."""
    if len(tokens) == began:
        return True
    last = tokens[-1]
    if last.kind == "name":
        return last.text in _BEFORE_REGEX and not (len(tokens) > began + 1 and tokens[-2].text == ".")
    if last.kind != "punct" or last.text in ("]", "++", "--"):
        return False
    if last.text not in (")", "}"):
        return True
    opener = _opener(tokens, began)
    before = tokens[opener - 1].text if opener > began else ";"
    return before in (_CONDITIONS if last.text == ")" else _BEFORE_BLOCK)


def _opener(tokens: list[Token], began: int) -> int:
    depth = 0
    for index in range(len(tokens) - 1, began - 1, -1):
        if tokens[index].kind == "punct":
            depth += (tokens[index].text in ")]}") - (tokens[index].text in "([{")
            if depth == 0:
                return index
    return began


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
                raise Unreadable(f"unexpected token '{token.text}'", token.start)
            found[opened[-1]] = index
            found[index] = opened.pop()
    if opened:
        raise Unreadable(f"'{tokens[opened[-1]].text}' is never closed", tokens[opened[-1]].start)
    return found


def commas(code: Code, first: int, after: int) -> Iterator[tuple[int, int]]:
    """The parts between the commas of a list, as ranges of tokens; an empty last part is left out."""
    start = index = first
    while index < after:
        if code.tokens[index].text == "," and code.tokens[index].kind == "punct":
            yield start, index
            start = index + 1
        index = code.over(index)
    if start < after:
        yield start, after


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.S)


def string_value(token: Token) -> str | None:
    """What a string or a template without substitutions says; None for any other token."""
    if token.kind == "string" or (token.kind == "template" and "${" not in token.text):
        return _ESCAPE.sub(_unescaped, token.text[1:-1])
    return None


def _unescaped(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits:
        return chr(min(int(digits, 16), 0x10FFFF))
    return _ESCAPES.get(match[4], match[4])
