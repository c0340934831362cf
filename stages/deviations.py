"""deviations: what reviewers and checks noticed and nobody fixed."""

from __future__ import annotations

from nightmill.deviations import render_deviations
from nightmill.graph.context import Ctx
from nightmill.graph.facts import states
from nightmill.graph.reading import summary_of
from nightmill.graph.stage import stage


@stage(
    makes="deviations.md",
    optional=["gate.md", "contract.md", "test_matrix.md", "proof.json", "mutants.json"],
    closing=True,
    evidence=True,
)
def deviations(ctx: Ctx) -> None:
    """Gather all findings, grouped by who noticed, and what is not proven."""
    summary = summary_of(ctx.session, states(ctx.session))
    ctx.write(render_deviations(summary.findings, summary.unproven))
