"""tests: acceptance tests, one or more per row of the matrix. A test may decide only after it has proved that it can."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from nightmill.build.acceptance import only_proven, proof_json, proven_rows, reason
from nightmill.calls.numbered import Row, clauses, rows
from nightmill.calls.replies import WholeFiles
from nightmill.calls.small import asks_small
from nightmill.errors import BadReply, NoUsableReply, StageFailed
from nightmill.gate.languages.base import ACCEPTANCE, LanguagePack
from nightmill.gate.proof import row as row_of
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage

AGAIN = f"{ACCEPTANCE}/test_again.py"
"""The only file of the second asking, so that it cannot touch a test that is already proved."""


@dataclass(frozen=True)
class AcceptanceTests(WholeFiles):
    """facts["rows"]: the ids of the matrix; facts["pack"]: the language pack."""

    FORMAT: ClassVar[str] = """\
Write each test file completely: its path, which is acceptance/test_ and a name, alone on a line, then its whole content in a fenced block.
One function per row of the matrix; its name starts with test_t and the row's number.

acceptance/test_tariff.py
```python
import pytest

from parking.tariff import fee


def test_t1_first_minute_costs_a_half_hour():
    assert fee(1) == 150


def test_t3_negative_time_is_an_error():
    with pytest.raises(ValueError, match="negative time: -5"):
        fee(-5)
```
"""

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        reply = super().parse(text, facts)
        pack: LanguagePack = facts["pack"]
        known: frozenset[str] = frozenset(facts["rows"])
        outside = [path for path in reply.files if not re.fullmatch(rf"{ACCEPTANCE}/test_\w+\.\w+", path)]
        rules = [f"the path {path} is not of the form {ACCEPTANCE}/test_name.py" for path in outside]
        rules += [f"{ACCEPTANCE}/{d.file}:{d.line}: {d.message}" for d in pack.precheck(_tree(reply.files)) if d.severity == "error"]
        tests = [test for path, content in reply.files.items() for test in pack.tests_in(path, content)]
        strays = [test.rpartition("::")[2] for test in tests if row_of(test) not in known]
        if strays:
            rules.append(
                f"{', '.join(strays[:12])}: a test's name starts with the number of its row, such as test_{sorted(known)[0].lower()}_name"
            )
        if not tests and not rules:
            rules.append("there is no test function: write `def test_t1_name():` for row T1")
        if rules:
            raise BadReply("Write the test files again and mend this: " + "; ".join(rules) + ".")
        return reply


STUB = """\
acceptance/test_rows.py
```python
import importlib


def test_t1_the_program_answers():
    importlib.import_module("main").main([])
```
"""


@stage(
    needs=["test_matrix.md", "contract.md", "schema/", "source/"],
    makes="acceptance/",
    skill="test_engineer",
    template="tests.md.j2",
    role="tester",
    reply=AcceptanceTests,
    stub=STUB,
)
def tests(ctx: Ctx) -> None:
    """Write the acceptance tests and prove them: collected, red on the stubs, in agreement with the old program."""
    matrix = rows(ctx.read("test_matrix.md"))
    changed_clauses = {clause.id for clause in clauses(ctx.read("contract.md")) if clause.changed}
    changed = frozenset(row.id for row in matrix if row.clause in changed_clauses)
    ids = tuple(row.id for row in matrix)
    if not ids:
        raise StageFailed("test_matrix.md has no row: write at least one line such as `T1 | C1 | input | expected`")
    facts = {"rows": ids, "pack": ctx.pack}
    small = asks_small(ctx)
    files = _by_row(ctx, matrix) if small else ctx.ask(facts=facts, rules=ctx.pack.prompt_rules, again=(), path="").files
    proof = ctx.prove(_tree(files), changed)
    if proof.trouble:
        raise StageFailed(f"the acceptance tests could not be tried: {proof.trouble}")
    wanting = [id for id in ids if id not in proven_rows(proof)]
    if wanting and not small:
        files = only_proven(ctx.pack, files, proof)
        again = [f"{id}: {reason(proof, id)}" for id in wanting]
        try:
            second = ctx.ask(facts=facts | {"rows": wanting, "paths": (AGAIN,)}, rules=ctx.pack.prompt_rules, again=again, path=AGAIN)
            files = {**files, **second.files}
            proof = ctx.prove(_tree(files), changed)
        except (BadReply, NoUsableReply) as error:
            ctx.note(f"no second set of tests for {', '.join(wanting)}: {error}")
    done = proven_rows(proof)
    for row in matrix:
        if row.id not in done:
            ctx.finding("test_engineer", f"{row.clause} is not proved by {row.id}: {reason(proof, row.id)}", row.id)
    if not done:
        raise StageFailed(
            "no acceptance test is able to decide (see the findings): correct test_matrix.md or schema/, or use a larger model"
        )
    kept = only_proven(ctx.pack, files, proof)
    ctx.write_tree(_tree(kept) | {"proof.json": proof_json(proof, ids)})


def _tree(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path.removeprefix(f"{ACCEPTANCE}/"): text.encode() for path, text in files.items()}


ROWS = f"{ACCEPTANCE}/test_rows.py"
"""Tests that a program wrote from rows whose call and result are exact."""


def _by_row(ctx: Ctx, matrix: tuple[Row, ...]) -> dict[str, str]:
    """A test per row: written by program where call and result are exact, else asked for, one row at a time."""
    schema = ctx.tree("schema/")
    written = {row.id: ctx.pack.test_of(row.id, row.input, row.expected, schema) for row in matrix}
    files = {ROWS: "\n\n".join(text for text in written.values() if text)} if any(written.values()) else {}
    for row in matrix:
        if written[row.id]:
            continue
        path = f"{ACCEPTANCE}/test_{row.id.lower()}.py"
        facts = {"rows": (row.id,), "pack": ctx.pack, "paths": (path,)}
        again = (f"{row.id}: {row.input}, expected: {row.expected}",)
        try:
            files |= ctx.ask(facts=facts, rules=ctx.pack.prompt_rules, again=again, path=path).files
        except (BadReply, NoUsableReply) as error:
            ctx.note(f"no test for {row.id}: {error}")
    if not files:
        raise StageFailed("no row of test_matrix.md became a test: write calls and exact results there, or use a larger model")
    return files
