"""All parts of a reply that name one path, turned into that file's new bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from nightmill.edits.apply import Hunk, edited
from nightmill.edits.blocks import Matcher, demand_no_marker_left, found_elsewhere
from nightmill.edits.elision import demand_complete
from nightmill.edits.files import Files, demand_no_twin
from nightmill.edits.guards import breaks_syntax, copied_example, hides_code, is_excerpt, knows_syntax, shrinks, syntax_error
from nightmill.edits.items import Block, Delete, Failure, Item, Refused, WholeFile, fingerprint
from nightmill.edits.lines import Text, is_blank, new_file
from nightmill.edits.locate import Haystack
from nightmill.edits.paths import is_prose
from nightmill.edits.refuse import no_such_file
from nightmill.edits.whole import demand_plain


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
            self.failures.append(Failure.of(refused, self._items[0].number, self._path))

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
                yield from ("\n".join(half) for half in item.split(item.dividers[0]))
            elif isinstance(item, WholeFile):
                yield "\n".join(item.lines)

    def _content(self) -> bytes | None:
        kinds = {type(item) for item in self._items}
        if len(kinds) > 1:
            raise Refused("conflict", "one reply may give this file's blocks, or its whole content, or delete it: not two of these.")
        if kinds == {Delete}:
            if self.missing:
                raise Refused("path", no_such_file(self._files, self._path))
            return None
        if kinds == {WholeFile}:
            return self._whole([item for item in self._items if isinstance(item, WholeFile)])
        blocks = _without_repeats([item for item in self._items if isinstance(item, Block)])
        if self.missing and all(block.creates for block in blocks):
            return self._created(blocks)
        return self._edited(blocks)

    def _text(self) -> Text:
        try:
            return Text.decode(self._files.read(self._path))
        except UnicodeDecodeError as error:
            raise Refused("path", f"this file is not UTF-8 text (byte {error.start}): it cannot be edited here.") from error

    def _whole(self, wholes: Sequence[WholeFile]) -> bytes:
        lines = wholes[0].lines
        if any(other.lines != lines for other in wholes):
            raise Refused("conflict", "this file is given twice with different contents.")
        text = Text() if self.missing else self._text()
        known = Haystack(text.lines).known
        broken = syntax_error(self._path, "\n".join(lines))
        if not all(whole.certain for whole in wholes) and (is_prose(self._path) or broken or all(map(is_blank, lines))):
            raise Refused("ambiguous", "nobody can tell which of the fences ends this file: put four backticks around it.")
        demand_plain(lines, self._path, known, parses=not broken if knows_syntax(self._path) else None)
        demand_complete(lines, self._path, known)
        if self.missing:
            return new_file(lines)
        if any(whole.followed for whole in wholes) and is_excerpt(text.lines, lines):
            raise Refused("ambiguous", "two fences follow this path, the first with a part of the file: send SEARCH/REPLACE blocks.")
        if hides_code(text.lines, lines):
            raise Refused("elided", "a line of dots stands where declarations were: write every line.", guard="elided")
        if self._path not in self._rules.may_shrink and (shrunk := shrinks(text.lines, lines)):
            raise Refused("shrink", shrunk, guard="shrink")
        return self._parsing(text, text.replaced_by(lines))

    def _parsing(self, old: Text, new: bytes) -> bytes:
        error = breaks_syntax(self._path, "\n".join(old.lines), "\n".join(Text.decode(new).lines))
        if error:
            raise Refused("parse", f"the file parses now and would not after this edit: {error}", guard="parse")
        return new

    def _created(self, blocks: Sequence[Block]) -> bytes:
        if len(blocks) > 1:
            raise Refused("conflict", "this file is created twice with different contents.")
        split = blocks[0].split(blocks[0].dividers[0])
        demand_no_marker_left(blocks[0], split)
        demand_complete(split.replace, self._path)
        return new_file(split.replace)

    def _edited(self, blocks: Sequence[Block]) -> bytes | None:
        text = Text() if self.missing else self._text()
        matcher = Matcher(self._files, self._path, text)
        hunks: list[Hunk] = []
        for block in blocks:
            try:
                if self.missing:
                    search = block.split(block.dividers[0]).search
                    raise Refused("path", no_such_file(self._files, self._path, found_elsewhere(self._files, self._path, search)))
                hunks += matcher.hunks(block)
            except Refused as refused:
                mark = fingerprint(self._path, block.split(block.dividers[0]).search)
                self.failures.append(Failure.of(refused, block.number, self._path, mark))
        return None if self.failures else self._parsing(text, edited(text, hunks))


def _without_repeats(blocks: Sequence[Block]) -> list[Block]:
    """Equal blocks count once, where they first stand."""
    first: dict[tuple[str, ...], Block] = {}
    for block in blocks:
        first.setdefault(block.body, block)
    return list(first.values())
