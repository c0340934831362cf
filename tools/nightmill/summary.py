"""A run in figures and verdicts, derived from its events alone (`summary.json`, the report, `nightmill status`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nightmill.calls.account import Account
from nightmill.clauses import ClauseLine, Unproven, clause_table, natural, unproven_clauses, unproven_gate
from nightmill.errors import EXIT_WORDS
from nightmill.gate.records import GateRecord, Verdict
from nightmill.lines import one_line
from nightmill.run.events import (
    AttemptFinished,
    CallFinished,
    CallStarted,
    EditRefused,
    Event,
    Finding,
    GateRan,
    ReplyRefused,
    StageStarted,
)
from nightmill.run.evidence import latest
from nightmill.timeline import Calls, Fact, Invocation, ModelUse, invocations, usage

WHOLE = "verify"
"""The stage whose gate judges V2 as a whole."""


class AttemptLine(Fact):
    """One candidate for a milestone, and the model that wrote it."""

    stage: str
    attempt: int
    model: str
    asked: str
    differs: str
    outcome: str
    charged: bool
    passed: int
    owed: int
    diagnostics: int
    best: bool


class GateLine(Fact):
    stage: str
    attempt: int
    record: GateRecord


class Charge(Fact):
    """A failure that counts against the agent that caused it."""

    stage: str
    model: str
    what: str
    why: str


class Counted(Fact):
    calls: int
    tokens: int
    attempts: int
    minutes: float
    money: float


class Summary(Fact):
    exit: int | None
    """Of the last invocation; None while it runs or when it was killed."""
    word: str
    """See errors.EXIT_WORDS; `unfinished` when `exit` is None."""
    reason: str
    verdict: Verdict
    """Of the last gate on the whole of V2, as far as it still speaks of the V2 that is there."""
    verdict_why: str
    stages: dict[str, str]
    """Stage → `made`, `kept`, `fresh`, `stale`, `running`, `held`, `failed`, `waiting`, `blocked`, `stopped`."""
    calls: Calls
    counted: Counted
    """What counts against the budgets: calls that were cut off by a kill too, and estimates where a server told nothing."""
    models: tuple[ModelUse, ...]
    attempts: tuple[AttemptLine, ...]
    gates: tuple[GateLine, ...]
    """Of each stage's latest execution."""
    charged: tuple[Charge, ...]
    findings: tuple[Finding, ...]
    clauses: tuple[ClauseLine, ...]
    unproven: tuple[Unproven, ...]
    invocations: tuple[Invocation, ...]

    def having(self, *statuses: str) -> list[str]:
        """The stages in one of these states."""
        return [name for name, status in self.stages.items() if status in statuses]


def summarize(
    events: Iterable[Event],
    states: Mapping[str, str] | None = None,
    *,
    contract: Mapping[str, str] | None = None,
    matrix: Mapping[str, str] | None = None,
    proof: Mapping[str, Any] | None = None,
    exit_code: int | None = None,
    whole: str = WHOLE,
) -> Summary:
    """Events of all invocations in order; `states` is what the stamps say now (stage → state) and wins over the events.

    `contract` clause id → text, `matrix` row id → clause id, `proof` what proof.json holds. `exit_code`, when the caller knows how the
    invocation that is still running will end.
    """
    log = list(events)
    current = latest(log)
    runs = invocations(log)
    stages = _stages(runs, states or {})
    gates = tuple(GateLine(stage=e.stage, attempt=e.attempt, record=e.record) for e in current if isinstance(e, GateRan))
    gate = next((line.record for line in reversed(gates) if line.stage == whole), None)
    outdated = _outdated(gate, stages.get(whole, ""), runs, whole)
    attempts = _attempts(log, current)
    table = clause_table(contract or {}, matrix or {}, proof, None if outdated else gate)
    calls, models = usage(runs)
    last = runs[-1] if runs else Invocation(at=0.0)
    code = last.exit if exit_code is None else exit_code
    return Summary(
        exit=code,
        word="unfinished" if code is None else EXIT_WORDS.get(code, "failed"),
        reason=last.reason,
        verdict="not_run" if gate is None or outdated else gate.verdict,
        verdict_why=outdated or (gate.reason if gate else "the quality gate has not run on the whole of V2"),
        stages=stages,
        calls=calls,
        counted=_counted(log),
        models=models,
        attempts=attempts,
        gates=gates,
        charged=tuple(_charges(log, current, attempts)),
        findings=tuple(e.model_copy(update={"up": 0.0}) for e in current if isinstance(e, Finding)),
        clauses=table,
        unproven=tuple(
            unproven_gate(gate, outdated)
            + unproven_clauses(table, proof, gated=gate is not None and not outdated)
            + _unfinished_work(stages, runs, () if gate and gate.verdict == "green" and not outdated else attempts)
            + [Unproven(what=stage, why=f"was asked without {', '.join(names)}, which did not fit") for stage, names in _unseen(log)]
        ),
        invocations=runs,
    )


def _counted(log: Iterable[Event]) -> Counted:
    account = Account()
    for event in log:
        account.add(event)
    money = round(account.money, 6)
    return Counted(calls=account.calls, tokens=account.tokens, attempts=account.attempts, minutes=account.seconds / 60, money=money)


def _stages(runs: Iterable[Invocation], states: Mapping[str, str]) -> dict[str, str]:
    """`states`, where fresh and stale ones keep the word for how they came about."""
    seen = {stage.stage: stage.status for run in runs for stage in run.stages}
    ways = {"fresh": ("made", "kept"), "stale": ("failed", "waiting", "stopped")}
    return {name: seen[name] if seen.get(name) in ways.get(state, ()) else state for name, state in states.items()} or seen


def _reason(runs: Iterable[Invocation], stage: str) -> str:
    """Why the last execution of `stage` ended as it did."""
    return next((s.reason for run in reversed(list(runs)) for s in reversed(run.stages) if s.stage == stage and s.reason), "")


def _outdated(gate: GateRecord | None, state: str, runs: Sequence[Invocation], whole: str) -> str:
    """Why the last gate on the whole says nothing about the V2 that is there now, or ""."""
    if gate is None:
        return ""
    if state in ("stale", "held", "waiting", "blocked"):
        return f"{whole} is {state}: its last gate ({gate.verdict.replace('_', ' ')}) judged an earlier V2"
    if state == "failed" and gate.verdict == "green":
        return f"{whole} failed after its gate: {one_line(_reason(runs, whole)) or 'no reason recorded'}"
    return ""


def _attempts(log: Iterable[Event], current: Iterable[Event]) -> tuple[AttemptLine, ...]:
    model: dict[str, str] = {}
    wrote: dict[tuple[str, int], str] = {}
    for event in log:
        if isinstance(event, CallFinished) and event.outcome == "ok" and "/" not in event.label:  # not a reviewer's call
            model[event.stage] = event.model
        elif isinstance(event, AttemptFinished):
            wrote[event.stage, event.attempt] = model.get(event.stage, "")
    fields = set(AttemptLine.model_fields) - {"model"}
    return tuple(
        AttemptLine(model=wrote[e.stage, e.attempt], **e.model_dump(include=fields)) for e in current if isinstance(e, AttemptFinished)
    )


def _charges(log: Sequence[Event], current: Iterable[Event], attempts: Sequence[AttemptLine]) -> Iterable[Charge]:
    """Charged attempts with the gate's or the applier's reason, then replies that broke their format, each once."""
    why: dict[tuple[str, int], str] = {}
    for event in current:
        if isinstance(event, EditRefused):
            why[event.stage, event.attempt] = "; ".join(event.reasons)
        elif isinstance(event, AttemptFinished) and event.reason:
            why[event.stage, event.attempt] = event.reason
    for attempt in attempts:
        if attempt.charged:
            reason = why.get((attempt.stage, attempt.attempt), "")
            yield Charge(stage=attempt.stage, model=attempt.model, what=f"attempt {attempt.attempt}: {attempt.outcome}", why=reason)
    models = {e.key: e.model for e in log if isinstance(e, CallFinished)}
    refused = {(e.stage, e.label, e.key): e for e in log if isinstance(e, ReplyRefused)}
    for event in sorted(refused.values(), key=lambda e: (e.stage, e.at)):
        yield Charge(stage=event.stage, model=models.get(event.key, ""), what="reply refused", why=event.rule)


def _unfinished_work(stages: Mapping[str, str], runs: Sequence[Invocation], attempts: Sequence[AttemptLine]) -> list[Unproven]:
    """Stages that did not come to their end, and milestones without a green attempt (pass no attempts where the whole is green)."""
    tried = Counter(a.stage for a in attempts)
    best = {a.stage: a for a in sorted(attempts, key=lambda a: (a.outcome == "green", a.passed))}
    out = []
    for stage in sorted({*stages, *best}, key=natural):
        state = stages.get(stage, "")
        if state in ("failed", "held", "waiting", "blocked", "stopped"):
            reason = one_line(_reason(runs, stage))
            out.append(Unproven(what=stage, why=state + (f": {reason}" if reason else "")))
        elif stage in best and best[stage].outcome != "green":
            a = best[stage]
            out.append(Unproven(what=stage, why=f"no attempt of {tried[stage]} is green; the best passes {a.passed} of {a.owed} tests"))
    return out


def _unseen(log: Iterable[Event]) -> list[tuple[str, list[str]]]:
    """Stage → sections its latest execution never showed to the model."""
    left_out: dict[str, tuple[str, ...]] = {}
    found: dict[str, set[str]] = {}
    for event in log:
        if isinstance(event, StageStarted):
            found[event.stage] = set()
        elif isinstance(event, CallStarted):
            left_out[event.key] = event.left_out
        elif isinstance(event, CallFinished) and event.outcome == "ok":
            found.setdefault(event.stage, set()).update(left_out.get(event.key, ()))
    return [(stage, sorted(names)) for stage, names in sorted(found.items()) if names]
