"""Keeps secrets out of a run: values the program knows (environment, API keys) and texts that look like a key (secret_shapes).

A secret becomes `REDACTED_SECRET_<digits>`, the same word for the same value everywhere.
"""

from __future__ import annotations

import base64
import json
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nightmill.secret_shapes import PLACEHOLDER, PREFIX, SHORT, by_shape, placeholder

MIN_KNOWN = 8
"""Characters. What is shorter occurs in texts by chance."""
_NAME_PARTS = """
KEY KEYS APIKEY TOKEN TOKENS SECRET SECRETS PASSWORD PASSWORDS PASSWD PASSPHRASE CREDENTIAL CREDENTIALS
"""
_NAMES = frozenset(_NAME_PARTS.split())
_PLAIN = re.compile(r"[A-Za-z]{1,15}|[\d.,:_ -]+|0x[0-9a-fA-F]{1,8}")
_PATH = re.compile(r"(?:/|~/|\.{1,2}/|[A-Za-z]:\\)[\w./~@ +-]*|[a-z][a-z0-9+.-]*://\S*")
_URL_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")


@dataclass(frozen=True)
class Redactor:
    """`values` are known secrets. Immutable, so safe between threads; every process that knows the same values gives the same texts."""

    values: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"Redactor({len(self.values)} values)"

    def __call__(self, text: str) -> str:
        """Known values and everything that looks like a secret. Linear in the text; idempotent; keeps the number of lines."""
        return by_shape(self.known(text))

    def known(self, text: str) -> str:
        """Known values only: for what a model or a program wrote, which must not be changed for its looks."""
        for written, word in self._written:
            if written in text:
                text = text.replace(written, word)
        return text

    def known_bytes(self, data: bytes) -> bytes:
        """The same for a file."""
        for written, word in self._written_bytes:
            if written in data:
                data = data.replace(written, word)
        return data

    def file(self, data: bytes) -> bytes:
        """A text file of the person; what is no UTF-8 is searched for known values only."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return self.known_bytes(data)
        redacted = self(text)
        return data if redacted == text else redacted.encode("utf-8")

    def strings(self, value: Any) -> Any:
        """The same value (of dicts, lists, tuples, scalars) with every string in it redacted, keys of dicts included."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {self.strings(k): self.strings(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.strings(v) for v in value)
        return value

    def trickle(self) -> Trickle:
        """For a text that arrives in pieces."""
        return Trickle(self)

    @cached_property
    def _written(self) -> tuple[tuple[str, str], ...]:
        """(as it may be written, its placeholder), longest first: what contains another goes before it."""
        forms = {form: placeholder(value) for value in sorted(self.values) for form in _forms(value)}
        return tuple(sorted(forms.items(), key=lambda pair: (-len(pair[0]), pair[0])))

    @cached_property
    def _written_bytes(self) -> tuple[tuple[bytes, bytes], ...]:
        return tuple((written.encode("utf-8", "surrogateescape"), word.encode()) for written, word in self._written)


SHAPES_ONLY = Redactor()
"""Knows no values: shapes only."""


class Trickle:
    """Redacts known values in a text that comes piece by piece: what could be the beginning of one is held back. One thread at a time."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def add(self, piece: str) -> str:
        """What may be shown or written now."""
        text = self._redactor.known(self._held + piece)
        keep = max((_overlap(text, written) for written, _ in self._redactor._written), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def end(self) -> str:
        """What was held back and turned out to be harmless."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, value: str) -> int:
    """The length of the longest end of `text` with which `value` begins."""
    start = max(0, len(text) - len(value) + 1)
    return next((len(text) - n for n in range(start, len(text)) if value.startswith(text[n:])), 0)


def _forms(value: str) -> set[str]:
    """A value as it stands in texts, in JSON, in URLs and in base64; of one with several lines, also each line that is long enough."""
    parts = {value, *(line.strip() for line in value.splitlines() if len(line.strip()) >= SHORT)}
    return {form for part in parts for form in _spelt(part)}


def _spelt(part: str) -> Iterator[str]:
    yield from (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1])
    yield from (urllib.parse.quote(part, safe="", errors="surrogateescape"), urllib.parse.quote(part, errors="surrogateescape"))
    yield base64.b64encode(part.encode("utf-8", "surrogateescape")).decode().rstrip("=")


def from_environment(environ: Mapping[str, str]) -> frozenset[str]:
    """Values of variables that are named like a secret, and passwords in URLs.

    A name counts by its whole parts: `GH_TOKEN`, not `KEYBOARD`. Paths, URLs, numbers, short single words and what is
    shorter than MIN_KNOWN are not taken.
    """
    return frozenset(known(_candidates(environ)))


def of_process() -> Redactor:
    """Knows the secrets of this process's environment; for what is said outside of a run."""
    return Redactor(from_environment(os.environ))


def _candidates(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        if _NAMES & set(re.split(r"[^A-Z0-9]+", name.upper())) and not _PATH.fullmatch(value.strip()):
            yield value
        yield from _URL_PASSWORD.findall(value)


def known(values: Iterable[str | None]) -> Iterator[str]:
    """Those of `values` that can be looked for without hitting ordinary text."""
    for value in values:
        value = (value or "").strip()
        if len(value) >= MIN_KNOWN and not _PLAIN.fullmatch(value) and value not in PREFIX and not PLACEHOLDER.search(value):
            yield value


def replaced(text: str) -> int:
    """How many different secrets a redacted text stands for."""
    return len(set(PLACEHOLDER.findall(text)))
