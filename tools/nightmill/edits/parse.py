"""A reply's text → its blocks, whole files and deletions. Wide: whatever a sloppy model wraps around them is tolerated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache

from nightmill.edits.fences import Fence, closing, fence_at, first_close
from nightmill.edits.items import Block, Delete, Failure, Item, Refused, WholeFile
from nightmill.edits.lines import is_blank, split_reply
from nightmill.edits.markers import Cut, Markers
from nightmill.edits.paths import Exists, Named, mentioned, named_alone, named_in_info, named_in_sentence, normalise, peel
from nightmill.edits.whole import content, is_example, tag_of

_REASONING = re.compile(r"[ \t]*<(think|thinking|reasoning)>", re.IGNORECASE)
_REASONED = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_DELETE = re.compile(r"[ \t]*(?:(?:[-*+>]|#{1,6}|\d{1,3}[.)])[ \t]+)?[*_`]{0,3}DELETE:[*_`]{0,3}[ \t]*(.*)", re.DOTALL)
_REMARK = re.compile(r"[ \t]*(?:#|//|--|/\*|<!--|\.\.\.|…)")
_MANY = 50
"""So many failures make further whole files pointless to look at; keeps hostile replies linear."""


@dataclass
class Parsed:
    items: list[Item] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @property
    def next_number(self) -> int:
        return len(self.items) + len(self.failures) + 1


def parse(reply: str, exists: Exists) -> Parsed:
    """Never raises: what cannot be read is among the failures. Paths of items are normalised."""
    scanner = _Scanner(split_reply(reply), exists)
    scanner.run()
    return scanner.parsed


class _Scanner:
    """One pass over the lines outside blocks. `_gap` holds what stood there since the last block: the next block's path is in it."""

    def __init__(self, lines: list[str], exists: Exists) -> None:
        self._lines = lines
        self._exists = cache(exists)
        self._markers = Markers(lines)
        self._fences = [fence for index in range(len(lines)) if (fence := fence_at(lines, index))]
        self._order = {fence.index: at for at, fence in enumerate(self._fences)}
        self._start()

    def _start(self) -> None:
        self.parsed = Parsed()
        self._gap: list[str | Fence] = []
        self._last_path = ""
        self._open: list[Fence] = []
        self._closed_at = -1
        self._loose: list[str] = []

    def run(self) -> None:
        at = 0
        while at < len(self._lines):
            at = self._step(at)
        touched = {part.path for part in (*self.parsed.items, *self.parsed.failures)}
        for path in dict.fromkeys(self._loose):
            if path not in touched:
                self._fail(Refused("path", "the path must stand directly above its fence, with nothing in between."), path)

    def _step(self, at: int) -> int:
        """Reads what begins at line `at`; returns the index of the next line to read."""
        line = self._lines[at]
        if tag := _REASONING.match(line):
            return self._skip_reasoning(at, tag)
        if (tag := _REASONED.search(line)) and (is_blank(line[: tag.start()]) or is_blank(line[tag.end() :])):
            self._start()
            self._lines[at] = line[tag.end() :]
            return at
        if self._markers.opens_at(at):
            return self._block(at)
        if self._markers.ends_at(at):
            self._fail(Refused("truncated", "a REPLACE line stands without its SEARCH line."), self._last_path)
            return at + 1
        if at in self._order:
            return self._fence(self._fences[self._order[at]])
        if match := _DELETE.fullmatch(line):
            self._delete(match[1])
        else:
            self._gap.append(line)
        return at + 1

    def _fail(self, refused: Refused, path: str = "") -> None:
        self.parsed.failures.append(Failure.of(refused, self.parsed.next_number, path))

    def _skip_reasoning(self, at: int, tag: re.Match[str]) -> int:
        close = re.compile(f"</{tag[1]}>", re.IGNORECASE)
        start = tag.end()
        for index in range(at, len(self._lines)):
            if found := close.search(self._lines[index], start):
                self._lines[index] = self._lines[index][found.end() :]
                return index
            start = 0
        self._fail(Refused("truncated", f"the reply ends inside <{tag[1].lower()}>: think less, then give the edits."))
        return len(self._lines)

    def _delete(self, text: str) -> None:
        name = peel(text.strip(" \t").strip("*`"))
        try:
            self.parsed.items.append(Delete(self.parsed.next_number, normalise(name)))
        except Refused as refused:
            self._fail(refused, name)

    # ---- blocks

    def _block(self, at: int) -> int:
        try:
            cut = self._markers.cut(at)
        except Refused as refused:
            named = self._nearest(creating=False) if len(self.parsed.failures) < _MANY else None
            self._fail(refused, named[0].path if named else self._last_path)
            return at + 1
        try:
            self._add_block(cut)
        except Refused as refused:
            self._fail(refused)
        self._gap = []
        return cut.end + 1

    def _add_block(self, cut: Cut) -> None:
        creating = all(map(is_blank, cut.body[: cut.dividers[0]]))
        found = self._nearest(creating)
        if found is None and not self._last_path:
            raise Refused("path", "no path: put the file's path alone on the line above the block.")
        path = normalise(found[0].path) if found else self._last_path
        rivals = () if found and found[1] else tuple(sorted(self._mentioned() - {path}))
        self.parsed.items.append(Block(self.parsed.next_number, path, cut.body, cut.dividers, cut.length, cut.odd_divider, rivals))
        self._last_path = path

    def _nearest(self, creating: bool) -> tuple[Named, bool] | None:
        """The nearest path above, and whether it stands alone there rather than in a sentence."""
        for line in reversed(self._gap):
            named = named_in_info(line.info, self._exists) if isinstance(line, Fence) else named_alone(line, self._exists)
            if named and (named.sure or creating):
                _demand_sure(named)
                return named, True
            if isinstance(line, str) and (named := named_in_sentence(line, self._exists)):
                return named, False
        return None

    def _mentioned(self) -> set[str]:
        return {path for line in self._gap if isinstance(line, str) for path in mentioned(line, self._exists)}

    # ---- fences

    def _fence(self, fence: Fence) -> int:
        names = self._directly_above()
        if within := named_in_info(fence.info, self._exists):
            names.insert(0, within)
        if fence.bare and not names and self._closes_something(fence):
            return fence.index + 1
        if names and len(self.parsed.failures) < _MANY:
            return self._whole(fence, names)
        return self._aside(fence)

    def _closes_something(self, fence: Fence) -> bool:
        """A bare fence that ends one we are in, or doubles the closing fence on the line before."""
        if self._closed_at == fence.index - 1 and fence.index:
            self._closed_at = fence.index
            return True
        if not self._open:
            return False
        self._open.pop()
        self._note_loose()
        self._closed_at = fence.index
        return True

    def _directly_above(self) -> list[Named]:
        """The path lines that stand directly above, nearest first, with nothing but blank lines among them."""
        found: list[Named] = []
        for line in reversed(self._gap):
            if isinstance(line, Fence):
                return found
            if not is_blank(line):
                if not (named := named_alone(line, self._exists)):
                    return found
                found.append(named)
        return found

    def _later(self, fence: Fence, stop: int) -> Iterator[Fence]:
        for at in range(self._order[fence.index] + 1, len(self._fences)):
            if self._fences[at].index >= stop:
                return
            yield self._fences[at]

    def _enter(self, fence: Fence) -> int:
        """The fence is decoration around blocks: read on inside it."""
        self._open.append(fence)
        self._gap.append(fence)
        return fence.index + 1

    def _whole(self, fence: Fence, names: list[Named]) -> int:
        named = names[0]
        stop = self._markers.next_edge(fence.index)
        found = closing(fence, self._later(fence, stop), self._starts_item)
        end = found.index
        if end is not None and self._markers.opens_at(stop) and self._skip_blank(end + 1) == stop:
            end = None  # that bare fence opens the block below it
        if end is None and self._markers.opens_at(stop) and self._only_names(fence.index + 1, stop):
            return self._enter(fence)
        try:
            if end is None:
                raise Refused("truncated", "the whole file has no closing fence, or marker lines stand inside it.")
            if found.broken:
                raise Refused("ambiguous", "nobody can tell which fence ends this file: put four backticks around it.")
            if differ := [name.path for name in names if _plain(name.path) != _plain(named.path)]:
                raise Refused("path", f"above this fence stand two paths, `{named.path}` and `{differ[0]}`: name one.")
            if named.part:
                raise Refused("path", "the path line speaks of an excerpt: a fence directly below a path is the file's whole content.")
            _demand_sure(named)
            path = normalise(named.path)
            lines = content(fence, self._lines[fence.index], self._lines[fence.index + 1 : end], path)
            self.parsed.items.append(WholeFile(self.parsed.next_number, path, lines, found.certain))
            self._last_path = path
        except Refused as refused:
            self._fail(refused, named.path)
        self._gap = []
        if end is None:
            return fence.index + 1
        self._closed_at = end
        return end + 1

    def _skip_blank(self, at: int) -> int:
        while at < len(self._lines) and is_blank(self._lines[at]):
            at += 1
        return at

    def _only_names(self, start: int, stop: int) -> bool:
        """Nothing but blank lines, fences, comments, paths and deletions stand there."""
        return all(
            is_blank(line) or _REMARK.match(line) or start + at in self._order or named_alone(line, self._exists) or _DELETE.fullmatch(line)
            for at, line in enumerate(self._lines[start:stop])
        )

    def _starts_item(self, fence: Fence) -> bool:
        """Does a path line stand directly above this fence, or a path in its info string?"""
        if named_in_info(fence.info, self._exists):
            return True
        above = fence.index - 1
        while above > 0 and is_blank(self._lines[above]):
            above -= 1
        named = named_alone(self._lines[above], self._exists) if above not in self._order else None
        return named is not None and named.sure

    def _aside(self, fence: Fence) -> int:
        """A fence that belongs to no path: an illustration, or decoration around blocks or deletions."""
        stop = self._markers.next_edge(fence.index)
        close = first_close(fence, self._later(fence, stop))
        if close is None and self._markers.opens_at(stop):
            return self._enter(fence)
        if close is None:
            if not is_example(fence):
                self._note_loose()
            self._gap.append(fence)
            return fence.index + 1
        inside = [line for line in self._lines[fence.index + 1 : close.index] if not is_blank(line)]
        self._read_aside(fence, inside)
        self._closed_at = close.index
        return close.index + 1

    def _read_aside(self, fence: Fence, inside: list[str]) -> None:
        """A closed fence without a path: deletions, a path for the block below, or an illustration."""
        deletions = [match for match in map(_DELETE.fullmatch, inside) if match]
        if inside and len(deletions) == len(inside):
            for match in deletions:
                self._delete(match[1])
        elif len(inside) == 1 and named_alone(inside[0], self._exists):
            self._gap.append(inside[0])
            return
        elif inside and not is_example(fence):
            self._note_follower()
            if tag_of(fence.info):
                self._note_loose()
        self._gap.append(fence)

    def _note_follower(self) -> None:
        if self.parsed.items and isinstance(last := self.parsed.items[-1], WholeFile):
            self.parsed.items[-1] = replace(last, followed=True)

    def _note_loose(self) -> None:
        """Remembers a path line above that belongs to no block and does not stand directly above a fence."""
        for line in reversed(self._gap):
            if isinstance(line, Fence):
                return
            named = named_alone(line, self._exists)
            if named and named.sure:
                try:
                    self._loose.append(normalise(named.path))
                except Refused as refused:
                    self._fail(refused, named.path)
                return


def _plain(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./")


def _demand_sure(named: Named) -> None:
    if not named.sure:
        raise Refused("path", f"`{named.path}` is no file here; for a new file with this ending write `./{named.path}`.")
