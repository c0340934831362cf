"""contract: what the new version must do, as numbered clauses; drafted and reviewed in rounds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from nightmill.build.oracle import observe
from nightmill.build.program import program, public
from nightmill.calls import plain
from nightmill.calls.numbered import NOT_CLAUSES, Clause, clauses
from nightmill.calls.replies import ReplyFormat, Review
from nightmill.calls.small import Changes, asks_small, calls_of
from nightmill.errors import BadReply, NoUsableReply, StageFailed
from nightmill.gate.languages.base import Symbol
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage


@dataclass(frozen=True)
class Contract(ReplyFormat):
    clauses: tuple[Clause, ...]
    exclusions: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()

    FORMAT: ClassVar[str] = """\
## Clauses
C1: one promise about behaviour, with its exact values, order or error text
C2 (changed): a promise that differs from the old program because the mission asks for it

## Exclusions
- what the new version does not do

## Deviations
- what looks wrong in the old program and is kept as it is

Write `none` below a heading that has nothing. Example of clauses:

C1: fee(minutes) charges 150 cents for each started 30 minutes; fee(0) is 0, fee(1) is 150, fee(31) is 300.
C2: fee raises ValueError with the text "negative time: -5" when minutes is -5.
"""

    @classmethod
    def read(cls, text: str) -> Self:
        """The contract in any text, also one that a person edited; no clause at all is an empty contract."""
        parts = plain.sections(text, NOT_CLAUSES)
        lists = [tuple(plain.undecorated(item) for item in plain.items(parts.get(name, ()))) for name in NOT_CLAUSES]
        return cls(clauses(text), *lists)

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        contract = cls.read(cls.own_words(text, facts))
        ids = [clause.id for clause in contract.clauses]
        if not ids:
            raise BadReply("Your reply has no clause. Start each clause on its own line with its number and a colon: `C1: ...`, `C2: ...`.")
        if twice := [id for id, times in Counter(ids).items() if times > 1]:
            raise BadReply(f"{', '.join(twice)} stands more than once. Give every clause its own number: C1, C2, C3 and so on.")
        return contract

    @property
    def text(self) -> str:
        lines = [f"{c.id}{' (changed)' if c.changed else ''}: " + c.text.replace("\n", "\n  ") for c in self.clauses]
        lists = [[f"- {item}" for item in items] or ["- none"] for items in (self.exclusions, self.deviations)]
        return "\n".join(["## Clauses", *lines, "", "## Exclusions", *lists[0], "", "## Deviations", *lists[1], ""])


def public_api(ctx: Ctx) -> str:
    """The old program's public names with their signatures, computed from its source; its tests left out."""
    lines = ["## Public API", "Computed from the old program. Names and signatures stay, unless a clause says otherwise.", ""]
    lines += [f"- `{symbol.file}`: `{symbol.signature}`" for symbol in public(ctx)]
    return "\n".join([*lines, ""])


STUB = """\
## Clauses
C1: The new version keeps the public names and signatures listed above.

## Exclusions
- none
"""


@stage(
    needs=["mission.md", "source/"],
    makes="drafts/contract.1.md",
    skill="mission_architect",
    template="contract.md.j2",
    templates=["calls_item.md.j2", "changes_item.md.j2"],
    role="architect",
    reply=Contract,
    stub=STUB,
)
def draft(ctx: Ctx) -> None:
    """Draft the contract; in a later round mend what its review found."""
    before, review = ctx.previous("contract"), Review.read(ctx.previous("contract_review"))
    if before and (review.approved or not review.findings):
        ctx.write(before)
        return
    api = public_api(ctx)
    if asks_small(ctx):
        ctx.write(before or f"{api}\n{_by_function(ctx).text}")
        return
    reply = ctx.ask(sections={"contract": before}, api=api, findings=[str(finding) for finding in review.findings])
    ctx.write(f"{api}\n{reply.text}")


def _by_function(ctx: Ctx) -> Contract:
    """A clause per public function, with results that the old program gave; the changes in the mission's own words."""
    functions = [symbol for symbol in public(ctx) if symbol.kind == "function"]
    calls = {symbol: _calls(ctx, symbol) for symbol in functions}
    seen = observe(ctx.quality_gate, program(ctx), [call for made in calls.values() for call in made], ctx.source())
    if not seen.ran:
        ctx.finding("mission_architect", f"the old program's results could not be observed, so the contract names none: {seen.why}")
    texts = [_promise(symbol, {call: seen.results[call] for call in made if call in seen.results}) for symbol, made in calls.items()]
    kept = [Clause("", f"{text} A clause marked (changed) comes first.", False) for text in texts]
    made = [*kept, *(Clause("", sentence, True) for sentence in _changes(ctx))]
    if not made:
        raise StageFailed("the old program has no public function, and the mission names no change: write contract.md yourself")
    return Contract(tuple(replace(clause, id=f"C{number}") for number, clause in enumerate(made, 1)))


def _promise(symbol: Symbol, results: Mapping[str, str]) -> str:
    shown = "; ".join(
        f"{call} gives {result}" if not result.startswith("raises") else f"{call} {result}" for call, result in results.items()
    )
    return f"{symbol.name} in {symbol.file} does what the old program does{f': {shown}' if shown else ''}."


def _calls(ctx: Ctx, symbol: Symbol) -> tuple[str, ...]:
    try:
        return calls_of(ctx, program(ctx), symbol.name)
    except (BadReply, NoUsableReply) as error:
        ctx.note(f"no example of {symbol.name} for the contract: {error}")
        return ()


def _changes(ctx: Ctx) -> tuple[str, ...]:
    """The bullets or paragraphs below the mission's heading `Change`; without that heading the model picks the sentences."""
    mission = re.sub(r"<!--.*?-->", "", ctx.read("mission.md"), flags=re.S)
    mission = re.sub(r"^\s*#{3,}(?!\s*changes?\b).*$", "", mission, flags=re.M | re.I)
    parts = plain.sections(mission, ("Change", "Changes"))
    if len(parts) > 1:
        below = [line for name, lines in parts.items() if name for line in lines]
        blocks = re.split(r"\n\s*\n", "\n".join(below))
        told = [text for block in blocks for text in plain.items(block.split("\n")) or [" ".join(block.split())]]
        return tuple(text for text in told if not plain.says_nothing(text))
    try:
        reply: Changes = ctx.ask(Changes, template="changes_item.md.j2", facts={"mission": mission})
    except (BadReply, NoUsableReply) as error:
        ctx.finding("mission_architect", f"what the mission changes is in no clause, name it under a heading `## Change`: {error}")
        return ()
    return reply.sentences


@stage(makes="contract.md")
def contract(ctx: Ctx) -> None:
    """Take the last draft as the contract; what its review still found becomes a finding."""
    review = Review.read(ctx.previous("contract_review"))
    if not review.approved:
        for finding in review.findings:
            ctx.finding("contract_reviewer", finding.text, finding.where, review.verdict)
    text = ctx.previous("contract")
    for deviation in Contract.read(text).deviations:
        ctx.finding("mission_architect", f"kept as the old program has it: {deviation}")
    ctx.write("# Contract\n\n" + text)
