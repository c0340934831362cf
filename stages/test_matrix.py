"""test_matrix: which input proves which clause, with the expected result, one row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from nightmill.calls.numbered import Row, clauses, rows
from nightmill.calls.replies import ReplyFormat
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


@stage(
    needs=["contract.md"],
    makes="test_matrix.md",
    skill="test_engineer",
    template="test_matrix.md.j2",
    role="tester",
    reply=Matrix,
    stub="T1 | C1 | the first public function with an ordinary argument | its ordinary result\n",
)
def test_matrix(ctx: Ctx) -> None:
    """List the inputs that prove each clause, with what is expected of them."""
    ids = tuple(clause.id for clause in clauses(ctx.read("contract.md")))
    if not ids:
        raise StageFailed("contract.md has no clause: write at least one line such as `C1: what must be true`")
    try:
        made = ctx.ask(facts={"clauses": ids}, only="").rows
    except (BadReply, NoUsableReply) as error:
        ctx.note(f"the test matrix is asked for clause by clause: {error}")
        made = _one_by_one(ctx, ids)
    ctx.write(Matrix(made).text)


def _one_by_one(ctx: Ctx, ids: tuple[str, ...]) -> tuple[Row, ...]:
    """A small model that loses its way in all clauses at once can often answer for one."""
    made: list[Row] = []
    for id in ids:
        try:
            made += ctx.ask(facts={"clauses": (id,)}, only=id).rows
        except (BadReply, NoUsableReply) as error:
            ctx.finding("test_engineer", f"no test: {error}", id)
    if not made:
        raise StageFailed("the model gave no usable test row for any clause: use a larger model, or write test_matrix.md yourself")
    return tuple(replace(row, id=f"T{number}") for number, row in enumerate(made, 1))
