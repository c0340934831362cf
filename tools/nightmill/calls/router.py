"""Which backend is asked first: a score over what is known of each, lowest first. Pure, deterministic, by the clock of Health.

    wc·price + wl·p50 latency + wq·(1−quality) + backoff + 2^depth·error rate        (DESIGN 7)

The unit of every term is a *point*: what one rate limit costs (backoff 1), or one minute of waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nightmill.calls.health import Health, Vitals
from nightmill.config import ModelConfig

LATENCY_WEIGHT = 1 / 60
"""Points per second of the median call. A choice of ours, it sets the unit: at depth 0 one fresh failure (0.2) weighs as 12 s, at depth 3
as 96 s; a backend at the cap of its backoff loses to one that takes an hour."""
QUALITY_WEIGHT = 10.0
"""Points for quality 0 instead of 1. A choice of ours: 0.1 of quality is worth a minute a call, because a wrong reply costs the calls and
gates of a whole attempt, not only its own time."""
PRICE_WEIGHT = 1.0
"""Points per unit of money for a million tokens. A choice of ours: at 1 per million a call of 10,000 tokens costs 0.01 and weighs as a
minute, so an hour of waiting is worth 0.60 in dollars or euros: nights are long. In another currency, scale the prices."""
PROMPT_SHARE = 0.8
"""Of the tokens of a call. A choice of ours: prompts carry source and contract, replies a file or a verdict."""

DEPTHS: Mapping[str, int] = {"architect": 3, "planner": 2, "tester": 2, "implementer": 1, "reviewer": 0}
"""How close a role is to the root of the work. Ours: contract and schema shape all that follows; plan, matrix and tests shape what is
accepted; a candidate is judged by a gate before it counts; a review is one opinion of several."""
DEEPEST = 3
"""For a role that is not in the table: nothing is risked with work we know nothing of."""

TIE = 0.1
"""Points. A choice of ours: what differs by less (6 s of a median) is noise: the person's order decides, and a warm cache stays in use."""

SHALLOW = 1
"""Up to this depth other backends are tried now and then."""
EXPLORE_EVERY = 8
"""Calls of a role. A choice of ours: one call in eight, so that a backend that got better is noticed within a few dozen."""
BACKING_OFF = 0.5
"""Points of backoff from which a backend is left alone: 10 s after one rate limit, 70 s after any burst of them. A choice of ours."""
ERRING = 0.1
"""Error rate from which nobody explores: half a minute after one failure. A choice of ours."""


@dataclass(frozen=True)
class Score:
    """Each term in points, weights included. Lower is better."""

    price: float
    latency: float
    quality: float
    backoff: float
    errors: float

    @property
    def total(self) -> float:
        return self.price + self.latency + self.quality + self.backoff + self.errors


@dataclass(frozen=True)
class Ranked:
    model: ModelConfig
    score: Score
    explored: bool = False
    """It stands first although another one has the better score."""


def depth(role: str) -> int:
    return DEPTHS.get(role, DEEPEST)


class Router:
    def __init__(self, health: Health) -> None:
        self._health = health

    def order(self, candidates: Sequence[ModelConfig], role: str) -> list[Ranked]:
        """Best first. `candidates` in the person's order, and only those that can hold this call and have not just failed it."""
        known = [self._health.of(model.provider, model.model) for model in candidates]
        fastest = min((v.latency_s for v in known if v.latency_s is not None), default=0.0)
        rated = [(Ranked(model, _score(model, vitals, role, fastest)), vitals) for model, vitals in zip(candidates, known, strict=True)]
        ordered = _lowest_first(rated)
        explored = self._to_explore(ordered, role) if len(ordered) > 1 else None
        if explored is None:
            return [ranked for ranked, _ in ordered]
        first = Ranked(explored.model, explored.score, explored=True)
        return [first, *(ranked for ranked, _ in ordered if ranked is not explored)]

    def _to_explore(self, ordered: Sequence[tuple[Ranked, Vitals]], role: str) -> Ranked | None:
        """At every EXPLORE_EVERY-th call of a shallow role: who waited longest, unless it is the best anyway.

        Nobody that fails or backs off, and nobody dearer than the best: money is not spent to find something out.
        """
        if depth(role) > SHALLOW or (self._health.calls(role) + 1) % EXPLORE_EVERY:
            return None
        best = ordered[0][0]
        fit = [(r, v) for r, v in ordered if v.backoff < BACKING_OFF and v.error_rate < ERRING and r.score.price <= best.score.price]
        longest = min(fit, key=lambda one: one[1].turn, default=None)
        return None if longest is None or longest[0] is best else longest[0]


def _score(model: ModelConfig, vitals: Vitals, role: str, fastest: float) -> Score:
    """`fastest`: seconds that a backend without a finished call is taken to need: nothing speaks for or against it, the order decides."""
    quality = vitals.quality if model.quality is None else model.quality
    latency = fastest if vitals.latency_s is None else vitals.latency_s
    prompt = round(PROMPT_SHARE * 1_000_000)
    return Score(
        price=PRICE_WEIGHT * model.price.of(prompt, 1_000_000 - prompt),
        latency=LATENCY_WEIGHT * latency,
        quality=QUALITY_WEIGHT * (1 - quality),
        backoff=vitals.backoff,
        errors=2 ** depth(role) * vitals.error_rate,
    )


def _lowest_first(rated: Sequence[tuple[Ranked, Vitals]]) -> list[tuple[Ranked, Vitals]]:
    """Again and again the first in the person's order that is within TIE of the lowest that is left."""
    left, ordered = list(rated), []
    while left:
        lowest = min(ranked.score.total for ranked, _ in left)
        ordered.append(left.pop(next(n for n, (ranked, _) in enumerate(left) if ranked.score.total < lowest + TIE)))
    return ordered
