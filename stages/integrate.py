"""integrate: the milestones as one program, mended until the locked tests pass or the repairs are used up."""

from __future__ import annotations

from nightmill.build.acceptance import told_by
from nightmill.build.editing import Edits, guard
from nightmill.build.job import Job
from nightmill.build.judge import Duty
from nightmill.build.loop import build
from nightmill.graph.context import Ctx
from nightmill.graph.pipeline import LAST_WAVE
from nightmill.graph.stage import stage
from stages.implement import STUB


@stage(
    needs=["source/", "contract.md", "acceptance/", "proof.json", LAST_WAVE],
    makes="v2/",
    skill="target_implementer",
    template="patch.md.j2",
    templates=["implement.md.j2", "function_item.md.j2"],
    role="implementer",
    reply=Edits,
    config=["build.max_iterations", "build.review"],
    stub=STUB,
)
def integrate(ctx: Ctx) -> None:
    """Gate the whole on the acceptance tests and repair what is red; the best becomes v2."""
    seed = ctx.seed
    job = Job(
        name="the whole",
        duty=Duty(tuple(sorted(seed)), "All files together must keep the contract and pass every acceptance test."),
        seed=seed,
        acceptance=ctx.tree("acceptance/"),
        guard=guard(tuple(seed), {}, ctx.pack.forbidden),
        expected=told_by(ctx.read("proof.json")).expected,
        final=True,
        whole=True,
    )
    state = build(ctx, job, keep=ctx.write_tree)
    if not state.judgement.green:
        ctx.note(f"red after {ctx.option('build.max_iterations')} repairs: {state.judgement.reason}")
