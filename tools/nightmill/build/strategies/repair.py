"""repair: the best so far is mended from its failures; a rewrite follows where patches get nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nightmill.build.job import Job
    from nightmill.build.judge import Judgement
    from nightmill.build.state import Asked, State
    from nightmill.graph.context import Ctx


class Repair:
    """A patch before a rewrite. What passed stays: a change that loses a test is taken back."""

    name = "repair"

    def base(self, job: Job, best: State) -> State:
        return best

    def asks(self, ctx: Ctx, job: Job, base: State) -> Asked:
        return "patch" if base.built and not job.by_function(ctx) and (job.whole or not base.rewrite) else "rewrite"

    def protects(self, best: State) -> frozenset[str]:
        return best.before | best.judgement.passed

    def prefers(self, found: Judgement, best: State) -> bool:
        return found.better_than(best.judgement)
