"""The run as it stands, for people: stage lines and the summary, from stamps and events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nightmill.build.sharpness import MUTANTS, unnoticed
from nightmill.calls.numbered import clauses, rows
from nightmill.graph.facts import check
from nightmill.graph.session import Session
from nightmill.graph.stage import Stage
from nightmill.lines import StageLine
from nightmill.run.trees import hashes, tree_hash
from nightmill.summary import WHOLE, Summary, summarize


def stage_lines(session: Session, stages: Sequence[Stage]) -> list[StageLine]:
    """Name, help, state and reason of each stage, in pipeline order."""
    lines = []
    for stage in stages:
        found = check(session, stage)
        lines.append(StageLine(stage.name, stage.doc, found.state, "; ".join(found.why)))
    return lines


def summary_of(session: Session, states: Mapping[str, str], exit_code: int | None = None) -> Summary:
    """The summary as contract, matrix, proof and events have it now; `states` is what the stamps say (stage → state)."""
    if _edited_since_gate(session):
        states = {**states, WHOLE: "stale"}
    root = session.run.root
    found = summarize(
        session.run.events,
        states,
        contract={clause.id: clause.text for clause in clauses(_text(root / "contract.md"))},
        matrix={row.id: row.clause for row in rows(_text(root / "test_matrix.md"))},
        proof=_json(root / "proof.json"),
        exit_code=exit_code,
    )
    if found.verdict != "green" or states.get(MUTANTS, "fresh") != "fresh":
        return found
    return found.model_copy(update={"unproven": (*found.unproven, *unnoticed(_json(root / "mutants.json")))})


def _json(path: Path) -> dict[str, Any] | None:
    """None for what is missing or no JSON object: people edit here."""
    try:
        told = json.loads(path.read_bytes()) if path.is_file() else None
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _edited_since_gate(session: Session) -> bool:
    """Whether V2 is not the tree that the last gate on the whole judged: a person's edit of it is kept, but not proven."""
    gated = [e.record.tree for e in session.run.events if e.kind == "gate_ran" and e.stage == WHOLE]
    return bool(gated) and tree_hash(hashes(session.run.root / "v2")) != gated[-1]


def leftovers(session: Session, stages: Sequence[Stage]) -> list[str]:
    """What stages made that are in the plan or the rounds no more. It is never deleted."""
    made = tuple(target for stage in stages for target in stage.makes)
    paths = {e.path for e in session.run.journal if e.act == "made" and not e.path.startswith(made)}
    return sorted({"/".join(path.split("/")[:2]) for path in paths if (session.run.root / path).is_file()})


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
