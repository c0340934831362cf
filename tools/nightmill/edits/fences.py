"""Markdown fences: which line closes a whole file, and when nobody can tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)", re.DOTALL)
CHAT_END = re.compile(r"(?:[ \t]*(?:<[|｜][\w▁ -]{1,40}[|｜]>|</s>|<end_of_turn>|<eos>))+[ \t]*$")
"""Tokens with which chat templates end a turn; some servers leave them in the text."""

_DEEPEST = 20
"""Fences nested deeper than this are taken for a mistake; keeps hostile replies linear."""


@dataclass(frozen=True)
class Fence:
    index: int
    indent: int
    char: str
    length: int
    info: str

    @property
    def bare(self) -> bool:
        return not self.info

    def may_close(self, opener: Fence) -> bool:
        """Long enough, same character, not indented deeper: such a line matters to `opener`; any other fence inside it is content."""
        return self.char == opener.char and self.length >= opener.length and self.indent <= opener.indent


def fence_at(lines: Sequence[str], index: int) -> Fence | None:
    line = lines[index]
    if "```" not in line and "~~~" not in line:
        return None
    match = _FENCE.fullmatch(line)
    if not match:
        return None
    indent, run, info = match.groups()
    if run[0] == "`" and "`" in info:
        return None
    return Fence(index, len(indent), run[0], len(run), CHAT_END.sub("", info).strip())


@dataclass(frozen=True)
class Closing:
    """Where a whole file's fence closes; `index` is None when it does not."""

    index: int | None
    certain: bool = True
    """False when another bare fence could be the end just as well."""
    broken: bool = False
    """Taking `index` as the end leaves a bare fence open behind it."""


def first_close(opener: Fence, later: Iterable[Fence]) -> Fence | None:
    """The fence among `later` that closes `opener`, tagged fences inside it opening nested ones; None when it is never closed."""
    depth = 0
    for fence in later:
        if not fence.may_close(opener):
            continue
        if fence.info:
            depth += 1
            if depth > _DEEPEST:
                return None
        elif depth:
            depth -= 1
        else:
            return fence
    return None


def closing(opener: Fence, later: Iterable[Fence], starts_item: Callable[[Fence], bool]) -> Closing:
    """The end of a whole file among `later` fences. `starts_item(fence)` tells whether a path line stands directly above a fence."""
    source = (fence for fence in later if fence.may_close(opener))
    fences: list[Fence] = []
    close = first_close(opener, _recorded(source, fences))
    if close is None:
        return Closing(None)
    first = len(fences) - 1
    _read_to_next_item(source, fences, starts_item)
    if first + 1 < len(fences) and fences[first + 1].bare and fences[first + 1].index == close.index + 1:
        first += 1  # a doubled closing fence
    left_open = _left_open_from(fences)
    complete = _complete_before(fences)
    others = any(fences[at].bare and complete[at] and left_open[at + 1] is None for at in range(first + 1, len(fences)))
    still_open = left_open[first + 1]
    return Closing(close.index, certain=not others, broken=still_open is not None and still_open.bare)


def _recorded(source: Iterable[Fence], into: list[Fence]) -> Iterator[Fence]:
    for fence in source:
        into.append(fence)
        yield fence


def _read_to_next_item(source: Iterable[Fence], into: list[Fence], starts_item: Callable[[Fence], bool]) -> None:
    """Adds the fences up to the one that opens another whole file, looking only at fences outside of others."""
    inside = False
    for fence in source:
        if not inside and starts_item(fence):
            return
        into.append(fence)
        inside = not (inside and fence.bare)


def _complete_before(fences: list[Fence]) -> list[bool]:
    """For each fence: do all fences before it form complete pairs, read as Markdown does?"""
    result, is_open = [], False
    for fence in fences:
        result.append(not is_open)
        is_open = not fence.bare if is_open else True
    return result


def _left_open_from(fences: list[Fence]) -> list[Fence | None]:
    """For each start (and the end): the fence left open when pairing from there on, None when all pair up."""
    result: list[Fence | None] = [None] * (len(fences) + 1)
    next_bare: int | None = None
    for at in range(len(fences) - 1, -1, -1):
        result[at] = fences[at] if next_bare is None else result[next_bare + 1]
        if fences[at].bare:
            next_bare = at
    return result
