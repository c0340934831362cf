"""From located blocks to a file's new bytes: what changes, where two blocks collide, which ending each line gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nightmill.edits.align import changes
from nightmill.edits.items import Refused
from nightmill.edits.lines import Text
from nightmill.edits.locate import Hit


@dataclass(frozen=True)
class Hunk:
    """Lines start..end of the file become `new`; an empty range inserts before line `start`. Context of a block is in no hunk."""

    start: int
    end: int
    new: tuple[str, ...]
    ending: str
    number: int

    @property
    def inserts(self) -> bool:
        return self.start == self.end

    @property
    def grows(self) -> bool:
        return len(self.new) > self.end - self.start

    def collides(self, later: Hunk) -> bool:
        """Do both change one line or insert at one point? `later` starts at the same line or behind."""
        if self.number == later.number or later.start > self.end:
            return False
        if later.start < self.end:
            return True
        return (self.inserts or later.inserts) and self.grows and later.grows


def hunks_of(hit: Hit, text: Text, number: int) -> list[Hunk]:
    """The changes of block `number`, located at one place. New lines take the ending of the first matched line."""
    place = hit.places[0]
    ending = text.endings[place.start]
    return [
        Hunk(place.start + change.start, place.start + change.end, place.replace[change.new_start : change.new_end], ending, number)
        for change in changes(hit.search, hit.replace)
    ]


def edited(text: Text, hunks: Iterable[Hunk]) -> bytes:
    """The file's new bytes. Raises Refused when two hunks collide."""
    pairs: list[tuple[str, str]] = []
    at = 0
    ordered = sorted(hunks, key=lambda hunk: (hunk.start, hunk.end))
    _demand_no_collision(ordered)
    for hunk in ordered:
        pairs += zip(text.lines[at : hunk.start], text.endings[at : hunk.start], strict=True)
        pairs += ((line, hunk.ending) for line in hunk.new)
        at = hunk.end
    pairs += zip(text.lines[at:], text.endings[at:], strict=True)
    return text.with_lines(pairs)


def _demand_no_collision(ordered: Sequence[Hunk]) -> None:
    for first, second in pairwise(ordered):
        if first.collides(second):
            raise Refused(
                "conflict",
                f"blocks {min(first.number, second.number)} and {max(first.number, second.number)} both change line {second.start + 1}"
                " or insert there: merge them into one block.",
            )
