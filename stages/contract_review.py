"""contract_review: whether a draft of the contract can be tested and says all that the mission asks for."""

from __future__ import annotations

from nightmill.calls.replies import Review
from nightmill.errors import BadReply, NoUsableReply
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage


@stage(
    needs=["mission.md", "source/"],
    makes="drafts/contract_review.1.md",
    skill="contract_reviewer",
    template="contract_review.md.j2",
    role="reviewer",
    reply=Review,
    stub="VERDICT: APPROVED\n",
)
def contract_review(ctx: Ctx) -> None:
    """Review the draft contract; after an approval the verdict stands and nobody is asked again."""
    before = ctx.previous("contract_review")
    if Review.read(before).approved:
        ctx.write(before)
        return
    try:
        ctx.write(ctx.ask(sections={"contract": ctx.previous("contract")}).text)
    except (BadReply, NoUsableReply) as error:
        ctx.note(f"the contract's reviewer gave no readable verdict: {error}")
        ctx.write("no verdict")
