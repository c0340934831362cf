"""proof: which acceptance tests may speak for their row, a person's included. It is made anew whenever a test is edited."""

from __future__ import annotations

import re

from nightmill.build.acceptance import deciding, proof_json, proven_rows, reason
from nightmill.build.locked import BY_HAND, WRITER, asked_by, edited, locks, softened
from nightmill.build.own import own
from nightmill.calls.numbered import clauses, rows
from nightmill.errors import MachineError
from nightmill.gate.authority import counted
from nightmill.gate.proof import Proof, row
from nightmill.graph.context import Ctx
from nightmill.graph.stage import GATES, stage
from stages.tests import SET_ASIDE

_ASIDE = re.compile(r"^- (T\d+): (.+)$", re.M)


@stage(needs=["acceptance/", "test_matrix.md", "contract.md", "schema/", "source/"], makes="proof.json", config=GATES, measured=True)
def proof(ctx: Ctx) -> None:
    """Run the acceptance tests on the stubs and on the old program: which of them prove something."""
    matrix = rows(ctx.read("test_matrix.md"))
    changed_clauses = {clause.id for clause in clauses(ctx.read("contract.md")) if clause.changed}
    found = ctx.prove(ctx.tree("acceptance/"), frozenset(row.id for row in matrix if row.clause in changed_clauses))
    if found.trouble:
        raise MachineError(f"the acceptance tests could not be tried on the stubs: {found.trouble}")
    done = proven_rows(found)
    aside = dict(_ASIDE.findall(ctx.tree("acceptance/").get(SET_ASIDE, b"").decode("utf-8", "replace")))
    why = {line.id: aside.get(line.id) or reason(found, line.id) for line in matrix if line.id not in done}
    for line in matrix:
        if line.id in why:
            ctx.finding("test_engineer", f"{line.clause} is not proved by {line.id}: {why[line.id]}", line.id)
    for test in sorted({*found.vacuous, *found.broken, *found.disputed}):
        if test.partition("[")[0] not in deciding(found):
            ctx.finding("proof", f"{test} proves nothing: {found.reasons.get(test, '')}", row(test))
    ctx.write(proof_json(found, tuple(line.id for line in matrix), why, _locked(ctx, found)))


def _locked(ctx: Ctx, found: Proof) -> dict[str, object]:
    """What verify holds the tests to: their files, what these ask, and what a person changed since the stage `tests` wrote them."""
    tests, written = ctx.tree("acceptance/"), ctx.written(WRITER, "acceptance/")
    less = softened(ctx.pack, written, tests)
    for test, what in less.items():
        ctx.finding("proof", f"{test} asks less than it did: {what}, by {BY_HAND}", row(test))
    return {
        "own": [*own(found.proven), *own(found.vacuous)],
        "files": locks(tests),
        "asked": counted(asked_by(ctx.pack, tests)),
        "edited": [f"{path}: {BY_HAND}" for path in edited(written, tests)],
        "weakened": {test: f"{what}, by {BY_HAND}" for test, what in less.items()},
    }
