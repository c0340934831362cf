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
    told: int = 0
    """The part of `prompt` for which a server said what its cache held: `cached` and `evaluated` divide it."""
    cached: int = 0
    evaluated: int = 0
    completion: int = 0
    uncounted: int = 0

    @property
    def reuse(self) -> float | None:
        """Share of prompt tokens that came from the cache, 0 to 1; None when no server told it."""
        return self.cached / self.told if self.told else None


class CallLine(Fact):
    label: str
    key: str
    provider: str
    model: str
    named: str = ""
    """The model that was asked for, where another one answered."""
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
    reuse: float | None = None
    """`tokens.reuse`."""


class ModelUse(Fact):
    provider: str
    model: str
    calls: int
    seconds: float
    tokens: Tokens
    reuse: float | None = None
    """`tokens.reuse`."""
    asked_for: tuple[str, ...] = ()
    """Other names under which this model was asked: the server put it in their place."""


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
    names = event.model_dump(include={"label", "key", "provider", "model", "named", "outcome", "replayed"})
    if event.replayed:
        return CallLine(**names, left_out=left_out)
    counted = event.prompt_tokens is not None and event.completion_tokens is not None
    told, cached = _cached(event)
    tokens = Tokens(
        prompt=event.prompt_tokens or 0,
        told=told,
        cached=cached,
        evaluated=told - cached,
        completion=event.completion_tokens or 0,
        uncounted=0 if counted or event.outcome != "ok" else 1,
    )
    return CallLine(**names, left_out=left_out, tokens=tokens, seconds=event.seconds)


def _cached(event: CallFinished) -> tuple[int, int]:
    """Prompt tokens of a call whose server told what its cache held, and how many of them it held; (0, 0) when it did not."""
    prompt, cached, evaluated = event.prompt_tokens, event.cached_tokens, event.evaluated_tokens
    if prompt is None or (cached is None and evaluated is None):
        return 0, 0
    if cached is None:
        cached = prompt - (evaluated or 0)
    return prompt, min(max(cached, 0), prompt)


def share(value: float | None) -> str:
    """`60%`, or `not told`."""
    return "not told" if value is None else f"{value:.0%}"


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
    models = [_use(provider, model, calls) for (provider, model), calls in by_model.items()]
    models.sort(key=lambda m: (-m.seconds, m.provider, m.model))
    tokens = add(c.tokens for c in asked)
    totals = Calls(
        asked=len(asked),
        replayed=sum(c.replayed for c in lines),
        unfinished=sum(c.outcome == "unfinished" for c in lines),
        unanswered=dict(sorted(Counter(c.outcome for c in asked if c.outcome != "ok").items())),
        tokens=tokens,
        reuse=tokens.reuse,
    )
    return totals, tuple(models)


def _use(provider: str, model: str, calls: Sequence[CallLine]) -> ModelUse:
    tokens = add(c.tokens for c in calls)
    return ModelUse(
        provider=provider,
        model=model,
        calls=len(calls),
        seconds=sum(c.seconds for c in calls),
        tokens=tokens,
        reuse=tokens.reuse,
        asked_for=tuple(sorted({c.named for c in calls if c.named and c.outcome == "ok"})),
    )


def substitutes(models: Iterable[ModelUse]) -> list[str]:
    """`local: asked for X, Y answered` for every model that a server put in another's place."""
    return [f"{m.provider}: asked for {', '.join(m.asked_for)}, {m.model} answered" for m in models if m.asked_for]
