"""verify: v2 as it lies there, a person's edits included, against the locked tests. Only what this gate measured is called done."""

from __future__ import annotations

from nightmill.errors import MachineError, OutOfBudget
from nightmill.gate.records import GateRecord
from nightmill.graph.context import Ctx
from nightmill.graph.stage import GATES, stage
from nightmill.run.events import GateRan


@stage(needs=["v2/", "acceptance/"], makes="gate.md", config=GATES, measured=True)
def verify(ctx: Ctx) -> None:
    """Build v2 and run every acceptance test on it, anew; nothing else makes a run green."""
    record = ctx.gate(ctx.tree("v2/"), ctx.tree("acceptance/"), fresh=True)
    ctx.emit(GateRan(stage=ctx.stage.name, attempt=0, record=record))
    if record.trouble:
        raise MachineError(f"the gate could not run, {record.trouble}")
    ctx.write(gate_page(record))
    if record.verdict != "green":
        raise OutOfBudget(
            f"v2 is not proven: {record.reason}; see gate.md. Raise build.max_iterations, edit contract.md, acceptance/, plan.md or v2/, or"
            " choose another model, and run doit again"
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
