"""What is to be built, and what a prompt says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nightmill.build.editing import Edits
from nightmill.build.judge import Duty
from nightmill.calls.small import asks_small
from nightmill.gate.records import GateRecord
from nightmill.run.trees import Tree

if TYPE_CHECKING:
    from nightmill.graph.context import Ctx


@dataclass(frozen=True)
class Job:
    """What is to be built: `seed` is the tree to start from, `guard` says which paths are not to be written."""

    name: str
    duty: Duty
    seed: Tree
    acceptance: Tree
    guard: Callable[[str], str | None]
    reviewers: tuple[str, ...] = ()
    final: bool = False
    """Nobody else will mend anything: every red test is its own."""
    whole: bool = False
    """The seed is an assembled program: it is mended, not written."""
    must_pass: frozenset[str] = frozenset()
    """Tests that count as passed before, although they may be red on the seed."""
    sides: tuple[GateRecord, ...] = ()
    """The gates on the trees that were merged into the seed: what was red there is not the merge's fault."""
    expected: frozenset[str] = frozenset()
    """Tests that must have judged the whole: those that were proved."""
    kept: Tree = field(default_factory=dict)
    """What an earlier execution made of the same task; taken up where it is better than the seed."""
    template: str = "implement.md.j2"
    patch_template: str = "patch.md.j2"
    reply: type[Edits] = Edits
    pieces: bool = True
    """Whether a small model is asked for one function after the other, not for files."""

    def by_function(self, ctx: Ctx) -> bool:
        return self.pieces and asks_small(ctx)


def about(ctx: Ctx, job: Job, tree: Tree) -> dict[str, object]:
    """What a prompt says of a job. In files that other milestones also write, which stubs are its own and which are not."""
    shared = {
        file: names for file, names in ctx.pack.stubs(tree).items() if file in job.duty.files and (job.duty.earlier or job.duty.later)
    }
    sorted_out = [(f"{name} in {file}", job.duty.owes(file, name)) for file, names in shared.items() for name in names]
    foreign = [where for where, owed in sorted_out if not owed]
    return {
        "name": job.name,
        "files": job.duty.files,
        "task": job.duty.task,
        "whole": job.whole,
        "yours": [where for where, owed in sorted_out if owed] if foreign else [],
        "foreign": foreign,
    }
