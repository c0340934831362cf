"""The implement loop: attempt → apply → gate, a patch before a rewrite, the best so far kept and never replaced by something worse."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nightmill.build.editing import Edits
from nightmill.build.job import Job, about
from nightmill.build.judge import Judgement, judge
from nightmill.build.piecewise import write_functions
from nightmill.build.reviewing import review
from nightmill.build.state import Asked, State
from nightmill.build.strategies import Strategy, strategy_for
from nightmill.calls.outcome import charged
from nightmill.calls.sections import show
from nightmill.edits import plan_edits
from nightmill.errors import BadReply, MachineError, NoUsableReply
from nightmill.gate.authority import all_ran
from nightmill.gate.manner import twice
from nightmill.gate.records import GateRecord
from nightmill.run.events import AttemptFinished, EditRefused, GateRan
from nightmill.run.trees import Tree, tree_hash

if TYPE_CHECKING:
    from nightmill.graph.context import Ctx

FAILURES_SHOWN = 6
"""Red tests in one prompt, whole reports; the others are named."""


def build(ctx: Ctx, job: Job, *, keep: Callable[[Tree], None]) -> State:
    """Up to `build.max_iterations` attempts. `keep` is told every new best tree, so that nothing is lost when the budget ends.

    Raises MachineError when the gate could not run for reasons that are not the code's, NoUsableReply when no attempt was ever answered.
    """
    strategy = strategy_for(ctx, job)
    state = _start(ctx, job)
    keep(state.tree)
    limit = ctx.option("build.max_iterations")
    for attempt in range(1, limit + 1):
        if state.judgement.green or _elsewhere(ctx, job, state):
            break
        _attempt(ctx, job, strategy, state, attempt, last=attempt == limit)
        keep(state.tree)
    if state.silence and not state.judgement.green:
        raise state.silence
    return state


def _start(ctx: Ctx, job: Job) -> State:
    """The seed, or what an earlier execution kept where that is better."""
    record = gated(ctx, job, job.seed, attempt=0)
    seeds = () if job.final else job.sides or (record,)
    before = record.passed | job.must_pass
    state = State(
        job.seed, record, judge(record, ctx.pack.stubs(job.seed), job.duty, before, seeds, alone=job.final), before, seeds, built=job.whole
    )
    kept = {**job.seed, **job.kept}
    if kept != job.seed:
        record = gated(ctx, job, kept, attempt=0)
        found = judge(record, ctx.pack.stubs(kept), job.duty, before, seeds, alone=job.final)
        if found.better_than(state.judgement):
            ctx.note(f"goes on from what was made before: {found.reason}")
            state.tree, state.record, state.judgement, state.built = kept, record, found, True
    return state


def _elsewhere(ctx: Ctx, job: Job, state: State) -> bool:
    """Whether nothing that is red can be mended here: every red test crashes in a file that belongs to others."""
    found = state.judgement
    places = {test.crash_file for test in found.failed}
    foreign = bool(places) and all(place in state.tree and place not in job.duty.files for place in places)
    if not foreign or not found.builds or found.unwritten or found.lost:
        return False
    ctx.note(f"left to integrate: {len(found.failed)} red tests crash in {', '.join(sorted(places))}, first {found.failed[0].id}")
    return True


def _attempt(ctx: Ctx, job: Job, strategy: Strategy, state: State, attempt: int, *, last: bool) -> None:
    base = strategy.base(job, state)
    asked = strategy.asks(ctx, job, base)
    differs = _differs(base, asked, attempt)
    state.asked = asked
    ctx.session.budget.attempt(ctx.stage.name)
    try:
        reply = _ask(ctx, job, base, asked, attempt)
    except NoUsableReply as error:
        _done(ctx, attempt, asked, differs, "no verdict")
        ctx.note(f"attempt {attempt}: {error}")
        state.silence = error if attempt == 1 else state.silence
        return
    except BadReply as error:
        state.refusal, state.silence = str(error), None
        _done(ctx, attempt, asked, differs, "unparseable")
        return
    state.silence = None
    examples = (Edits.format({"pack": ctx.pack}),)
    outcome = plan_edits(base.tree, reply.text, guard=job.guard, prompt_examples=examples, failed_before=base.failed_before)
    if outcome.refused:
        state.refusal, state.refusals = outcome.refused, state.refusals + 1
        state.rewrite = asked == "patch" and state.refusals >= 2
        state.failed_before += tuple(outcome.failed)
        ctx.emit(EditRefused(stage=ctx.stage.name, attempt=attempt, reasons=tuple(outcome.reasons)))
        _done(ctx, attempt, asked, differs, "refused")
        return
    state.refusal, state.refusals = "", 0
    _weigh(ctx, job, strategy, state, dict(outcome.tree), attempt, asked, differs, last=last)


def _weigh(
    ctx: Ctx, job: Job, strategy: Strategy, state: State, tree: Tree, attempt: int, asked: Asked, differs: str, *, last: bool
) -> None:
    record = gated(ctx, job, tree, attempt)
    found = judge(record, ctx.pack.stubs(tree), job.duty, strategy.protects(state), state.seeds, alone=job.final)
    findings = {}
    if found.builds and (found.green or ctx.option("build.review") == "each" or last):
        findings = {skill: review(ctx, skill, tree, job) for skill in job.reviewers}
    better = strategy.prefers(found, state)
    if better:
        state.tree, state.record, state.judgement, state.findings, state.built = tree, record, found, findings, True
        state.rewrite = False
    else:
        state.rewrite = asked == "patch"
        state.refusal = f"Your last change made it no better and was taken back: {found.reason}"
    _done(ctx, attempt, asked, differs, found.verdict, judgement=found, tree=tree, best=better)


def _ask(ctx: Ctx, job: Job, state: State, asked: Asked, attempt: int) -> Edits:
    if job.by_function(ctx):
        return write_functions(ctx, job, state, attempt)
    others = {rel: data for rel, data in state.tree.items() if rel not in job.duty.files}
    mine = {rel: data for rel, data in state.tree.items() if rel in job.duty.files}
    code = f"The files to write:\n\n{show(mine)}" + (
        f"\n\nOther files of the project, not to be changed:\n\n{show(others)}" if others else ""
    )
    facts = state.judgement
    reply: Edits = ctx.ask(
        job.reply,
        template=job.patch_template if asked == "patch" else job.template,
        sections={"code": code, "schema": ""},
        facts={"files": job.duty.files},
        vary=0 if asked == "patch" and not state.refusal else attempt - 1,
        milestone=about(ctx, job, state.tree),
        rules=ctx.pack.prompt_rules,
        diagnostics=[f"{d.file}:{d.line}: {d.message}" for d in state.record.diagnostics],
        failures=[{"id": t.id, "message": t.message, "traceback": t.traceback} for t in facts.failed[:FAILURES_SHOWN]],
        more=[t.id for t in facts.failed[FAILURES_SHOWN:]],
        unwritten=list(facts.unwritten) if state.built else [],
        remarks=[f"{f.where}: {f.text}" if f.where else f.text for _, found in state.findings.values() for f in found],
        refusal=state.refusal,
    )
    return reply


def gated(ctx: Ctx, job: Job, tree: Tree, attempt: int) -> GateRecord:
    """Runs the gate and records it. Raises MachineError when machine or sandbox kept it from running."""
    record = all_ran(ctx.gate(tree, job.acceptance, twice(job.acceptance) if job.final else None), job.expected)
    ctx.emit(GateRan(stage=ctx.stage.name, attempt=attempt, record=record))
    if record.trouble:
        raise MachineError(f"the gate could not run, {record.trouble}")
    return record


def _differs(state: State, asked: Asked, attempt: int) -> str:
    if state.asked is None:
        return "first attempt"
    changes = [
        f"{asked} after {state.asked}" if asked != state.asked else "",
        "the refusal is shown" if state.refusal else "",
        "seed and temperature",
    ]
    return f"attempt {attempt}: " + ", ".join(c for c in changes if c)


def _done(
    ctx: Ctx,
    attempt: int,
    asked: Asked,
    differs: str,
    outcome: str,
    *,
    judgement: Judgement | None = None,
    tree: Tree | None = None,
    best: bool = False,
) -> None:
    ctx.emit(
        AttemptFinished(
            stage=ctx.stage.name,
            attempt=attempt,
            asked=asked,
            differs=differs,
            outcome=outcome,
            charged=charged(outcome),
            passed=len(judgement.passed) if judgement else 0,
            owed=len(judgement.passed) + len(judgement.failed) if judgement else 0,
            diagnostics=judgement.diagnostics if judgement else 0,
            reason=judgement.reason if judgement else "",
            tree=tree_hash(tree) if tree is not None else "",
            best=best,
        )
    )
