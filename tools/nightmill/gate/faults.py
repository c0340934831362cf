"""A fault put into code to see whether a test notices, and what a language pack must do to make some."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Mutant:
    """One fault: `before` became `after` in a line of a function; `data` is the whole file with it."""

    file: str
    line: int
    function: str
    before: str
    after: str
    data: bytes = field(repr=False)

    @property
    def owner(self) -> str:
        """As `TestOutcome.touched` names functions."""
        return f"{self.file}::{self.function}"


@runtime_checkable
class Mutating(Protocol):
    """A language pack that can put faults into functions."""

    def mutants(self, path: str, text: str) -> list[Mutant]: ...
