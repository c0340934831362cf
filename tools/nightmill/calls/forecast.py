"""What the stages to be made will take: as the last time, else as others of their kind, else a first guess; in time by measured speeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nightmill.calls.account import NO_CALL, used
from nightmill.calls.budget import Room
from nightmill.calls.speeds import UNMEASURED, Model, Speed
from nightmill.config import Price
from nightmill.run.events import CallFinished, CallStarted, Event, Forecast, StageFinished, StageStarted

FREE = Price()


@dataclass(frozen=True)
class Work:
    """Of one stage or of several. `evaluated` is the part of the prompt tokens that is computed and not cached; `other_s` the seconds
    beside the calls (gates). Means, so not always whole numbers."""

    calls: float = 0.0
    prompt: float = 0.0
    evaluated: float = 0.0
    completion: float = 0.0
    other_s: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.calls + other.calls,
            self.prompt + other.prompt,
            self.evaluated + other.evaluated,
            self.completion + other.completion,
            self.other_s + other.other_s,
        )

    def over(self, parts: int) -> Work:
        return Work(self.calls / parts, self.prompt / parts, self.evaluated / parts, self.completion / parts, self.other_s / parts)

    def seconds(self, speed: Speed) -> float | None:
        """One call after the other, so that with `doit -n` it is an upper bound; None when the speed it needs is unmeasured."""
        if (self.evaluated and not speed.prefill) or (self.completion and not speed.decode):
            return None
        return self.evaluated / (speed.prefill or 1) + self.completion / (speed.decode or 1) + self.other_s


@dataclass(frozen=True)
class Ahead:
    """A stage that is to be made, and who is asked for it. `guess` is for a stage of which nothing is known."""

    stage: str
    model: Model
    guess: Work
    price: Price = FREE


@dataclass(frozen=True)
class Past:
    """Calls, tokens and seconds of this invocation so far."""

    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0


def forecast(
    ahead: Sequence[Ahead],
    history: Mapping[str, Work],
    speeds: Mapping[Model, Speed],
    room: Iterable[Room] = (),
    *,
    past: Past = Past(),
    remark: str = "",
) -> Forecast | None:
    """The forecast for a whole invocation, `past` included; None when nobody will be asked. `remark` ends its basis."""
    if not ahead:
        return None
    kinds = _kinds(history)
    total, seconds, money = Work(), 0.0, 0.0
    sources: Counter[str] = Counter()
    slow: set[str] = set()
    for one in ahead:
        kind = one.stage.partition(":")[0]
        source = "as the last time" if one.stage in history else "as others of their kind" if kind in kinds else "by first guess"
        work = history.get(one.stage) or kinds.get(kind) or one.guess
        sources[source] += 1
        total += work
        money += one.price.of(round(work.prompt), round(work.completion))
        took = work.seconds(speeds.get(one.model, UNMEASURED))
        seconds += took or 0.0
        if took is None:
            slow.add(one.model[1])
    timed = len(slow) < len({one.model[1] for one in ahead})
    due = {
        "calls": round(total.calls),
        "tokens": round(total.prompt + total.completion),
        "seconds": seconds if timed else 0.0,
        "money": money,
    }
    return Forecast(
        calls=past.calls + round(due["calls"]),
        tokens=past.tokens + round(due["tokens"]),
        seconds=round(past.seconds + seconds, 1) if timed else 0.0,
        basis=_basis(sources, slow, timed, remark),
        over=tuple(r.setting for r in room if due[r.measure] > max(0.0, r.left)),
    )


def _basis(sources: Counter[str], slow: set[str], timed: bool, remark: str) -> str:
    stages = ", ".join(f"{number} {'stage' if number == 1 else 'stages'} {source}" for source, number in sources.items())
    missing = ", ".join(sorted(slow))
    speed = f"without the time of {missing}, not measured yet" if slow and timed else "" if timed else "no speed measured yet"
    return "; ".join(part for part in (stages, speed, remark) if part)


def _kinds(history: Mapping[str, Work]) -> dict[str, Work]:
    """Mean work of `implement:*` and the like; a stage is also of the kind of its own name."""
    groups: dict[str, list[Work]] = {}
    for stage, work in history.items():
        groups.setdefault(stage.partition(":")[0], []).append(work)
    return {kind: sum(works, Work()).over(len(works)) for kind, works in groups.items()}


def history_of(events: Iterable[Event]) -> dict[str, Work]:
    """Stage → what its last complete execution took. Replayed replies count as asked: when its inputs change, all is asked afresh."""
    started: dict[str, CallStarted] = {}
    running: dict[str, tuple[Work, float]] = {}
    done: dict[str, Work] = {}
    for event in events:
        if isinstance(event, StageStarted):
            running[event.stage] = Work(), 0.0
        elif isinstance(event, CallStarted):
            started[event.key] = event
        elif isinstance(event, CallFinished) and event.stage in running and event.outcome not in NO_CALL:
            work, waited = running[event.stage]
            running[event.stage] = work + _call(event, started.get(event.key)), waited + (0 if event.replayed else _finite(event.seconds))
        elif isinstance(event, StageFinished) and event.stage in running:
            work, waited = running.pop(event.stage)
            if event.status == "made":
                done[event.stage] = work + Work(other_s=max(0.0, _finite(event.seconds) - waited))
    return done


def _call(event: CallFinished, started: CallStarted | None) -> Work:
    prompt, completion = used(event, started)
    evaluated = prompt if event.evaluated_tokens is None else min(prompt, max(0, event.evaluated_tokens))
    return Work(1, prompt, evaluated, completion)


def _finite(seconds: float) -> float:
    return seconds if math.isfinite(seconds) else 0.0
