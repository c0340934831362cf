"""The SEARCH/REPLACE blocks of one file: which reading of a block holds, where it stands, what it changes there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from nightmill.edits import refuse
from nightmill.edits.apply import Hunk, hunks_of
from nightmill.edits.elision import demand_complete
from nightmill.edits.files import Files
from nightmill.edits.items import Block, Refused, Split
from nightmill.edits.lines import BLANK, Text, is_blank
from nightmill.edits.locate import Haystack, Hit, locate, unescaped
from nightmill.edits.markers import is_marker, unpaired

_MOST_SPLITS = 20
"""Dividers at which a block is tried; a body with more of them needs longer markers."""


class Matcher:
    """Blocks against one existing file, as it was before the reply."""

    def __init__(self, files: Files, path: str, text: Text) -> None:
        self._files = files
        self._path = path
        self._text = text
        self._haystack = Haystack(text.lines)

    def hunks(self, block: Block) -> list[Hunk]:
        """What the block changes. Raises Refused unless it stands at exactly one place and is complete."""
        split, hit = self._located(block)
        demand_no_marker_left(block, split)
        self._demand_real_divider(block, split, hit)
        self._demand_no_rival(block, split)
        hunks = hunks_of(hit, self._text, block.number)
        searched = {line.strip(BLANK) for line in hit.search}
        for hunk in hunks:
            demand_complete(hunk.new, self._path, self._haystack.known, searched)
        return hunks

    def _located(self, block: Block) -> tuple[Split, Hit]:
        """The reading whose SEARCH is longest among those that match exactly one place."""
        splits = self._possible(block)
        hits = [(split, locate(self._haystack, split.search, split.replace)) for split in reversed(splits)]
        for split, hit in hits:
            if len(hit.places) == 1:
                return split, hit
        for _, hit in hits:
            if hit.places:
                raise Refused("ambiguous", refuse.ambiguous(self._haystack, hit))
        first = splits[0]
        elsewhere = found_elsewhere(self._files, self._path, first.search)
        raise Refused("not found", refuse.not_found(self._haystack, first.search, first.replace, elsewhere))

    def _possible(self, block: Block) -> list[Split]:
        """The readings whose SEARCH is not empty and, when there are several, has no line that the file lacks."""
        filled = [at for at in block.dividers if at > block.first_filled]
        if not filled:
            raise Refused("exists", "SEARCH is empty, but this file exists: say what to replace, or send the whole file.")
        if len(filled) > 1:
            familiar = sum(1 for _ in takewhile(self._occurs, block.body[: filled[-1]]))
            filled = [at for at in filled if at <= familiar] or filled[:1]
        if len(filled) > _MOST_SPLITS:
            raise Refused("ambiguous", "too many lines could be the divider: use longer markers (nine characters) for this block.")
        return [block.split(at) for at in filled]

    def _occurs(self, line: str) -> bool:
        known = self._haystack.known
        return is_blank(line) or line.strip(BLANK) in known or unescaped(line).strip(BLANK) in known

    def _demand_real_divider(self, block: Block, split: Split, hit: Hit) -> None:
        """Where the file goes on behind the match with the divider and REPLACE's first line, these are content and the divider is missing.

        For a divider of the wrong length, the divider alone is enough.
        """
        behind = hit.places[0].start + len(hit.search)
        body = block.body[len(split.search) :][: 1 if block.odd_divider else 2]
        there = self._haystack.lines[behind : behind + len(body)]
        if (split.replace or block.odd_divider) and [line.strip(BLANK) for line in there] == [line.strip(BLANK) for line in body]:
            raise Refused("truncated", f"there is no `{'=' * block.length}` line between SEARCH and REPLACE.")

    def _demand_no_rival(self, block: Block, split: Split) -> None:
        for rival in block.rivals:
            if _count(self._files.read(rival), split.search):
                raise Refused("path", f"this SEARCH also matches in `{rival}`, named near the block: put the path alone above it.")


def demand_no_marker_left(block: Block, split: Split) -> None:
    """A marker line in REPLACE that SEARCH lacks is more likely a divider or a second block than content."""
    known = {line.strip(BLANK) for line in split.search}
    fresh = [line for line in split.replace if line.strip(BLANK) not in known]
    if any(is_marker(line, block.length) for line in fresh) or unpaired(fresh):
        raise Refused("ambiguous", "a marker line is left over in REPLACE: if it is content, use longer markers for this block.")


def found_elsewhere(files: Files, path: str, search: Sequence[str]) -> Iterator[str]:
    """Other files in which SEARCH stands exactly once. Tells the model; never decides."""
    longest = max(search, key=len, default="").encode()
    return (other for other, data in files.some() if other != path and longest in data and _count(data, search) == 1)


def _count(data: bytes, search: Sequence[str]) -> int:
    """How often SEARCH stands in a file, exactly; 0 for one that is no text."""
    try:
        lines = Text.decode(data).lines
    except UnicodeDecodeError:
        return 0
    return sum(1 for _ in Haystack(lines).exact.find(search)) if search else 0
