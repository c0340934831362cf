"""implement: one milestone, attempt by attempt, until the gate says green or the attempts are used up."""

from __future__ import annotations

from nightmill.build.editing import Edits, guard
from nightmill.build.job import Job
from nightmill.build.judge import Duty
from nightmill.build.loop import build
from nightmill.build.milestones import Milestone, Plan
from nightmill.build.state import State
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage

STUB = "main.py\n```python\ndef main(argv: list[str]) -> int:\n    return 0\n```\n"


@stage(
    needs=["source/", "contract.md", "analysis.md", "acceptance/"],
    makes="milestones/NAME/",
    skill="target_implementer",
    template="implement.md.j2",
    templates=["patch.md.j2", "function_item.md.j2", "milestone_review.md.j2"],
    role="implementer",
    reviewers=["security_reviewer", "maintenance_reviewer"],
    reply=Edits,
    config=["build.max_iterations", "build.review", "build.strategy"],
    stub=STUB,
)
def implement(ctx: Ctx) -> None:
    """Implement one milestone: edits, gate, review, until green or out of attempts."""
    plan = Plan.read(ctx.plan)
    mine = next(m for m in plan.milestones if m.name == ctx.subject)
    state = build(ctx, _job(ctx, plan, mine), keep=ctx.write_tree)
    report(ctx, state)
    if not state.judgement.green:
        ctx.note(f"red, and left to integrate: {state.judgement.reason}")
    for path in sorted(set(state.tree) - set(ctx.seed) - set(mine.files)):
        ctx.finding("quality_gate", f"milestone {mine.name} wrote a file outside its list", path)


def _job(ctx: Ctx, plan: Plan, mine: Milestone) -> Job:
    others = [m for m in plan.milestones if m is not mine]
    owners: dict[str, str] = {}
    for other in others:
        for file in other.files:
            owners[file] = f"{owners[file]} and {other.name}" if file in owners else other.name
    place = plan.milestones.index(mine)
    sharing = [(n < place, (m.files, m.task)) for n, m in enumerate(plan.milestones) if m is not mine and set(m.files) & set(mine.files)]
    return Job(
        name=mine.name,
        duty=Duty(mine.files, mine.task, tuple(m for first, m in sharing if not first), tuple(m for first, m in sharing if first)),
        seed=ctx.seed,
        acceptance=ctx.tree("acceptance/"),
        guard=guard(mine.files, owners, ctx.pack.forbidden),
        reviewers=ctx.stage.reviewers,
        kept={path: data for path, data in ctx.kept(("input contract.md", "input source/", "slice")).items() if path in mine.files},
    )


def report(ctx: Ctx, state: State) -> None:
    """The reviewers' findings about the tree that was kept."""
    for skill, (verdict, findings) in state.findings.items():
        for finding in findings:
            ctx.finding(skill, finding.text, finding.where, verdict)
