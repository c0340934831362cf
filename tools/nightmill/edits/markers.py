"""The three markers of a SEARCH/REPLACE block: finding them in a reply and cutting one block out."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from nightmill.edits.fences import CHAT_END
from nightmill.edits.items import Refused
from nightmill.edits.lines import is_blank

_OPENER = re.compile(r"[ \t]*(<{5,})[ \t]*SEARCH[ \t]*>?[ \t]*")
_DIVIDER = re.compile(r"[ \t]*(={5,})[ \t]*")
_ENDER = re.compile(r"[ \t]*(>{5,})[ \t]*REPLACE[ \t]*")


@dataclass(frozen=True)
class Marker:
    index: int
    length: int


@dataclass(frozen=True)
class Cut:
    """A block's body, dedented, with the indexes in it at which it may be divided; `end` is the index of its end marker in the reply."""

    body: tuple[str, ...]
    dividers: tuple[int, ...]
    length: int
    odd_divider: bool
    end: int


def marker_length(line: str, kind: re.Pattern[str]) -> int:
    match = kind.fullmatch(line)
    return len(match[1]) if match else 0


def is_marker(line: str, length: int) -> bool:
    """Is `line` a marker of exactly this length, of whichever kind?"""
    return any(marker_length(line, kind) == length for kind in (_OPENER, _DIVIDER, _ENDER))


def unpaired(lines: Sequence[str]) -> bool:
    """Do these lines hold an opener without an end marker of its length, or the reverse?"""
    balance: dict[int, int] = {}
    for line in lines:
        for kind, step in ((_OPENER, 1), (_ENDER, -1)):
            if length := marker_length(line, kind):
                balance[length] = balance.get(length, 0) + step
    return any(balance.values())


class Markers:
    """All markers of a reply, by kind."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._openers: list[Marker] = []
        self._dividers: list[Marker] = []
        self._enders: list[Marker] = []
        for index, line in enumerate(lines):
            if "<<<<<" in line and (length := marker_length(line, _OPENER)):
                self._openers.append(Marker(index, length))
            elif "=====" in line and (length := marker_length(line, _DIVIDER)):
                self._dividers.append(Marker(index, length))
            elif ">>>>>" in line and (length := marker_length(CHAT_END.sub("", line), _ENDER)):
                self._enders.append(Marker(index, length))
        self._opener_at = {marker.index: marker for marker in self._openers}
        self._ender_at = {marker.index for marker in self._enders}

    def opens_at(self, index: int) -> bool:
        return index in self._opener_at

    def ends_at(self, index: int) -> bool:
        return index in self._ender_at

    def next_edge(self, index: int) -> int:
        """The index of the first opener or end marker behind `index`; the number of lines when there is none."""
        return min(self._next(self._openers, index), self._next(self._enders, index))

    def _next(self, markers: list[Marker], index: int) -> int:
        at = bisect_right(markers, index, key=lambda marker: marker.index)
        return markers[at].index if at < len(markers) else len(self._lines)

    def _next_as_long(self, opener: Marker) -> int:
        at = bisect_right(self._openers, opener.index, key=lambda marker: marker.index)
        while at < len(self._openers):
            if self._openers[at].length == opener.length:
                return self._openers[at].index
            at += 1
        return len(self._lines)

    def cut(self, index: int) -> Cut:
        """The block whose opener stands at `index`. Raises Refused when a marker is missing."""
        opener = self._opener_at[index]
        end = self._end_of(opener)
        inside = _between(self._dividers, index, end)
        dividers = [marker for marker in inside if marker.length == opener.length]
        odd = not dividers
        if odd:
            dividers = inside
        if not dividers:
            raise Refused("truncated", f"there is no `{'=' * opener.length}` line between SEARCH and REPLACE.")
        if odd and len(dividers) > 1:
            raise Refused("ambiguous", f"several lines could be the divider: write exactly `{'=' * opener.length}`.")
        body = dedented(self._lines[index + 1 : end], self._lines[index])
        return Cut(tuple(body), tuple(marker.index - index - 1 for marker in dividers), opener.length, odd, end)

    def _end_of(self, opener: Marker) -> int:
        same = self._next_as_long(opener)
        for marker in _between(self._enders, opener.index, same):
            if marker.length == opener.length:
                return marker.index
        others = _between(self._enders, opener.index, self._next(self._openers, opener.index))
        if len(others) != 1:
            raise Refused("truncated", f"the block has no `{'>' * opener.length} REPLACE` line.")
        return others[0].index


def _between(markers: list[Marker], start: int, end: int) -> list[Marker]:
    left = bisect_right(markers, start, key=lambda marker: marker.index)
    right = bisect_right(markers, end - 1, key=lambda marker: marker.index)
    return markers[left:right]


def dedented(body: Sequence[str], opener: str) -> list[str]:
    """`body` without the opener's indentation, when every line that is not blank has it."""
    indent = opener[: len(opener) - len(opener.lstrip(" \t"))]
    if not indent or not all(is_blank(line) or line.startswith(indent) for line in body):
        return list(body)
    return [line.removeprefix(indent) if line.startswith(indent) else "" for line in body]
