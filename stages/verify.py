"""verify: v2 as it lies there, a person's edits included, against the locked tests. Only what this gate measured is called done."""

from __future__ import annotations

from nightmill.build.acceptance import told_by
from nightmill.build.locked import BY_HAND, asked_by
from nightmill.errors import MachineError, OutOfBudget
from nightmill.gate.authority import held_to, steering
from nightmill.gate.languages.base import under_acceptance
from nightmill.gate.manner import twice
from nightmill.gate.proof import absent
from nightmill.gate.records import GateRecord
from nightmill.graph.context import Ctx
from nightmill.graph.stage import GATES, stage
from nightmill.run.events import GateRan
from stages.baseline import own_tests, passed_before


@stage(needs=["v2/", "acceptance/", "proof.json", "baseline.json", "source/"], makes="gate.md", config=GATES, measured=True)
def verify(ctx: Ctx) -> None:
    """Build v2 and run every acceptance test on it, anew and twice; nothing else makes a run green."""
    tests = ctx.tree("acceptance/")
    record = _as_proved(ctx, ctx.gate(ctx.tree("v2/"), tests, twice(tests), fresh=True))
    ctx.emit(GateRan(stage=ctx.stage.name, attempt=0, record=record))
    if record.trouble:
        raise MachineError(f"the gate could not run, {record.trouble}")
    ctx.write(gate_page(record))
    for path, why in steering(ctx.pack.forbidden, ctx.tree("v2/")).items():
        ctx.finding("verify", f"{why}; here it had no effect", path)
    _regressions(ctx)
    if record.verdict != "green":
        raise OutOfBudget(
            f"v2 is not proven: {record.reason}; see gate.md. Raise build.max_iterations, edit contract.md, acceptance/, plan.md or v2/, or"
            " choose another model, and run doit again"
        )


def _regressions(ctx: Ctx) -> None:
    """The old program's own tests on v2. One that passed there and fails here is told, whether meant or not; it decides nothing."""
    passed = frozenset(passed_before(ctx.read("baseline.json")))
    if not passed:
        return
    step = ctx.session.gate_cache.test(ctx.tree("v2/"), own_tests(ctx.pack, ctx.source()))
    for test in step.tests:
        if test.id in passed and test.outcome in ("failed", "error") and not absent(test):
            what = f"{test.exception}: {test.message}".split("\n", 1)[0][:200]
            ctx.finding("verify", f"the old program's own {test.id.removeprefix('acceptance/')} passes there and fails on v2: {what}")


def _as_proved(ctx: Ctx, record: GateRecord) -> GateRecord:
    """Holds the record to what proof.json says of the tests. One that is of another shape proves nothing, so that no file is as it says."""
    tests = under_acceptance(ctx.tree("acceptance/"))
    told = told_by(ctx.read("proof.json"))
    return held_to(record, tests, told.files, told.expected, asked_by(ctx.pack, tests), f"{BY_HAND} since then; run doit again")


def gate_page(record: GateRecord) -> str:
    """The last gate on the whole as a page: verdict, commands, tests. Without durations, so that the same proof is the same page."""
    lines = ["# Quality gate", "", f"Verdict: {record.verdict}: {record.reason}", "", f"Tree: {record.tree}", f"Tests: {record.acceptance}"]
    lines += [f"Toolchain: {record.toolchain}"] if record.toolchain else []
    lines += [f"Protections: {', '.join(record.protections) or 'none'}", ""]
    for step in record.steps:
        advisory = " (advisory)" if step.advisory else ""
        how = f", exit {step.exit}" if step.exit is not None else f", signal {step.signal}" if step.signal is not None else ""
        lines += [f"## {step.name}{advisory}: {step.status.replace('_', ' ')}{how}", ""]
        lines += [f"    {' '.join(step.command)}", ""] if step.command else []
        lines += [step.detail, ""] if step.detail else []
        lines += [f"- {d.file}:{d.line}: {d.message}" if d.line else f"- {d.file} {d.message}" for d in step.diagnostics]
        lines += [f"- flaky: {t.id}: {t.flaky}" for t in step.tests if t.flaky]
        lines += [f"- {t.outcome}: {t.id}" for t in step.tests if not t.flaky] + [""]
    return "\n".join(lines)
