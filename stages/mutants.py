"""mutants: small faults put into the finished v2, to see whether the tests would notice. It decides nothing."""

from __future__ import annotations

import json

from nightmill.calls.numbered import rows
from nightmill.errors import MachineError
from nightmill.gate.mutation import Trial, Tried, clauses_of, tried
from nightmill.gate.proof import row
from nightmill.graph.context import Ctx
from nightmill.graph.stage import GATES, stage

SHOWN = 5
"""Tests named per mutant."""


@stage(
    needs=["v2/", "acceptance/", "gate.md", "test_matrix.md", "source/"],
    makes="mutants.json",
    config=[*GATES, "gates.mutants"],
    measured=True,
)
def mutants(ctx: Ctx) -> None:
    """Break v2 in a few small ways and run the tests on each: what none of them notices is not proven."""
    tests, count = ctx.tree("acceptance/"), int(ctx.option("gates.mutants"))
    wall_s, remembering = 2 * ctx.option("gates.wall_s"), ctx.session.gate_cache.beside
    check = ctx.session.check_stop
    trial = tried(ctx.quality_gate, ctx.tree("v2/"), tests, ctx.source(), count, wall_s, check, lambda gate: remembering(gate).test)
    ctx.session.check_stop()
    if broken := next((t.why for t in trial.tried if t.outcome == "undecided" and t.why.startswith("not the code's fault")), ""):
        raise MachineError(f"the mutants could not be tried, {broken}")
    clause = {line.id: line.clause for line in rows(ctx.read("test_matrix.md"))}
    ctx.note(_said(trial))
    for name in sorted({t.mutant.owner for t in trial.tried if t.outcome == "uncalled"}):
        ctx.finding("mutants", f"no test calls {name.partition('::')[2]}", name.partition("::")[0])
    for test in trial.blunt:
        ctx.finding("mutants", f"{test} noticed none of the mutants in the functions it calls", row(test))
    told = {
        "said": _said(trial),
        "possible": trial.possible,
        "not_tried_in_time": trial.left,
        "trouble": trial.trouble,
        "survivors": [_shown(t, trial, clause) for t in trial.tried if t.outcome in ("survived", "uncalled")],
        "undecided": [{**_shown(t, trial, clause), "why": t.why} for t in trial.tried if t.outcome == "undecided"],
        "noticed": [{**_shown(t, trial, clause), "by": len(t.noticed), "first": list(t.noticed[:SHOWN])} for t in _noticed(trial)],
        "blunt": list(trial.blunt),
    }
    ctx.write(json.dumps(told, indent=1, ensure_ascii=False))


def _noticed(trial: Trial) -> list[Tried]:
    return [t for t in trial.tried if t.outcome == "noticed"]


def _said(trial: Trial) -> str:
    if trial.trouble:
        return f"no mutant was tried: {trial.trouble}"
    late = f"; {trial.left} more were not tried in time" if trial.left else ""
    return f"the tests notice {len(_noticed(trial))} of {len(trial.tried)} mutants, of {trial.possible} there could be{late}"


def _shown(tried: Tried, trial: Trial, clause: dict[str, str]) -> dict[str, object]:
    mutant, callers = tried.mutant, trial.callers.get(tried.mutant.owner, ())
    return {
        "file": mutant.file,
        "line": mutant.line,
        "function": mutant.function,
        "before": mutant.before[:120],
        "after": mutant.after[:120],
        "clauses": list(clauses_of(callers, row, clause)),
        "callers": len(callers),
    }
