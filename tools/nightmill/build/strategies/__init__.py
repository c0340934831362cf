"""How the attempts of one loop follow each other: each strategy is one class in a sibling file. `build.strategy` of run.yaml names one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nightmill.build.strategies.repair import Repair
from nightmill.build.strategies.samples import Samples

if TYPE_CHECKING:
    from nightmill.build.job import Job
    from nightmill.build.judge import Judgement
    from nightmill.build.state import Asked, State
    from nightmill.config import RunConfig
    from nightmill.graph.context import Ctx

OPTION = "build.strategy"


class Strategy(Protocol):
    """What differs between two ways to spend the same attempts. It keeps no state of its own."""

    @property
    def name(self) -> str: ...

    def base(self, job: Job, best: State) -> State:
        """What the next attempt starts from and is told, given the best so far."""

    def asks(self, ctx: Ctx, job: Job, base: State) -> Asked:
        """What the next attempt asks for."""

    def protects(self, best: State) -> frozenset[str]:
        """Tests that the next attempt must not lose."""

    def prefers(self, found: Judgement, best: State) -> bool:
        """Whether a new tree takes the place of the best so far."""


STRATEGIES: dict[str, Strategy] = {s.name: s for s in (Repair(), Samples())}
AUTO = "repair"
"""What `auto` means for every model: none was measured to do better with fresh samples yet (`nightmill bench` compares them)."""


def chosen(config: RunConfig) -> str:
    """The name of the strategy that `build.strategy` stands for."""
    wish = config.build.strategy
    return AUTO if wish == "auto" else wish


def strategy_for(ctx: Ctx, job: Job) -> Strategy:
    """An assembled program is always mended: it has no stub to start afresh from."""
    if job.whole:
        return STRATEGIES["repair"]
    ctx.option(OPTION)  # declared, so that a change of it makes the stage stale
    return STRATEGIES[chosen(ctx.config)]
