"""Markdown fences: which line closes a whole file, and when nobody can tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)", re.DOTALL)
CHAT_END = re.compile(r"(?:[ \t]*(?:<[|｜][\w▁ -]{1,40}[|｜]>|</s>|<end_of_turn>|<eos>))+[ \t]*$")
"""Tokens with which chat templates end a turn; some servers leave them in the text."""


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
    """Where a fence closes: `index` is None when it does not. Not `certain`: another bare fence could be the end just as well."""

    index: int | None
    certain: bool = True
    broken: bool = False
    """Taking `index` as the end leaves another fence open behind it."""


def closing(opener: Fence, later: Sequence[Fence], starts_item: Callable[[Fence], bool]) -> Closing:
    """The end of `opener` among `later` fences. `starts_item(fence)` tells whether a path line stands directly above a fence."""
    fences = [fence for fence in later if fence.may_close(opener)]
    depth = 0
    for at, fence in enumerate(fences):
        if fence.info:
            depth += 1
        elif depth:
            depth -= 1
        else:
            return _judged(fences, at, starts_item)
    return Closing(None)


def _judged(fences: list[Fence], first: int, starts_item: Callable[[Fence], bool]) -> Closing:
    end = fences[first].index
    if first + 1 < len(fences) and fences[first + 1].bare and fences[first + 1].index == end + 1:
        first += 1  # a doubled closing fence
    fences = fences[: _until_next_item(fences, first + 1, starts_item)]
    left_open = _left_open_from(fences)
    complete = _complete_before(fences)
    others = any(fences[at].bare and complete[at] and left_open[at + 1] is None for at in range(first + 1, len(fences)))
    still_open = left_open[first + 1]
    return Closing(end, certain=not others, broken=still_open is not None and still_open.bare)


def _until_next_item(fences: list[Fence], start: int, starts_item: Callable[[Fence], bool]) -> int:
    """The index in `fences` of the first fence from `start` on that opens another whole file, counting only fences outside of others."""
    inside = False
    for at in range(start, len(fences)):
        if not inside and starts_item(fences[at]):
            return at
        inside = not (inside and fences[at].bare)
    return len(fences)


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
