"""The final panel: three readers of the finished version. They block nothing; what they find lands in deviations.md."""

from __future__ import annotations

from nightmill.build.reviewing import exists
from nightmill.calls.replies import Review
from nightmill.calls.sections import show
from nightmill.errors import BadReply, NoUsableReply
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage

NEEDS = ["contract.md", "source/", "v2/", "gate.md"]
STUB = "VERDICT: APPROVED\n"


def review(ctx: Ctx) -> None:
    """Ask, keep the review, report each finding whose place exists in the old or the new version."""
    who = ctx.stage.skill
    try:
        reply: Review = ctx.ask(sections={"code": show(ctx.tree("v2/"), numbered=True)})
    except (BadReply, NoUsableReply) as error:
        ctx.finding(who, f"gave no readable review: {error}", verdict="none")
        ctx.write("no verdict")
        return
    old, new = ctx.source(), ctx.tree("v2/")
    for found in reply.findings:
        if exists(found.where, new) or exists(found.where, old):
            ctx.finding(who, found.text, found.where, reply.verdict)
        else:
            ctx.note(f"struck from the review of {who}, {found.where} does not exist: {found.text}")
    ctx.write(reply.text)


@stage(
    needs=NEEDS,
    makes="reviews/production.md",
    skill="production_readiness_reviewer",
    template="final_review.md.j2",
    role="reviewer",
    reply=Review,
    stub=STUB,
)
def production_review(ctx: Ctx) -> None:
    """Review the new version as the one on call three weeks after launch."""
    review(ctx)


@stage(
    needs=NEEDS,
    makes="reviews/formal.md",
    skill="formal_methods_reviewer",
    template="final_review.md.j2",
    role="reviewer",
    reply=Review,
    stub=STUB,
)
def formal_review(ctx: Ctx) -> None:
    """Review totality, determinism, error contract and termination against the original."""
    review(ctx)


@stage(needs=NEEDS, makes="reviews/ip.md", skill="ip_counsel", template="final_review.md.j2", role="reviewer", reply=Review, stub=STUB)
def ip_review(ctx: Ctx) -> None:
    """Review copying, licences and patents."""
    review(ctx)
