"""report: one self-contained page about the run."""

from __future__ import annotations

from nightmill.graph.context import Ctx
from nightmill.graph.facts import states
from nightmill.graph.reading import summary_of
from nightmill.graph.stage import stage
from nightmill.paths import templates_dir
from nightmill.report import diff_trees, render_report


@stage(
    makes="report.html",
    optional=["source.lock", "v2/", "gate.md", "deviations.md", "contract.md", "test_matrix.md", "proof.json", "mutants.json"],
    templates=["report.html.j2"],
    closing=True,
    evidence=True,
)
def report(ctx: Ctx) -> None:
    """Write report.html: verdict, clauses, attempts, gates, cost, diff, what is not proven."""
    objects = ctx.session.run.objects
    old = {rel: objects.get(digest) for rel, digest in ctx.session.locked_source.items()}
    ctx.write(
        render_report(
            summary_of(ctx.session, states(ctx.session)), diff_trees(old, ctx.tree("v2/")), ctx.read("deviations.md"), templates_dir()
        )
    )
