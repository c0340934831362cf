"""What a run leaves when it ends: summary.json, and where to look."""

from __future__ import annotations

from collections.abc import Sequence

from nightmill.graph.facts import check
from nightmill.graph.reading import summary_of
from nightmill.graph.session import Session
from nightmill.graph.stage import Stage
from nightmill.run.atomic import write_atomic

SUMMARY = "summary.json"


def finish(session: Session, stages: Sequence[Stage], code: int, blocked: Sequence[str]) -> None:
    """Writes summary.json. Its word and exit code are the runner's, from what commands and stamps say."""
    states = {stage.name: "blocked" if stage.name in blocked else check(session, stage).state for stage in stages}
    summary = summary_of(session, states, code)
    write_atomic(session.run.root / SUMMARY, summary.model_dump_json(indent=1).encode())
