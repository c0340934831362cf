"""The parts of a reply, what became of them, and the exception that refuses one of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from nightmill.edits.lines import is_blank


class Refused(Exception):
    """One part of a reply cannot be applied: a reason word, the lines that explain it to the model, the guard that objected.

    The lines may come from a generator: those of failures that are not told in full are never worked out.
    """

    def __init__(self, reason: str, details: str | Iterable[str], guard: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.details = (details,) if isinstance(details, str) else details
        self.guard = guard


class Split(NamedTuple):
    """One reading of a block's body: what to look for and what to put there."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A SEARCH/REPLACE block. `dividers` are the indexes in `body` at which it may be split; most blocks have one."""

    number: int
    path: str
    body: tuple[str, ...]
    dividers: tuple[int, ...]
    length: int = 7
    """Characters of the opener's marker."""
    odd_divider: bool = False
    """The divider is not as long as the opener."""
    rivals: tuple[str, ...] = ()
    """Other files named near the block: its SEARCH must not match in these."""

    def split(self, divider: int) -> Split:
        return Split(self.body[:divider], self.body[divider + 1 :])

    @cached_property
    def first_filled(self) -> int:
        """The index in `body` of the first line that is not blank."""
        return next((at for at, line in enumerate(self.body) if not is_blank(line)), len(self.body))

    @property
    def creates(self) -> bool:
        """SEARCH is empty, or nothing but blank lines."""
        return self.first_filled >= self.dividers[0]


@dataclass(frozen=True)
class WholeFile:
    number: int
    path: str
    lines: tuple[str, ...]
    certain: bool = True
    """False when another fence could be the file's end just as well."""
    followed: bool = False
    """Another fence without a path comes next: perhaps the first shows the old text and the second the new."""


@dataclass(frozen=True)
class Delete:
    number: int
    path: str


Item = Block | WholeFile | Delete


@dataclass(frozen=True)
class Failure:
    """A refused part. `number` counts the parts of the reply from 1; 0 stands for the reply as a whole."""

    reason: str
    number: int = 0
    path: str = ""
    details: Iterable[str] = ()
    guard: str = ""
    fingerprint: str = ""
    """Same path and same SEARCH give the same fingerprint, empty for other parts."""

    @classmethod
    def of(cls, refused: Refused, number: int = 0, path: str = "", fingerprint: str = "") -> Failure:
        return cls(refused.reason, number, path, refused.details, refused.guard, fingerprint)


@dataclass(frozen=True)
class Outcome:
    """What became of a reply: either `refused` holds the text for the model, or `changed` names what was created, edited, deleted."""

    refused: str = ""
    changed: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    """One reason word for each failed part, in reply order."""
    guards: tuple[str, ...] = ()
    """Names of the guards that fired, once per firing."""
    failed: tuple[str, ...] = ()
    """Fingerprints of the blocks that failed: hand them back as `failed_before` with the next reply."""
    hand_back: bool = False
    """The same SEARCH has now failed three times: asking again will not help."""
    tree: dict[str, bytes] = field(default_factory=dict)
    """The whole new tree; filled by `plan_edits` only."""


def fingerprint(path: str, search: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join((path, *search)).encode()).hexdigest()[:16]
