"""Reviewers of one attempt. They comment; only findings whose place exists are kept, and none of them blocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nightmill.build.job import about
from nightmill.calls.replies import Finding, Review
from nightmill.calls.sections import show
from nightmill.errors import BadReply, NoUsableReply
from nightmill.run.trees import Tree

if TYPE_CHECKING:
    from nightmill.build.job import Job
    from nightmill.graph.context import Ctx

_LINE = re.compile(r"(.+?):(\d+)(?:-(\d+))?$")


def review(ctx: Ctx, skill: str, tree: Tree, job: Job) -> tuple[str, tuple[Finding, ...]]:
    """(verdict, findings that speak of something that exists). An unreadable review is noted and counts as none."""
    mine = {rel: data for rel, data in tree.items() if rel in job.duty.files}
    try:
        reply: Review = ctx.ask(
            Review,
            skill=skill,
            template="milestone_review.md.j2",
            sections={"code": show(mine or tree, numbered=True), "schema": "", "tests": ""},
            milestone=about(ctx, job, tree),
        )
    except (BadReply, NoUsableReply) as error:
        ctx.finding(skill, f"gave no readable review of {job.name}, so nobody looked at it in that role: {error}")
        return "", ()
    return reply.verdict, true_findings(ctx, skill, reply.findings, tree)


def true_findings(ctx: Ctx, skill: str, findings: tuple[Finding, ...], tree: Tree) -> tuple[Finding, ...]:
    """Without those that cite a file or line that does not exist; each struck one is noted."""
    kept = []
    for finding in findings:
        if exists(finding.where, tree):
            kept.append(finding)
        else:
            ctx.note(f"struck from the review of {skill}, {finding.where} does not exist: {finding.text}")
    return tuple(kept)


def exists(where: str, tree: Tree) -> bool:
    """Whether a place can be meant: a clause or row always can, a file must be in the tree and have that many lines."""
    match = _LINE.match(where)
    path = match[1] if match else where
    if "." not in path:
        return True
    if path not in tree:
        return False
    return not match or 1 <= int(match[2]) <= tree[path].count(b"\n") + 1
