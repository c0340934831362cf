"""Clause → rows → tests → what the last gate saw; and everything that is not proven, with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from nightmill.gate.proof import row as row_of
from nightmill.gate.records import GateRecord, TestOutcome
from nightmill.timeline import Fact


class RowLine(Fact):
    id: str
    tests: tuple[str, ...]
    outcome: str
    """`passed`, `failed`, `flaky`, `skipped`, `not run`, or `no test`."""
    unproven: str = ""
    """Why its tests have no authority; empty when they were seen to fail on the stubs."""


class ClauseLine(Fact):
    id: str
    text: str
    rows: tuple[RowLine, ...]
    outcome: Literal["proven", "failed", "not proven"]
    why: str


class Unproven(Fact):
    what: str
    why: str


_WHY = {
    "failed": "fails",
    "flaky": "passes in one run and not in another",
    "skipped": "was skipped",
    "no test": "has no test",
    "not run": "was not run",
}
_WORST_FIRST = ("failed", "flaky", "not run", "skipped", "passed")
_OUTCOMES = {"passed": "passed", "skipped": "skipped", "xfailed": "skipped"}


def natural(text: str) -> list[tuple[int, int, str]]:
    """Sort key under which C3 stands before C12."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part]


def clause_table(
    contract: Mapping[str, str], matrix: Mapping[str, str], proof: Mapping[str, Any] | None, gate: GateRecord | None
) -> tuple[ClauseLine, ...]:
    """`contract`: clause id → text. `matrix`: row id → clause id. `proof`: what proof.json holds, or None when there is none.

    A test belongs to the row that its name says; those that proof.json lists must also be among what the gate ran.
    """
    seen = {test.id: test for test in gate.tests} if gate else {}
    table = []
    for clause in sorted(contract, key=natural):
        ids = sorted((row for row, owner in matrix.items() if owner == clause), key=natural)
        rows = tuple(_row(id, seen, proof or {}) for id in ids)
        outcome, why = _clause(rows)
        table.append(ClauseLine(id=clause, text=contract[clause], rows=rows, outcome=outcome, why=why))
    return tuple(table)


def _row(id: str, seen: Mapping[str, TestOutcome], proof: Mapping[str, Any]) -> RowLine:
    proven = _entry(proof, "proven", id) or ()
    tests = {test for test in seen if row_of(test) == id} | set(map(str, proven))
    outcomes = {_outcome(seen[test]) if test in seen else "not run" for test in tests}
    outcome = next((word for word in _WORST_FIRST if word in outcomes), "no test")
    unproven = "" if proven else _entry(proof, "unproven", id) or "it was not put to the proof"
    return RowLine(id=id, tests=tuple(sorted(tests)), outcome=outcome, unproven=str(unproven))


def _outcome(test: TestOutcome) -> str:
    return "flaky" if test.flaky else _OUTCOMES.get(test.outcome, "failed")


def _entry(proof: Mapping[str, Any], part: str, id: str) -> Any:
    """proof.json lies among files that people edit: what has another shape counts as missing."""
    rows = proof.get(part)
    found = rows.get(id) if isinstance(rows, dict) else None
    return found if isinstance(found, str if part == "unproven" else list) else None


def _clause(rows: Sequence[RowLine]) -> tuple[Literal["proven", "failed", "not proven"], str]:
    if not rows:
        return "not proven", "no row of the test matrix covers it"
    wrong = [f"{row.id} {_WHY[row.outcome]}" for row in rows if row.outcome not in ("passed", "no test")]
    weak = [f"{row.id}: {row.unproven}" for row in rows if row.unproven]
    if any(row.outcome == "failed" for row in rows):
        return "failed", "; ".join(wrong)
    if wrong or weak:
        return "not proven", "; ".join(wrong + weak)
    return "proven", f"{len(rows)} of {len(rows)} rows pass, and fail on the stubs"


def unproven_gate(gate: GateRecord | None, why_not: str) -> list[Unproven]:
    """What the gate on the whole of V2 leaves open. `why_not` is said when its verdict does not count."""
    if gate is None or why_not:
        return [Unproven(what="V2 as a whole", why=why_not or "the quality gate never ran on it")]
    out = []
    if gate.verdict != "green":
        out.append(Unproven(what="V2 as a whole", why=f"the quality gate is {gate.verdict.replace('_', ' ')}: {gate.reason}"))
    for step in gate.steps:
        if step.status in ("not_run", "incomplete"):
            detail = step.detail.strip().partition("\n")[0]
            why = step.status.replace("_", " ") + (f": {detail}" if detail else "")
            out.append(Unproven(what=f"gate step {step.name}", why=why))
    out += [Unproven(what=test.id, why=f"is flaky: {test.flaky}") for test in gate.flaky]
    if "UNSANDBOXED" in gate.protections:
        out.append(Unproven(what="isolation", why="model-written code ran outside the sandbox, as run.yaml allows"))
    return out


def unproven_clauses(table: Iterable[ClauseLine], proof: Mapping[str, Any] | None, *, gated: bool) -> list[Unproven]:
    """What the clauses and the proof of the tests leave open. Without a gate that counts nothing is said of single clauses."""
    table = list(table)
    out = [Unproven(what=clause.id, why=clause.why) for clause in table if gated and clause.outcome != "proven"]
    if not table:
        out.append(Unproven(what="contract", why="no clauses are known, so nothing ties the tests to the mission"))
    if proof is not None and not proof.get("v1_ran", False):
        why = str(proof.get("v1_reason") or "")
        out.append(Unproven(what="equivalence to V1", why="the tests were never compared with what V1 does" + (f": {why}" if why else "")))
    weaker = (proof or {}).get("weakened")
    if isinstance(weaker, dict):
        out += [Unproven(what=str(test), why=f"was weakened: {what}") for test, what in weaker.items()]
    return out
