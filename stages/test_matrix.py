"""test_matrix: which input proves which clause, with the expected result, one row each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from nightmill.build.oracle import observe
from nightmill.build.program import program, public, uses
from nightmill.calls.numbered import Clause, Row, clauses, rows
from nightmill.calls.replies import ReplyFormat
from nightmill.calls.small import Result, asks_small, calls_of
from nightmill.errors import BadReply, NoUsableReply, StageFailed
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage


@dataclass(frozen=True)
class Matrix(ReplyFormat):
    """facts["clauses"]: the ids that exist; each needs a row."""

    rows: tuple[Row, ...]

    FORMAT: ClassVar[str] = r"""
One row per line, four cells with | between them: row id, clause id, input, expected result. Ids are T1, T2, T3 and so on.
A | inside a cell is written \|. Nothing else in the reply.

Example:

T1 | C1 | fee(1) | 150
T2 | C1 | fee(31) | 300
T3 | C2 | fee(-5) | raises ValueError "negative time: -5"
"""

    @classmethod
    def read(cls, text: str) -> Self:
        """The rows in any text, also one that a person edited."""
        return cls(rows(text))

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        matrix = cls.read(cls.own_words(text, facts))
        ids = [row.id for row in matrix.rows]
        known = tuple(facts.get("clauses", ())) or tuple(row.clause for row in matrix.rows)
        if not ids:
            raise BadReply("Your reply has no row. Write one row per line with four cells: `T1 | C1 | input | expected`.")
        if twice := [id for id, times in Counter(ids).items() if times > 1]:
            raise BadReply(f"{', '.join(twice)} stands more than once. Give every row its own id: T1, T2, T3 and so on.")
        if hollow := [row.id for row in matrix.rows if not (row.input and row.expected)]:
            raise BadReply(f"{', '.join(hollow)} has an empty cell. Every row needs an input and an expected result.")
        if foreign := sorted({row.clause for row in matrix.rows} - set(known)):
            raise BadReply(f"There is no clause {', '.join(foreign)}. Use only these clauses: {', '.join(known)}.")
        if missing := [id for id in known if id not in {row.clause for row in matrix.rows}]:
            raise BadReply(f"No row tests {', '.join(missing)}. Write at least one row for every clause.")
        return matrix

    @property
    def text(self) -> str:
        lines = [[cell.replace("|", "\\|") for cell in (row.id, row.clause, row.input, row.expected)] for row in self.rows]
        table = [["id", "clause", "input", "expected"], ["---"] * 4, *lines]
        return "# Test matrix\n\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in table)


UNLIKE = 2
"""Steps of seed and temperature between two askings that must agree."""
_ALONE = {"source": ""}
"""A matrix that is believed comes from the contract alone; the old program is needed only to run it."""


@stage(
    needs=["contract.md", "source/"],
    makes="test_matrix.md",
    skill="test_engineer",
    template="test_matrix.md.j2",
    templates=["calls_item.md.j2", "result_item.md.j2"],
    role="tester",
    reply=Matrix,
    stub="T1 | C1 | the first public function with an ordinary argument | its ordinary result\n",
)
def test_matrix(ctx: Ctx) -> None:
    """List the inputs that prove each clause, with what is expected of them."""
    known = clauses(ctx.read("contract.md"))
    ids = tuple(clause.id for clause in known)
    if not ids:
        raise StageFailed("contract.md has no clause: write at least one line such as `C1: what must be true`")
    if asks_small(ctx) and (seen := _observed(ctx, known)):
        ctx.write(Matrix(seen).text)
        return
    try:
        made = ctx.ask(facts={"clauses": ids}, sections=_ALONE, only="").rows
    except (BadReply, NoUsableReply) as error:
        ctx.note(f"the test matrix is asked for clause by clause: {error}")
        made = _one_by_one(ctx, ids)
    ctx.write(Matrix(made).text)


def _one_by_one(ctx: Ctx, ids: tuple[str, ...]) -> tuple[Row, ...]:
    """A small model that loses its way in all clauses at once can often answer for one."""
    made: list[Row] = []
    for id in ids:
        try:
            made += ctx.ask(facts={"clauses": (id,)}, sections=_ALONE, only=id).rows
        except (BadReply, NoUsableReply) as error:
            ctx.finding("test_engineer", f"no test: {error}", id)
    if not made:
        raise StageFailed("the model gave no usable test row for any clause: use a larger model, or write test_matrix.md yourself")
    return tuple(replace(row, id=f"T{number}") for number, row in enumerate(made, 1))


def _observed(ctx: Ctx, known: tuple[Clause, ...]) -> tuple[Row, ...]:
    """The model names calls, the old program gives the results; only what a clause changes is believed. Empty when nothing ran."""
    sources = program(ctx)
    changed = [clause for clause in known if clause.changed]
    calls = {clause: _calls(ctx, clause, changed, sources) for clause in known}
    seen = observe(ctx.quality_gate, sources, [call for made in calls.values() for call in made], ctx.source())
    if not seen.ran:
        ctx.note(f"the old program could not be run for its results: {seen.why}")
        return ()
    made: dict[str, Row] = {}
    for clause in sorted(known, key=lambda c: not c.changed):
        for call in calls[clause]:
            row = None if call in made else _row(ctx, clause, changed, call, seen.results.get(call, ""), sources)
            if row:
                made[call] = row
            elif call not in made:
                ctx.note(f"no row for {clause.id}, {call}: no exact result")
    for clause in known:
        own = [row for row in made.values() if row.clause == clause.id]
        if not own:
            ctx.finding("test_engineer", "no test: the model named no call that shows it", clause.id)
        elif clause.changed and all(seen.results.get(row.input) == row.expected for row in own):
            ctx.finding("test_engineer", "every expected result is what the old program gives: no test shows the change", clause.id)
            made = {call: row for call, row in made.items() if row.clause != clause.id}
        if believed := [row for row in own if seen.results.get(row.input) != row.expected]:
            shown = "; ".join(f"{row.input}: {row.expected}" for row in believed)
            ctx.finding("test_engineer", f"the model says what the change gives, nobody has seen it: {shown}", clause.id)
    ordered = [row for clause in known for row in made.values() if row.clause == clause.id]
    return tuple(replace(row, id=f"T{number}") for number, row in enumerate(ordered, 1))


def _row(ctx: Ctx, clause: Clause, changed: Sequence[Clause], call: str, before: str, sources: dict[str, bytes]) -> Row | None:
    """A call's row. Where a change names the called function, the model is asked whether it changes this result; else it stays as seen."""
    for other in [clause] if clause.changed else _touching(ctx, call, changed):
        result = _believed(ctx, other, call, before, sources)
        if clause.changed or result != before:
            return Row("", other.id, call, result) if result else None
    return Row("", clause.id, call, before) if before else None


def _touching(ctx: Ctx, call: str, changed: Sequence[Clause]) -> list[Clause]:
    """The changes that name a function which the call reaches, be it through others."""
    reach = uses(ctx)
    names = {used for name in re.findall(r"(\w+)\(", call) for used in reach.get(name, {name})}
    return [clause for clause in changed if names & set(re.findall(r"\w+", clause.text))]


def _calls(ctx: Ctx, clause: Clause, changed: Sequence[Clause], sources: dict[str, bytes]) -> tuple[str, ...]:
    """Calls that a clause's own text holds, and those that the model adds."""
    names = [symbol.name for symbol in public(ctx) if symbol.kind == "function"]
    of = next((name for name in names if re.match(rf"{re.escape(name)}\b", clause.text)), "")
    told = () if clause.changed else _told(ctx, clause, sources)
    change, avoid, vary = (clause.text, [], 0) if clause.changed else ("", [other.text for other in _touching(ctx, f"{of}(", changed)], 1)
    try:
        more = calls_of(ctx, sources, of, change=change, avoid=avoid, vary=vary)
    except (BadReply, NoUsableReply) as error:
        ctx.note(f"no further calls for {clause.id}: {error}")
        return told
    return tuple(dict.fromkeys((*told, *more)))


def _told(ctx: Ctx, clause: Clause, sources: dict[str, bytes]) -> tuple[str, ...]:
    parts = re.split(r"; |(?<=does): ", clause.text)
    heads = (re.split(r" (?:gives|raises) ", part)[0] for part in parts)
    return tuple(call for head in heads if (call := ctx.pack.call(head, sources)))


def _believed(ctx: Ctx, clause: Clause, call: str, before: str, sources: dict[str, bytes]) -> str:
    """What the model says of a changed result, twice alike; "" when it says nothing exact or is not sure.

    Asked once for lists, a model of 1.5 B got two of five wrong (seen).
    """
    facts = {"pack": ctx.pack, "sources": sources, "call": call, "before": before, "clause": clause.text}
    said: list[str] = []
    text = f"{clause.id} (changed): {clause.text}"
    for vary in (0, UNLIKE):
        try:
            reply: Result = ctx.ask(Result, template="result_item.md.j2", facts=facts, vary=vary, clause=text, call=call, before=before)
        except (BadReply, NoUsableReply) as error:
            ctx.note(f"no result of {call}: {error}")
            return ""
        said.append(reply.value)
    if said[0] != said[1]:
        ctx.note(f"no result of {call}: the model says {said[0]}, then {said[1]}")
        return ""
    return said[0]
