"""samples: every attempt is a fresh candidate from the same stubs, at another seed and a higher temperature; the best one is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nightmill.build.job import Job
    from nightmill.build.judge import Judgement
    from nightmill.build.state import Asked, State
    from nightmill.graph.context import Ctx


class Samples:
    """No candidate is told of another one, so that none inherits its mistake; and their prompts are the same, so that the server's
    cache serves all but the first.
    """

    name = "samples"

    def base(self, job: Job, best: State) -> State:
        return replace(best, tree=job.seed, built=False, rewrite=False, findings={}, refusal="", refusals=0, failed_before=())

    def asks(self, ctx: Ctx, job: Job, base: State) -> Asked:
        return "rewrite"

    def protects(self, best: State) -> frozenset[str]:
        """What passed on the stubs. A candidate may lose what another one won: they are ranked as wholes."""
        return best.before

    def prefers(self, found: Judgement, best: State) -> bool:
        return not found.lost and not best.judgement.green and found.ranks_above(best.judgement)
