"""integrate: the whole against the locked tests. Only what this gate measured is called done."""

from __future__ import annotations

from nightmill.build.editing import Edits, guard
from nightmill.build.job import Job
from nightmill.build.judge import Duty
from nightmill.build.loop import build
from nightmill.errors import OutOfBudget
from nightmill.gate.records import GateRecord
from nightmill.graph.context import Ctx
from nightmill.graph.pipeline import LAST_WAVE
from nightmill.graph.stage import stage
from stages.implement import STUB


@stage(
    needs=["source/", "contract.md", "acceptance/", LAST_WAVE],
    makes=["v2/", "gate.md"],
    skill="target_implementer",
    template="patch.md.j2",
    templates=["implement.md.j2", "function_item.md.j2"],
    role="implementer",
    reply=Edits,
    config=["build.max_iterations", "build.review"],
    stub=STUB,
)
def integrate(ctx: Ctx) -> None:
    """Gate the whole of v2 on the acceptance tests and repair what is red."""
    seed = ctx.seed
    job = Job(
        name="the whole",
        duty=Duty(tuple(sorted(seed)), "All files together must keep the contract and pass every acceptance test."),
        seed=seed,
        acceptance=ctx.tree("acceptance/"),
        guard=guard(tuple(seed), {}, ctx.pack.forbidden),
        final=True,
        whole=True,
    )
    state = build(ctx, job, keep=lambda tree: ctx.write_tree(tree, "v2/"))
    ctx.write(gate_page(state.record), "gate.md")
    if state.record.verdict != "green":
        raise OutOfBudget(
            f"v2 is not proven after {ctx.option('build.max_iterations')} repairs: {state.record.reason}; the best is in v2/, see gate.md. "
            "Raise build.max_iterations, edit contract.md, acceptance/ or plan.md, or choose another model, and run doit again"
        )


def gate_page(record: GateRecord) -> str:
    """The last gate on the whole as a page: verdict, commands, tests. Without durations, so that the same proof is the same page."""
    lines = ["# Quality gate", "", f"Verdict: {record.verdict}: {record.reason}", "", f"Tree: {record.tree}", f"Tests: {record.acceptance}"]
    lines += [f"Protections: {', '.join(record.protections) or 'none'}", ""]
    for step in record.steps:
        advisory = " (advisory)" if step.advisory else ""
        how = f", exit {step.exit}" if step.exit is not None else f", signal {step.signal}" if step.signal is not None else ""
        lines += [f"## {step.name}{advisory}: {step.status.replace('_', ' ')}{how}", ""]
        lines += [f"    {' '.join(step.command)}", ""] if step.command else []
        lines += [step.detail, ""] if step.detail else []
        lines += [f"- {d.file}:{d.line}: {d.message}" for d in step.diagnostics]
        lines += [f"- {t.outcome}: {t.id}" for t in step.tests] + [""]
    return "\n".join(lines)
