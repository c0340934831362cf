"""Which lines of REPLACE are lines of SEARCH that stay: they keep the file's own bytes, and do not count as changed."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_SMALL = 40_000
"""Line pairs up to which difflib is fast enough whatever the lines are."""

Pair = tuple[int, int]


@dataclass(frozen=True)
class Change:
    """Lines start..end of the old side become lines new_start..new_end of the new side."""

    start: int
    end: int
    new_start: int
    new_end: int


def changes(old: Sequence[str], new: Sequence[str]) -> Iterator[Change]:
    """The differing stretches, in order. Near-linear: lines that occur once on each side anchor the comparison."""
    at, new_at = 0, 0
    for kept, new_kept in [*_kept(old, new), (len(old), len(new))]:
        if kept > at or new_kept > new_at:
            yield Change(at, kept, new_at, new_kept)
        at, new_at = kept + 1, new_kept + 1


def _kept(old: Sequence[str], new: Sequence[str]) -> list[Pair]:
    """Pairs of equal lines, increasing on both sides."""
    pairs: list[Pair] = []
    gaps = [Change(0, len(old), 0, len(new))]
    while gaps:
        gap = _trimmed(gaps.pop(), old, new, pairs)
        here, there = old[gap.start : gap.end], new[gap.new_start : gap.new_end]
        if not here or not there:
            continue
        found = _anchors(here, there)
        if found:
            gaps += _between(gap, found)
        elif len(here) * len(there) <= _SMALL:
            blocks = SequenceMatcher(None, here, there, autojunk=False).get_matching_blocks()
            found = [(block.a + k, block.b + k) for block in blocks for k in range(block.size)]
        pairs += [(gap.start + i, gap.new_start + j) for i, j in found]
    return sorted(pairs)


def _trimmed(gap: Change, old: Sequence[str], new: Sequence[str], pairs: list[Pair]) -> Change:
    """`gap` without equal lines at its ends; these are added to `pairs`."""
    start, end, new_start, new_end = gap.start, gap.end, gap.new_start, gap.new_end
    while start < end and new_start < new_end and old[start] == new[new_start]:
        pairs.append((start, new_start))
        start, new_start = start + 1, new_start + 1
    while start < end and new_start < new_end and old[end - 1] == new[new_end - 1]:
        end, new_end = end - 1, new_end - 1
        pairs.append((end, new_end))
    return Change(start, end, new_start, new_end)


def _between(gap: Change, anchors: list[Pair]) -> list[Change]:
    """The gaps left by anchors, which count from the gap's own start."""
    lefts = [(-1, -1), *anchors]
    rights = [*anchors, (gap.end - gap.start, gap.new_end - gap.new_start)]
    return [
        Change(gap.start + i + 1, gap.start + k, gap.new_start + j + 1, gap.new_start + m)
        for (i, j), (k, m) in zip(lefts, rights, strict=True)
    ]


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[Pair]:
    """Lines that occur once on each side: the longest run of them that increases on both."""
    often, new_often = Counter(old), Counter(new)
    position = {line: at for at, line in enumerate(new) if new_often[line] == 1}
    pairs = [(at, position[line]) for at, line in enumerate(old) if often[line] == 1 and line in position]
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for at, (_, j) in enumerate(pairs):
        rank = bisect_left(tails, j)
        tails[rank : rank + 1] = [j]
        ends[rank : rank + 1] = [at]
        before.append(ends[rank - 1] if rank else -1)
    run: list[Pair] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        run.append(pairs[at])
        at = before[at]
    return run[::-1]
