"""Events as a run would write them, at moments of a clock that tests move."""

from __future__ import annotations

from dataclasses import dataclass

from nightmill.calls.health import Health, Vitals
from nightmill.config import ModelConfig
from nightmill.run.events import CallFinished, CallStarted, ReplyRefused

T0 = 1_700_000_000.0


@dataclass
class Clock:
    time: float = T0

    def __call__(self) -> float:
        return self.time


def ended(
    at: float, outcome: str = "ok", who: str = "a", *, seconds: float = 10.0, key: str = "k", role: str = "", **more: object
) -> CallFinished:
    values = {"stage": "s", "label": "s#1", "key": key, "provider": who, "model": "m", "outcome": outcome, "seconds": seconds, "role": role}
    return CallFinished.model_validate({"at": at, **values, **more})


def started(at: float, who: str = "a", *, key: str = "k", model: str = "m", window: int | None = None) -> CallStarted:
    return CallStarted(at=at, stage="s", label="s#1", key=key, provider=who, model=model, prompt_tokens=1, window=window)


def refused(at: float, key: str = "k") -> ReplyRefused:
    return ReplyRefused(at=at, stage="s", label="s#1", key=key, rule="broken")


def model(provider: str = "a", **more: object) -> ModelConfig:
    return ModelConfig.model_validate({"provider": provider, "model": "m", **more})


def vitals(health: Health, who: str = "a") -> Vitals:
    return health.of(who, "m")
