"""Where SEARCH stands in a file. Narrow: whole lines, six tiers in a fixed order, and the first tier with any place decides."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice

from nightmill.edits.items import Refused
from nightmill.edits.lines import BLANK, is_blank

MANY = 6
"""Places beyond this many are not looked for: two are enough to refuse."""

_WORK = 400_000
"""Lines compared at most while checking candidates of one tier: only periodic files of some megabytes get there, and are refused."""

_WIDEST_TAB = 8
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|#0*39|#0*34|#[xX]27|#[xX]22);")
_CHARACTERS = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'", "39": "'", "34": '"', "27": "'", "22": '"'}


@dataclass(frozen=True)
class Place:
    """A match at line `start` (from 0), with REPLACE corrected as the tier demands."""

    start: int
    replace: tuple[str, ...]


@dataclass(frozen=True)
class Hit:
    """All places (at most MANY) of the first tier that has any; `search` and `replace` as that tier read them, for comparing the two."""

    places: tuple[Place, ...] = ()
    search: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()


class _Index:
    """Finds runs of whole lines in linear time."""

    def __init__(self, keys: Iterable[str]) -> None:
        keys = list(keys)
        self._text = "\n" + "\n".join(keys) + "\n"
        self._starts = [0, *accumulate(len(key) + 1 for key in keys)]

    def find(self, keys: Iterable[str]) -> Iterator[int]:
        """The line numbers, from 0, at which `keys` stand one after the other; overlapping ones too."""
        wanted = "\n" + "\n".join(keys) + "\n"
        at = self._text.find(wanted)
        while at >= 0:
            yield bisect_left(self._starts, at)
            at = self._text.find(wanted, at + 1)


class Haystack:
    """A file's lines, indexed once for all blocks that look into it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    @cached_property
    def exact(self) -> _Index:
        return _Index(self.lines)

    @cached_property
    def right_stripped(self) -> _Index:
        return _Index(line.rstrip(BLANK) for line in self.lines)

    @cached_property
    def stripped(self) -> _Index:
        return _Index(line.strip(BLANK) for line in self.lines)

    @cached_property
    def known(self) -> frozenset[str]:
        """The lines without their blanks at both ends."""
        return frozenset(line.strip(BLANK) for line in self.lines)


Tier = Callable[[Haystack, Sequence[str], Sequence[str]], Iterator[Place]]


def locate(haystack: Haystack, search: Sequence[str], replace: Sequence[str]) -> Hit:
    """`search` must have a line that is not blank. No hit: no places. Raises Refused when there is too much to compare."""
    for wanted, instead in _readings(search, replace):
        for tier in _TIERS:
            places = tuple(islice(tier(haystack, wanted, instead), MANY))
            if places:
                return Hit(places, tuple(wanted), tuple(instead))
    return Hit()


def _readings(search: Sequence[str], replace: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    yield search, replace
    trimmed = _without_blank_edges(search)
    if len(trimmed) < len(search):
        yield trimmed, _without_blank_edges(replace)
    plain = [unescaped(line) for line in search]
    if plain != list(search):
        yield plain, [unescaped(line) for line in replace]


def _without_blank_edges(lines: Sequence[str]) -> Sequence[str]:
    filled = [at for at, line in enumerate(lines) if not is_blank(line)]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def unescaped(line: str) -> str:
    """`line` with the HTML entities of markup characters and quotes replaced, once."""
    return _ENTITY.sub(lambda match: _CHARACTERS[match[0].strip("&;#xX").lstrip("0")], line)


def _exactly(haystack: Haystack, search: Sequence[str], replace: Sequence[str]) -> Iterator[Place]:
    for start in haystack.exact.find(search):
        yield Place(start, tuple(replace))


def _but_for_trailing_blanks(haystack: Haystack, search: Sequence[str], replace: Sequence[str]) -> Iterator[Place]:
    for start in haystack.right_stripped.find(line.rstrip(BLANK) for line in search):
        yield Place(start, tuple(replace))


def _shifted(haystack: Haystack, search: Sequence[str], replace: Sequence[str]) -> Iterator[Place]:
    """A REPLACE that already stands at the file's own indentation, unlike SEARCH, cannot take the correction."""
    for start, pairs in _candidates(haystack, search):
        shift = _common_shift(pairs)
        fits = shift and not (shift.in_file and _margin(replace) == shift.more + _margin(search))
        corrected = shift.apply(replace) if shift and fits else None
        if corrected is not None:
            yield Place(start, corrected)


def _margin(lines: Sequence[str]) -> str:
    """The blanks that all lines but the blank ones begin with."""
    indents = [_indent(line) for line in lines if not is_blank(line)]
    first, last = min(indents, default=""), max(indents, default="")
    return first[: next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))]


def _with_tabs(haystack: Haystack, search: Sequence[str], replace: Sequence[str]) -> Iterator[Place]:
    for start, pairs in _candidates(haystack, search):
        width = _tab_width(pairs)
        corrected = _to_tabs(replace, width) if width else None
        if corrected is not None:
            yield Place(start, corrected)


_TIERS: tuple[Tier, ...] = (_exactly, _but_for_trailing_blanks, _shifted, _with_tabs)


def _candidates(haystack: Haystack, search: Sequence[str]) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Where the lines agree but for blanks at their ends, with the (file, SEARCH) lines there that are not blank."""
    wanted = [line.rstrip(BLANK) for line in search]
    found = haystack.stripped.find(line.strip(BLANK) for line in search)
    for count, start in enumerate(found):
        if count * len(wanted) > _WORK:
            raise Refused("ambiguous", "SEARCH repeats itself too often to be told from its surroundings: send the whole file.")
        there = haystack.lines[start : start + len(wanted)]
        yield start, [(real.rstrip(BLANK), line) for real, line in zip(there, wanted, strict=True) if line]


@dataclass(frozen=True)
class _Shift:
    """The file has `more` in front of each line of SEARCH, or the other way round."""

    more: str
    in_file: bool

    def apply(self, lines: Sequence[str]) -> tuple[str, ...] | None:
        """`lines` corrected alike; None when one of them cannot be, or would mix tabs and spaces."""
        corrected = []
        for line in lines:
            if is_blank(line):
                corrected.append(line)
            elif not self.in_file and line.startswith(self.more):
                corrected.append(line.removeprefix(self.more))
            elif self.in_file and (line[0] not in BLANK or line[0] in self.more):
                corrected.append(self.more + line)
            else:
                return None
        return tuple(corrected)


def _common_shift(pairs: Iterable[tuple[str, str]]) -> _Shift | None:
    common: _Shift | None = None
    for real, line in pairs:
        if len(real) > len(line) and real.endswith(line):
            shift = _Shift(real[: -len(line)], in_file=True)
        elif len(real) < len(line) and line.endswith(real):
            shift = _Shift(line[: -len(real)], in_file=False)
        else:
            return None
        if common is None:
            common = shift
        elif common != shift:
            return None
    return common


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(BLANK))]


def _tab_width(pairs: Iterable[tuple[str, str]]) -> int:
    """Spaces of SEARCH per tab of the file when that is one constant for all lines; 0 otherwise."""
    widths = set()
    for real, line in pairs:
        tabs, spaces = _indent(real), _indent(line)
        if tabs.strip("\t") or spaces.strip(" ") or bool(tabs) != bool(spaces):
            return 0
        if tabs:
            widths.add(divmod(len(spaces), len(tabs)))
    width, rest = widths.pop() if len(widths) == 1 else (0, 0)
    return width if not rest and width <= _WIDEST_TAB else 0


def _to_tabs(lines: Sequence[str], width: int) -> tuple[str, ...] | None:
    converted = []
    for line in lines:
        indent = _indent(line)
        if is_blank(line):
            converted.append("")
        elif indent.strip(" ") or len(indent) % width:
            return None
        else:
            converted.append("\t" * (len(indent) // width) + line[len(indent) :])
    return tuple(converted)
