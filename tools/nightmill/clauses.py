"""Clause → rows → tests → what the last gate saw; and everything that is not proven, with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from nightmill.gate.records import GateRecord, TestOutcome
from nightmill.timeline import Fact

ROW_OF_TEST = re.compile(r"(?:^|::)test_t(\d+)(?![0-9a-z])", re.I)
"""A test belongs to the row its name says: `acceptance/test_x.py::test_t4_rounds_half_up[0.5]` → T4."""


class RowLine(Fact):
    id: str
    tests: tuple[str, ...]
    outcome: str
    """`passed`, `failed`, `skipped`, `no test`, `not run`."""
    proof: str = ""
    """`proven`, `vacuous`, `broken`, `disputed`; empty when the test was not put to the proof."""


class ClauseLine(Fact):
    id: str
    text: str
    rows: tuple[RowLine, ...]
    outcome: Literal["proven", "failed", "not proven"]
    why: str


class Unproven(Fact):
    what: str
    why: str


_PROOF_WHY = {
    "": "was not put to the proof",
    "vacuous": "passes on the stubs too, so passing says nothing",
    "broken": "cannot fail or pass for a reason of the code",
    "disputed": "does not hold for V1 either",
}
_ROW_WHY = {"failed": "fails", "skipped": "was skipped", "no test": "has no test", "not run": "was not run"}


def natural(text: str) -> list[tuple[int, int, str]]:
    """Sort key under which C3 stands before C12."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part]


def row_of(test: str) -> str:
    """The row (`T4`) that a test id or a row id names, or ""."""
    match = ROW_OF_TEST.search(test) or re.fullmatch(r"T(\d+)", test)
    return f"T{int(match[1])}" if match else ""


def clause_table(
    contract: Mapping[str, str], matrix: Mapping[str, str], proof: Mapping[str, Any] | None, gate: GateRecord | None
) -> tuple[ClauseLine, ...]:
    """`contract`: clause id → text. `matrix`: row id → clause id. `proof`: the fields of a Proof (lists of row or test ids), or None."""
    proofs = _proofs(proof or {})
    tests: dict[str, list[TestOutcome]] = {}
    for test in gate.tests if gate else ():
        tests.setdefault(row_of(test.id), []).append(test)
    table = []
    for clause in sorted(contract, key=natural):
        ids = sorted((row for row, owner in matrix.items() if owner == clause), key=natural)
        rows = tuple(_row(row, tests.get(row, []), proofs.get(row, ""), gate is not None) for row in ids)
        outcome, why = _clause(rows)
        table.append(ClauseLine(id=clause, text=contract[clause], rows=rows, outcome=outcome, why=why))
    return tuple(table)


def _proofs(proof: Mapping[str, Any]) -> dict[str, str]:
    """The worst word said of any test of a row."""
    found: dict[str, str] = {}
    for word in ("proven", "disputed", "vacuous", "broken"):
        found |= {row_of(str(test)): word for test in proof.get(word, ())}
    return found


def _row(row: str, tests: Sequence[TestOutcome], proof: str, gated: bool) -> RowLine:
    outcomes = {test.outcome for test in tests}
    if not tests:
        outcome = "no test" if gated else "not run"
    elif outcomes == {"passed"}:
        outcome = "passed"
    else:
        outcome = "failed" if outcomes & {"failed", "error", "xpassed"} else "skipped"
    return RowLine(id=row, tests=tuple(sorted(test.id for test in tests)), outcome=outcome, proof=proof)


def _clause(rows: Sequence[RowLine]) -> tuple[Literal["proven", "failed", "not proven"], str]:
    if not rows:
        return "not proven", "no row of the test matrix covers it"
    bad = [f"{row.id} {_ROW_WHY[row.outcome]}" for row in rows if row.outcome != "passed"]
    weak = [f"{row.id} {_PROOF_WHY[row.proof]}" for row in rows if row.outcome == "passed" and row.proof != "proven"]
    if any(row.outcome == "failed" for row in rows):
        return "failed", "; ".join(bad)
    if bad or weak:
        return "not proven", "; ".join(bad + weak)
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
    if "UNSANDBOXED" in gate.protections:
        out.append(Unproven(what="isolation", why="model-written code ran outside the sandbox, as run.yaml allows"))
    return out


def unproven_clauses(table: Iterable[ClauseLine], proof: Mapping[str, Any] | None) -> list[Unproven]:
    table = list(table)
    out = [Unproven(what=clause.id, why=clause.why) for clause in table if clause.outcome != "proven"]
    if not table:
        out.append(Unproven(what="contract", why="no clauses are known, so nothing ties the tests to the mission"))
    if proof is not None and not proof.get("v1_ran", False):
        out.append(Unproven(what="equivalence to V1", why="V1 could not be run under the tests, so they were never checked against it"))
    return out
