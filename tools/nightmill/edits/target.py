"""All parts of a reply that name one path, turned into that file's new bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from nightmill.edits import refuse
from nightmill.edits.apply import Hunk, edited, hunks_of
from nightmill.edits.elision import elided_line
from nightmill.edits.files import Files, demand_no_twin
from nightmill.edits.guards import breaks_syntax, copied_example, knows_syntax, shrinks, syntax_error
from nightmill.edits.items import Block, Delete, Failure, Item, Refused, Split, WholeFile, fingerprint
from nightmill.edits.lines import BLANK, Text, is_blank, new_file
from nightmill.edits.locate import Haystack, Hit, locate, unescaped
from nightmill.edits.markers import is_marker, unpaired
from nightmill.edits.paths import is_prose

_MOST_SPLITS = 20
"""Dividers at which a block is tried; a body with more of them needs longer markers."""


@dataclass(frozen=True)
class Rules:
    """What the caller knows and the reply does not say. See `nightmill.edits.apply_reply`."""

    guard: Callable[[str], str | None] | None = None
    prompt_examples: Collection[str] = ()
    may_shrink: Collection[str] = ()


class Target:
    """One path of a reply. After `run`, either `failures` has entries or `result` holds the new bytes (None: deleted)."""

    def __init__(self, files: Files, rules: Rules, path: str, items: Sequence[Item]) -> None:
        self._files = files
        self._rules = rules
        self._path = path
        self._items = items
        self.missing = not files.is_file(path)
        self.failures: list[Failure] = []
        self.result: bytes | None = None

    def run(self) -> None:
        try:
            self._demand_allowed()
            self.result = self._content()
        except Refused as refused:
            self._fail(refused, self._items[0])

    def _fail(self, refused: Refused, item: Item, search: Sequence[str] = ()) -> None:
        mark = fingerprint(self._path, tuple(search)) if search else ""
        self.failures.append(Failure.of(refused, item.number, self._path, mark))

    def _demand_allowed(self) -> None:
        self._files.demand_usable(self._path)
        if self.missing:
            demand_no_twin(self._files, self._path)
        if self._rules.guard and (reason := self._rules.guard(self._path)):
            raise Refused(reason, "this file is not yours to write: leave it out.", guard="collision")
        if copied := copied_example(self._path, self.missing, self._bodies(), self._rules.prompt_examples):
            raise Refused("placeholder", copied, guard="placeholder")

    def _bodies(self) -> Iterator[str]:
        for item in self._items:
            if isinstance(item, Block):
                split = item.split(item.dividers[0])
                yield from ("\n".join(split.search), "\n".join(split.replace))
            elif isinstance(item, WholeFile):
                yield "\n".join(item.lines)

    def _content(self) -> bytes | None:
        kinds = {type(item) for item in self._items}
        if len(kinds) > 1:
            raise Refused("conflict", "one reply may give this file's blocks, or its whole content, or delete it: not two of these.")
        if kinds == {Delete}:
            self._demand_present()
            return None
        if kinds == {WholeFile}:
            return self._whole([item for item in self._items if isinstance(item, WholeFile)])
        blocks = list({item.body: item for item in reversed(self._items) if isinstance(item, Block)}.values())[::-1]
        return self._created(blocks) if self.missing and all(block.creates for block in blocks) else self._edited(blocks)

    def _demand_present(self) -> None:
        if self.missing:
            raise Refused("path", "there is no such file.", *_same_name(self._files, self._path))

    def _text(self) -> Text:
        try:
            return Text.decode(self._files.read(self._path))
        except UnicodeDecodeError as error:
            raise Refused("path", f"this file is not UTF-8 text (byte {error.start}): it cannot be edited here.") from error

    # ---- new files and whole files

    def _whole(self, wholes: Sequence[WholeFile]) -> bytes:
        lines = wholes[0].lines
        if any(other.lines != lines for other in wholes):
            raise Refused("conflict", "this file is given twice with different contents.")
        if not all(whole.certain for whole in wholes):
            self._demand_clear_end(lines)
        if self.missing:
            self._demand_complete(lines, frozenset())
            return new_file(lines)
        text = self._text()
        self._demand_complete(lines, Haystack(text.lines).known)
        if self._path not in self._rules.may_shrink and (shrunk := shrinks(text.lines, lines)):
            raise Refused("shrink", shrunk, guard="shrink")
        return self._demand_syntax(text, text.replaced_by(lines))

    def _demand_clear_end(self, lines: Sequence[str]) -> None:
        broken = knows_syntax(self._path) and syntax_error(self._path, "\n".join(lines))
        if is_prose(self._path) or broken or all(map(is_blank, lines)):
            raise Refused("ambiguous", "nobody can tell which of the fences ends this file: put four backticks around it.")

    def _demand_complete(self, lines: Sequence[str], known: Collection[str]) -> None:
        if placeholder := elided_line(lines, known, self._path):
            raise Refused("elided", f"`{placeholder}` stands for code that was left out: write every line.", guard="elided")

    def _demand_syntax(self, old: Text, new: bytes) -> bytes:
        error = breaks_syntax(self._path, "\n".join(old.lines), "\n".join(Text.decode(new).lines))
        if error:
            raise Refused("parse", f"the file parses now and would not after this edit: {error}", guard="parse")
        return new

    def _created(self, blocks: Sequence[Block]) -> bytes:
        if len(blocks) > 1:
            raise Refused("conflict", "this file is created twice with different contents.")
        split = blocks[0].split(blocks[0].dividers[0])
        _demand_no_marker_left(blocks[0], split)
        self._demand_complete(split.replace, frozenset())
        return new_file(split.replace)

    # ---- edits

    def _edited(self, blocks: Sequence[Block]) -> bytes | None:
        if self.missing:
            self._fail_missing(blocks)
            return None
        text = self._text()
        haystack = Haystack(text.lines)
        hunks: list[Hunk] = []
        for block in blocks:
            try:
                hunks += self._hunks(block, haystack, text)
            except Refused as refused:
                self._fail(refused, block, block.split(block.dividers[0]).search)
        if self.failures:
            return None
        return self._demand_syntax(text, edited(text, hunks))

    def _fail_missing(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            search = block.split(block.dividers[0]).search
            hints = [*_same_name(self._files, self._path), *_named_elsewhere(self._elsewhere(search))]
            self._fail(Refused("path", "there is no such file; an empty SEARCH creates one.", *hints), block, search)

    def _hunks(self, block: Block, haystack: Haystack, text: Text) -> list[Hunk]:
        split, hit = self._located(block, haystack)
        _demand_no_marker_left(block, split)
        if block.odd_divider:
            _demand_real_divider(block, hit, haystack)
        self._demand_no_rival(block, split)
        hunks = hunks_of(hit, text, block.number)
        known = haystack.known | {line.strip(BLANK) for line in hit.search}
        for hunk in hunks:
            self._demand_complete(hunk.new, known)
        return hunks

    def _located(self, block: Block, haystack: Haystack) -> tuple[Split, Hit]:
        """The reading of a block whose SEARCH is longest among those that match exactly one place."""
        splits = [split for divider in block.dividers if any((split := block.split(divider)).search) and not _blank(split)]
        if not splits:
            raise Refused("exists", "SEARCH is empty, but this file exists: say what to replace, or send the whole file.")
        if len(splits) > 1:
            splits = list(_possible(splits, haystack))
        if len(splits) > _MOST_SPLITS:
            raise Refused("ambiguous", "too many lines could be the divider: use longer markers (nine characters) for this block.")
        hits = [(split, locate(haystack, split.search, split.replace)) for split in reversed(splits)]
        for split, hit in hits:
            if len(hit.places) == 1:
                return split, hit
        for _, hit in hits:
            if hit.places:
                raise Refused("ambiguous", *refuse.ambiguous(haystack, hit))
        first = splits[0]
        raise Refused("not found", *refuse.not_found(haystack, first.search, first.replace, self._elsewhere(first.search)))

    def _elsewhere(self, search: Sequence[str]) -> list[str]:
        """Other files in which SEARCH stands exactly once. Tells the model; never decides."""
        wanted = max(search, key=len, default="").encode("utf-8", "replace")
        found = []
        for path, data in self._files.some():
            if path != self._path and wanted in data and _count(data, search) == 1:
                found.append(path)
        return found

    def _demand_no_rival(self, block: Block, split: Split) -> None:
        for rival in block.rivals:
            if _count(self._files.read(rival), split.search):
                raise Refused("path", f"this SEARCH also matches in `{rival}`, named near the block: put the path alone above it.")


def _blank(split: Split) -> bool:
    return all(map(is_blank, split.search))


def _possible(splits: Sequence[Split], haystack: Haystack) -> Sequence[Split]:
    """The splits whose SEARCH has no line that the file lacks; all of them when there is none."""
    longest = splits[-1].search
    alien = next((at for at, line in enumerate(longest) if not _occurs(line, haystack)), len(longest))
    return [split for split in splits if len(split.search) <= alien] or splits[:1]


def _occurs(line: str, haystack: Haystack) -> bool:
    return is_blank(line) or line.strip(BLANK) in haystack.known or unescaped(line).strip(BLANK) in haystack.known


def _count(data: bytes, search: Sequence[str]) -> int:
    try:
        lines = Text.decode(data).lines
    except UnicodeDecodeError:
        return 0
    return sum(1 for _ in Haystack(lines).exact.find(search)) if search else 0


def _demand_no_marker_left(block: Block, split: Split) -> None:
    """A marker line in REPLACE that SEARCH lacks is more likely a divider or a second block than content."""
    known = {line.strip(BLANK) for line in split.search}
    fresh = [line for line in split.replace if line.strip(BLANK) not in known]
    if any(is_marker(line, block.length) for line in fresh) or unpaired(fresh):
        raise Refused("ambiguous", "a marker line is left over in REPLACE: if it is content, use longer markers for this block.")


def _demand_real_divider(block: Block, hit: Hit, haystack: Haystack) -> None:
    """A divider of the wrong length that also stands in the file just behind the match is content, and the real one is missing."""
    behind = hit.places[0].start + len(hit.search)
    if behind < len(haystack.lines) and haystack.lines[behind].strip(BLANK) == block.body[block.dividers[0]].strip(BLANK):
        raise Refused("truncated", f"there is no `{'=' * block.length}` line between SEARCH and REPLACE.")


def _same_name(files: Files, path: str) -> list[str]:
    name = path.rpartition("/")[2].casefold()
    found = [other for other, _ in files.some() if other.rpartition("/")[2].casefold() == name]
    return [f"Files of that name: {', '.join(f'`{other}`' for other in found[:5])}."] if found else []


def _named_elsewhere(paths: Sequence[str]) -> list[str]:
    return [f"SEARCH matches exactly once in {' and in '.join(f'`{path}`' for path in paths[:3])} (not applied)."] if paths else []
