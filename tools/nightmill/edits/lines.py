"""Files as whole lines. A line ends at LF or CRLF and nowhere else: form feeds, U+2028 and lone CRs are content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BLANK = " \t"
_BOM = "\ufeff"


def is_blank(line: str) -> bool:
    return not line.strip(BLANK)


def split_reply(reply: str) -> list[str]:
    """The reply's lines without their endings or a byte-order mark."""
    return [line.removesuffix("\r") for line in reply.removeprefix(_BOM).split("\n")]


@dataclass(frozen=True)
class Text:
    """A decoded file: line i is `lines[i] + endings[i]`; only the last ending may be empty."""

    lines: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    bom: bool = False

    @classmethod
    def decode(cls, data: bytes) -> Text:
        """Raises UnicodeDecodeError unless `data` is UTF-8."""
        text = data.decode("utf-8")
        pieces = text.removeprefix(_BOM).split("\n")
        last = pieces.pop()
        lines = [piece.removesuffix("\r") for piece in pieces]
        endings = ["\r\n" if piece.endswith("\r") else "\n" for piece in pieces]
        if last:
            lines.append(last)
            endings.append("")
        return cls(tuple(lines), tuple(endings), text.startswith(_BOM))

    @property
    def majority(self) -> str:
        """The ending most lines have; LF when it is a draw."""
        return "\r\n" if self.endings.count("\r\n") > self.endings.count("\n") else "\n"

    @property
    def unfinished(self) -> bool:
        """The final newline is missing."""
        return bool(self.endings) and not self.endings[-1]

    def with_lines(self, pairs: Iterable[tuple[str, str]]) -> bytes:
        """New content for this file from (line, ending) pairs: mark and missing final newline stay, an empty ending inside is filled."""
        whole = [(line, ending or self.majority) for line, ending in pairs]
        if whole and self.unfinished:
            whole[-1] = (whole[-1][0], "")
        return ((_BOM if self.bom else "") + "".join(line + ending for line, ending in whole)).encode()

    def replaced_by(self, lines: Sequence[str]) -> bytes:
        """The whole content replaced, in the old majority ending."""
        return self.with_lines((line, self.majority) for line in lines)


def new_file(lines: Sequence[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()
