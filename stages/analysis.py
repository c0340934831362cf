"""analysis: what is true of the old program as a whole and stands in no single function, each claim with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from nightmill.calls import plain
from nightmill.calls.replies import ReplyFormat
from nightmill.calls.sections import show
from nightmill.errors import BadReply, NoUsableReply
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage

_PLACE = re.compile(r"([\w./\\-]+\.[A-Za-z]\w*)[`*]*(?::|,? lines? )(\d{1,6})(?:\s*[-–]\s*(\d{1,6}))?")


@dataclass(frozen=True)
class Place:
    """Lines `first` to `last` of a file, counted from 1."""

    file: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.file}:{self.first}" + (f"-{self.last}" if self.last != self.first else "")


@dataclass(frozen=True)
class Claim:
    text: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Analysis(ReplyFormat):
    claims: tuple[Claim, ...]

    FORMAT: ClassVar[str] = """\
One bullet per claim; each ends with the file and line that show it, in parentheses. If there is nothing to claim, the single word NONE.

Example:

- A ticket is never closed twice, because close() removes it from the open list first (parking/ticket.py:41)
- Fees are summed before they are rounded, so the order of tickets does not matter (parking/tariff.py:12-20)
"""

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        own = cls.own_words(text, facts)
        claims = tuple(Claim(item, _places(item)) for item in dict.fromkeys(plain.items(plain.lines(own))))
        if claims and not any(claim.places for claim in claims):
            raise BadReply("No claim names its place. End each bullet with the file and line that show it, for example (name.py:12).")
        if not claims and not any(plain.undecorated(line).strip(".") == "NONE" for line in plain.lines(own)):
            raise BadReply("Your reply has no claim. Write each claim as a bullet `- claim (file.py:12)`, or the single word NONE.")
        return cls(claims)


def _places(claim: str) -> tuple[Place, ...]:
    found = _PLACE.findall(claim)
    return tuple(Place(file.replace("\\", "/").removeprefix("./"), int(first), int(last or first)) for file, first, last in found)


def _true_place(place: Place, lengths: Mapping[str, int]) -> bool:
    """Whether the lines exist; a file may be named by the end of its path where that means one file only."""
    files = [file for file in lengths if file == place.file or file.endswith("/" + place.file)]
    files = [place.file] if place.file in files else files
    return len(files) == 1 and 1 <= place.first <= place.last <= lengths[files[0]]


@stage(
    needs=["source/", "contract.md"],
    makes="analysis.md",
    skill="inductive_reasoner",
    template="analysis.md.j2",
    role="architect",
    reply=Analysis,
    stub="NONE\n",
)
def analysis(ctx: Ctx) -> None:
    """State what holds across the old program; claims whose place does not exist are struck."""
    lengths = {path: len(data.removesuffix(b"\n").split(b"\n")) for path, data in ctx.source().items()}
    try:
        claims = ctx.ask(sections={"source": show(ctx.source(), numbered=True)}).claims
    except (BadReply, NoUsableReply) as error:
        ctx.note(f"no readable analysis: {error}")
        claims = ()
    kept = []
    for claim in claims:
        false = [str(place) for place in claim.places if not _true_place(place, lengths)]
        if false or not claim.places:
            ctx.note(f"struck from the analysis, {', '.join(false) or 'no place'} does not exist: {claim.text}")
        else:
            kept.append(f"- {claim.text}")
    ctx.write("# Analysis\n\n" + ("\n".join(kept) or "NONE"))
