"""tests: acceptance tests, one or more per row of the matrix. A test may decide only after it has proved that it can."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from nightmill.build.acceptance import only_proven, proven_rows, reason
from nightmill.calls.numbered import Row, clauses, rows
from nightmill.calls.replies import WholeFiles
from nightmill.calls.small import asks_small
from nightmill.errors import BadReply, NoUsableReply, StageFailed
from nightmill.gate.languages.base import ACCEPTANCE, LanguagePack
from nightmill.gate.proof import Proof
from nightmill.gate.proof import row as row_of
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage

AGAIN = f"{ACCEPTANCE}/test_again"
"""The only file of the second asking, without its ending, so that it cannot touch a test that is already proved."""
SET_ASIDE = "set_aside.md"
"""Beside the tests: a line `- T3: why` for each row whose tests were not taken."""


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
        outside = [path for path in reply.files if not re.fullmatch(rf"{ACCEPTANCE}/test_\w+{re.escape(pack.test_suffix)}", path)]
        rules = [f"the path {path} is not of the form {ACCEPTANCE}/test_name{pack.test_suffix}" for path in outside]
        if (again := AGAIN + pack.test_suffix) in reply.files and "paths" not in facts:
            rules.append(f"give {again} another name")
        rules += [f"{ACCEPTANCE}/{d.file}:{d.line}: {d.message}" for d in pack.precheck(_tree(reply.files)) if d.severity == "error"]
        tests = [test for path, content in reply.files.items() for test in pack.tests_in(path, content)]
        if strays := [test.rpartition("::")[2] for test in tests if not row_of(test)]:
            name = f"test_{sorted(known)[0].lower()}_name"
            rules.append(f"{', '.join(strays[:12])}: a test's name starts with the number of its row, such as {name}")
        if others := sorted({row_of(test) for test in tests} - known - {""}):
            rules.append(f"{', '.join(others)} is not asked for: write tests for {', '.join(sorted(known))} only")
        if not tests and not rules:
            rules.append("there is no test function: write one for row T1, named test_t1_name")
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
    config=["tests"],
    persons=True,
)
def tests(ctx: Ctx) -> None:
    """Write the acceptance tests and prove them: collected, red on the stubs, in agreement with the old program."""
    matrix = rows(ctx.read("test_matrix.md"))
    changed_clauses = {clause.id for clause in clauses(ctx.read("contract.md")) if clause.changed}
    changed = frozenset(row.id for row in matrix if row.clause in changed_clauses)
    ids = tuple(row.id for row in matrix)
    if not ids:
        raise StageFailed("test_matrix.md has no row: write at least one line such as `T1 | C1 | input | expected`")
    persons = _persons(ctx, changed)
    small = asks_small(ctx)
    files = _by_row(ctx, matrix) if small else _ask(ctx, ids).files
    proof = _proved(ctx, files, changed)
    disputed = {row_of(test) for test in proof.disputed}
    wanting = {id: reason(proof, id) for id in ids if id not in proven_rows(proof)}
    if wanting and not small:
        files, proof = _once_more(ctx, only_proven(ctx.pack, files, proof), proof, wanting, changed)
    kept, proof = _settled(ctx, files, proof, disputed, changed)
    wanting |= {id: reason(proof, id) for id in ids if id not in proven_rows(proof) and id not in wanting}
    if not kept:
        why = "; ".join(f"{id}: {why}" for id, why in list(wanting.items())[:3])
        raise StageFailed(f"no acceptance test is able to decide ({why}): correct test_matrix.md or schema/, or use a larger model")
    done = proven_rows(proof)
    if without := [id for id in wanting if id not in done]:
        ctx.note(f"no test that decides for {', '.join(without)}: {SET_ASIDE} says why")
    aside = "".join(f"- {id}: {why}\n" for id, why in wanting.items() if id not in done)
    ctx.write_tree(_tree(kept) | ({SET_ASIDE: aside.encode()} if aside else {}) | persons)


def _persons(ctx: Ctx, changed: frozenset[str]) -> dict[str, bytes]:
    """The person's own tests. One that can judge no code is theirs to mend, before anything is asked for."""
    brought = ctx.own_tests()
    if not brought:
        return {}
    if not ctx.pack.count_tests(brought) and not ctx.pack.precheck(brought):
        raise StageFailed("your own tests hold no test that is collected: correct them, or remove `tests:` from run.yaml")
    proof = ctx.prove(brought, changed)
    if proof.trouble:
        raise StageFailed(f"your own tests could not be tried: {proof.trouble}")
    if proof.broken:
        why = "; ".join(f"{test}: {proof.reasons[test]}" for test in proof.broken[:3])
        raise StageFailed(f"your own tests cannot all judge ({why}): correct them, or schema/ where it lacks what they use")
    return brought


def _ask(ctx: Ctx, ids: tuple[str, ...], again: tuple[str, ...] = (), path: str = "") -> AcceptanceTests:
    facts = {"rows": ids, "pack": ctx.pack} | ({"paths": (path,)} if path else {})
    reply: AcceptanceTests = ctx.ask(facts=facts, rules=ctx.pack.test_rules, again=again, path=path)
    return reply


def _proved(ctx: Ctx, files: Mapping[str, str], changed: frozenset[str]) -> Proof:
    proof = ctx.prove(_tree(files), changed)
    if proof.trouble:
        raise StageFailed(f"the acceptance tests could not be tried: {proof.trouble}")
    return proof


def _once_more(
    ctx: Ctx, files: dict[str, str], proof: Proof, wanting: Mapping[str, str], changed: frozenset[str]
) -> tuple[dict[str, str], Proof]:
    """The files with new tests for the rows that have none that decides, and the proof of all."""
    try:
        second = _ask(ctx, tuple(wanting), tuple(f"{id}: {why}" for id, why in wanting.items()), AGAIN + ctx.pack.test_suffix)
    except (BadReply, NoUsableReply) as error:
        ctx.note(f"no second set of tests for {', '.join(wanting)}: {error}")
        return files, proof
    files = {**files, **second.files}
    return files, _proved(ctx, files, changed)


def _settled(ctx: Ctx, files: dict[str, str], proof: Proof, disputed: set[str], changed: frozenset[str]) -> tuple[dict[str, str], Proof]:
    """The tests that prove something also without the others, run once more as they will be locked. It ends, since the set only shrinks."""
    kept = only_proven(ctx.pack, files, _undisputed(proof, disputed))
    while kept:
        proof = _undisputed(_proved(ctx, kept, changed), disputed)
        again = only_proven(ctx.pack, kept, proof)
        if again == kept:
            break
        kept = again
    return kept, proof


def _undisputed(proof: Proof, disputed: set[str]) -> Proof:
    """A row whose first test disagreed with the old program is decided only by a test that was seen to agree with it."""
    doubtful = tuple(test for test in proof.proven if row_of(test) in disputed and test not in proof.agrees)
    return proof.model_copy(
        update={"proven": tuple(test for test in proof.proven if test not in doubtful), "broken": (*proof.broken, *doubtful)}
    )


def _tree(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path.removeprefix(f"{ACCEPTANCE}/"): text.encode() for path, text in files.items()}


ROWS = f"{ACCEPTANCE}/test_rows"
"""Tests that a program wrote from rows whose call and result are exact; without the ending."""


def _by_row(ctx: Ctx, matrix: tuple[Row, ...]) -> dict[str, str]:
    """A test per row: written by program where call and result are exact, else asked for, one row at a time."""
    schema = ctx.tree("schema/")
    written = {row.id: ctx.pack.test_of(row.id, row.input, row.expected, schema) for row in matrix}
    rows = ctx.pack.test_head + "\n\n".join(text for text in written.values() if text)
    files = {ROWS + ctx.pack.test_suffix: rows} if any(written.values()) else {}
    for row in matrix:
        if written[row.id]:
            continue
        path = f"{ACCEPTANCE}/test_{row.id.lower()}{ctx.pack.test_suffix}"
        again = (f"{row.id}: {row.input}, expected: {row.expected}",)
        try:
            files |= _ask(ctx, (row.id,), again, path).files
        except (BadReply, NoUsableReply) as error:
            ctx.note(f"no test for {row.id}: {error}")
    if not files:
        raise StageFailed("no row of test_matrix.md became a test: write calls and exact results there, or use a larger model")
    return files
