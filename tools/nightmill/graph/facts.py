"""What a stage is made from, as named facts; whether what lies there is still made from them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nightmill.build.own import own_tests
from nightmill.graph.stage import SOURCE, Stage
from nightmill.lines import NEVER
from nightmill.paths import skills_dir, templates_dir
from nightmill.run.record import Stamp, differences
from nightmill.run.trees import file_hash, sha, tree_hash

if TYPE_CHECKING:
    from nightmill.graph.session import Session

State = Literal["fresh", "kept", "stale", "held"]


@dataclass(frozen=True)
class Check:
    """`fresh`: as made. `kept`: a person edited it and its inputs stand. `stale`: to be made. `held`: edited, and its inputs changed."""

    state: State
    why: tuple[str, ...]
    facts: dict[str, str]
    edits: tuple[str, ...] = ()

    @property
    def up_to_date(self) -> bool:
        return self.state in ("fresh", "kept")


def check(session: Session, stage: Stage) -> Check:
    """The state of a stage as its files stand now."""
    facts = facts_of(session, stage)
    run = session.run
    stamp = run.stamps.get(stage.name)
    edits = tuple(run.ledger.edits(stage.makes, stamp))
    if stage.measured and edits:
        text = f"edited by a person: {_list(edits)}; only commands write it: nightmill redo {stage.name}"
        return Check("held", (text,), facts, edits)
    if stamp is None:
        if edits and run.ledger.present(stage.makes):
            return Check("kept", (f"written by a person: {_list(edits)}",), facts, edits)
        return Check("stale", (NEVER,), facts, edits)
    changed = tuple(differences(stamp.facts, facts))
    if edits:
        text = f"edited by a person: {_list(edits)}"
        return Check("held", (text, *changed), facts, edits) if changed else Check("kept", (text,), facts, edits)
    missing = _missing(session, stage, stamp)
    if changed or missing:
        return Check("stale", changed + missing, facts)
    return Check("fresh", (), facts)


def _missing(session: Session, stage: Stage, stamp: Stamp) -> tuple[str, ...]:
    now = session.run.ledger.current(stage.makes)
    gone = [p for p in stamp.product if now.get(p) != stamp.product[p]]
    if gone:
        return (f"not as it was made: {_list(gone)}",)
    if not session.run.ledger.present(stage.makes):
        return (f"missing: {_list(stage.makes)}",)
    return ()


def _list(paths: tuple[str, ...] | list[str]) -> str:
    return ", ".join(paths[:4]) + (f" and {len(paths) - 4} more" if len(paths) > 4 else "")


def facts_of(session: Session, stage: Stage) -> dict[str, str]:
    """Name → value. Values are hashes of contents or short readable texts; paths are relative, so a copied run agrees."""
    config = session.run.config
    facts = {f"input {need}": input_hash(session.run.root, need) for need in (*stage.needs, *stage.optional)}
    facts[f"code {stage.file.name}"] = file_hash(stage.file)
    facts |= {f"skill {name}": file_hash(skills_dir() / f"{name}.md") for name in stage.skills}
    facts |= {f"template {name}": sha(template_closure(name)) for name in stage.all_templates}
    facts |= {f"model {role}": config.fact(role) for role in stage.roles}
    facts |= {f"option {name}": json.dumps(config.option(name)) for name in stage.config}
    if stage.slice:
        facts["slice"] = sha(stage.slice)
    if stage.outside:
        facts["source"] = session.source_hash()
    if stage.persons and (own := own_tests(session.run)):
        facts["own tests"] = tree_hash(own)
    if stage.evidence:
        facts["evidence"] = session.evidence_hash(states(session))
    take = session.run.take(stage.name)
    if take:
        facts["take"] = str(take)
    return facts


def states(session: Session) -> dict[str, str]:
    """Stage → `fresh`, `kept`, `stale` or `held`, of all stages but the closing ones."""
    from nightmill.graph.commands import stages_of

    return {s.name: check(session, s).state for s in stages_of(session) if not s.closing}


def input_hash(root: Path, need: str) -> str:
    """Hash of a file, or of a directory's files; `missing` when it is not there."""
    if need == SOURCE:
        need = "source.lock"
    path = root / need
    if need.endswith("/"):
        from nightmill.run.trees import hashes

        return tree_hash(hashes(path)) if path.is_dir() else "missing"
    return file_hash(path) if path.is_file() else "missing"


@cache
def template_closure(name: str) -> str:
    """A template's text followed by the texts of all it extends, includes and imports, each once."""
    texts: list[str] = []
    pending, seen = [name], set()
    while pending:
        current = pending.pop(0)
        if current in seen:
            continue
        seen.add(current)
        text = (templates_dir() / current).read_text(encoding="utf-8")
        texts.append(text)
        pending += re.findall(r"{%-?\s*(?:extends|include|import|from)\s+[\"']([^\"']+)[\"']", text)
    return "\0".join(texts)
