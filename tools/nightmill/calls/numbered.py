"""The two numbered lists of a run, clauses and test rows, read from any text: a model's reply or a file that a person edited."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from nightmill.calls import plain

NOT_CLAUSES = ("Exclusions", "Deviations")
"""Sections of contract.md whose lines are no clauses, whatever they look like."""
_CLAUSE = re.compile(
    r"[\s>|]*+(?:[-+•*]\s++)?+[*_`#\s]*+C(\d{1,4})[*_`\s]*+(?:[(\[]([\w ]{1,30})[)\]][*_`\s]*+)?+(?:[:.|)]|[-–—]\s)[*_`\s]*+(\S.*)$", re.I
)  # possessive, so that a line of 100,000 blanks costs no more than its length
_ROW_MARK = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s++")


@dataclass(frozen=True)
class Clause:
    """One promise. `changed`: the mission asks for behaviour that differs from the old program's."""

    id: str
    text: str
    changed: bool = False


@dataclass(frozen=True)
class Row:
    """One line of the test matrix: ids as `T1` and `C1`, the cells as written."""

    id: str
    clause: str
    input: str
    expected: str


def clauses(text: str) -> tuple[Clause, ...]:
    """The clauses in order; empty when there is none. Numbers may repeat."""
    return tuple(_clauses(plain.sections(text, NOT_CLAUSES)[""]))


def _clauses(lines: Iterable[str]) -> Iterable[Clause]:
    """A line directly below a clause belongs to it; after an empty line only an indented one or a bullet does."""
    id, mark, text, gap = "", "", list[str](), False
    for line in [*lines, "#"]:
        match = _CLAUSE.match(line)
        ends = match or line.startswith("#") or plain.heading(line)
        if ends and text and (words := plain.undecorated("\n".join(text).rstrip(" |"))):
            yield Clause(id, words, mark == "changed")
        if match:
            id, mark, text = f"C{int(match[1])}", (match[2] or "").strip().lower(), [match[3].strip()]
            if note := re.match(r"[(\[]changed[)\]]:?\s*(?=\S)", text[0], re.I):
                mark, text = "changed", [text[0][note.end() :]]
        elif ends or (gap and line.strip() and not re.match(r"\s|[-*+•]\s", line)):
            text = [] if ends else text
            gap = True
            continue
        elif text and line.strip():
            text.append(line.strip())
        gap = not line.strip()


def rows(text: str) -> tuple[Row, ...]:
    """The rows of four cells in order, from a table, bullets or bare lines; empty when there is none. Ids may repeat."""
    found = []
    for line in plain.lines(text):
        cells = [plain.undecorated(cell) for cell in plain.cells(_ROW_MARK.sub("", line, count=1))]
        if len(cells) == 4 and re.fullmatch(r"T\d{1,4}", cells[0], re.I) and re.fullmatch(r"C\d{1,4}", cells[1], re.I):
            found.append(Row(f"T{int(cells[0][1:])}", f"C{int(cells[1][1:])}", cells[2], cells[3]))
    return tuple(found)
