"""What ran when, and what it cost: invocations, their stages, their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from nightmill.run.events import CallFinished, CallStarted, Event, RunEnded, RunStarted, StageFinished, StageStarted


class Fact(BaseModel):
    """Base of everything a summary holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tokens(Fact):
    """As the servers counted them. `uncounted` is the number of calls for which a server gave no counts."""

    prompt: int = 0
    cached: int = 0
    """The part of `prompt` that a server took from its cache."""
    completion: int = 0
    uncounted: int = 0


class CallLine(Fact):
    label: str
    key: str
    provider: str
    model: str
    outcome: str
    """`ok`, the kind of a NoVerdict, or `unfinished` for a call that was cut off by the end of its invocation."""
    replayed: bool = False
    left_out: tuple[str, ...] = ()
    tokens: Tokens = Tokens()
    seconds: float = 0.0


class StageRun(Fact):
    """One execution of a stage. `offset` is in seconds since the invocation began."""

    stage: str
    offset: float
    seconds: float
    status: str
    """As in StageFinished, or `unfinished`."""
    why: str = ""
    reason: str = ""
    calls: tuple[CallLine, ...] = ()


class Invocation(Fact):
    """One `doit`. `exit` is None when it was killed or still runs."""

    at: float
    command: str = ""
    version: str = ""
    exit: int | None = None
    word: str = "unfinished"
    reason: str = ""
    stages: tuple[StageRun, ...] = ()


class Calls(Fact):
    """`asked` went to a provider; `replayed` cost nothing; `unanswered` counts the kinds of no-verdict among those asked."""

    asked: int = 0
    replayed: int = 0
    unfinished: int = 0
    unanswered: dict[str, int] = {}
    tokens: Tokens = Tokens()


class ModelUse(Fact):
    provider: str
    model: str
    calls: int
    seconds: float
    tokens: Tokens


def invocations(log: Sequence[Event]) -> tuple[Invocation, ...]:
    """Events before the first RunStarted belong to an invocation without a command."""
    chunks: list[list[Event]] = []
    for event in log:
        if isinstance(event, RunStarted) or not chunks:
            chunks.append([])
        chunks[-1].append(event)
    return tuple(_invocation(chunk) for chunk in chunks)


def _invocation(chunk: Sequence[Event]) -> Invocation:
    began = chunk[0].at
    running: dict[str, list[Event]] = {}
    runs: list[list[Event]] = []
    for event in chunk:
        stage = getattr(event, "stage", "")
        if isinstance(event, StageStarted) or (
            stage and stage not in running and isinstance(event, (CallStarted, CallFinished, StageFinished))
        ):
            running[stage] = []
            runs.append(running[stage])
        if stage in running:
            running[stage].append(event)
    facts: dict[str, object] = {}
    for event in chunk:
        if isinstance(event, RunStarted):
            facts |= {"command": event.command, "version": event.version}
        elif isinstance(event, RunEnded):
            facts |= {"exit": event.exit, "word": event.word, "reason": event.reason}
    return Invocation.model_validate({"at": began, "stages": tuple(_stage_run(run, began) for run in runs), **facts})


def _stage_run(run: Sequence[Event], began: float) -> StageRun:
    first = run[0]
    ends = [e for e in run if isinstance(e, StageFinished)]
    end = ends[-1] if ends else None
    return StageRun(
        stage=getattr(first, "stage", ""),
        offset=max(first.at - began, 0.0),
        seconds=end.seconds if end else max(run[-1].at - first.at, 0.0),
        status=end.status if end else "unfinished",
        why=first.why if isinstance(first, StageStarted) else "",
        reason=end.reason if end else "",
        calls=tuple(_calls(run)),
    )


def _calls(run: Iterable[Event]) -> list[CallLine]:
    """In the order in which they ended; cut-off ones last."""
    started: dict[tuple[str, str], CallStarted] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    lines: list[CallLine] = []
    for event in run:
        if isinstance(event, CallStarted):
            started[event.label, event.key] = event
            left_out[event.key] = event.left_out
        elif isinstance(event, CallFinished):
            started.pop((event.label, event.key), None)
            lines.append(_finished(event, left_out.get(event.key, ())))
    for event in started.values():
        names = event.model_dump(include={"label", "key", "provider", "model", "left_out"})
        lines.append(CallLine(**names, outcome="unfinished"))
    return lines


def _finished(event: CallFinished, left_out: tuple[str, ...]) -> CallLine:
    names = event.model_dump(include={"label", "key", "provider", "model", "outcome", "replayed"})
    if event.replayed:
        return CallLine(**names, left_out=left_out)
    counted = event.prompt_tokens is not None and event.completion_tokens is not None
    tokens = Tokens(
        prompt=event.prompt_tokens or 0,
        cached=event.cached_tokens or 0,
        completion=event.completion_tokens or 0,
        uncounted=0 if counted or event.outcome != "ok" else 1,
    )
    return CallLine(**names, left_out=left_out, tokens=tokens, seconds=event.seconds)


def add(tokens: Iterable[Tokens]) -> Tokens:
    total: Counter[str] = Counter()
    for one in tokens:
        total.update(one.model_dump())
    return Tokens(**total)


def usage(runs: Iterable[Invocation]) -> tuple[Calls, tuple[ModelUse, ...]]:
    """Totals over all invocations, and the same per provider and model, the most used first."""
    lines = [call for run in runs for stage in run.stages for call in stage.calls]
    asked = [call for call in lines if not call.replayed and call.outcome != "unfinished"]
    by_model: dict[tuple[str, str], list[CallLine]] = {}
    for call in asked:
        by_model.setdefault((call.provider, call.model), []).append(call)
    models = [
        ModelUse(
            provider=provider,
            model=model,
            calls=len(calls),
            seconds=sum(c.seconds for c in calls),
            tokens=add(c.tokens for c in calls),
        )
        for (provider, model), calls in by_model.items()
    ]
    models.sort(key=lambda m: (-m.seconds, m.provider, m.model))
    totals = Calls(
        asked=len(asked),
        replayed=sum(c.replayed for c in lines),
        unfinished=sum(c.outcome == "unfinished" for c in lines),
        unanswered=dict(sorted(Counter(c.outcome for c in asked if c.outcome != "ok").items())),
        tokens=add(c.tokens for c in asked),
    )
    return totals, tuple(models)
