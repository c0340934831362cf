"""merge: the milestones of one wave as one tree. A model is asked only where their edits exclude each other."""

from __future__ import annotations

from dataclasses import dataclass

from nightmill.build.merge import Conflict, duplicates, merge
from nightmill.build.milestones import Plan
from nightmill.calls.replies import WholeFiles
from nightmill.calls.sections import show
from nightmill.errors import StageFailed
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage
from nightmill.run.trees import Tree


@dataclass(frozen=True)
class MergedFile(WholeFiles):
    """facts["paths"]: the one file to be merged."""


@stage(
    needs=["contract.md"],
    makes="waves/N/",
    skill="merge_agent",
    template="merge.md.j2",
    role="implementer",
    reply=MergedFile,
    stub="main.py\n```python\nX = 1\n```\n",
    name="merge",
)
def merge_wave(ctx: Ctx) -> None:
    """Merge the milestones of a wave; what collides goes to MergeAgent and through the build."""
    sides = {need.split("/")[1]: ctx.tree(need) for need in ctx.stage.needs if need.startswith("milestones/")}
    found = merge(ctx.seed, sides)
    tree = dict(found.tree)
    for conflict in found.conflicts:
        tree |= _resolve(ctx, conflict)
    if twice := [name for name in _declared_twice(ctx, tree) if name not in _declared_twice(ctx, ctx.seed)]:
        raise StageFailed(
            f"merging wave {ctx.subject} declares {', '.join(twice)} twice: mend the files under milestones/ and run doit again"
        )
    if found.conflicts and (errors := ctx.pack.precheck(tree)):
        raise StageFailed(f"the merged {errors[0].file}:{errors[0].line} does not build: {errors[0].message}")
    ctx.write_tree(tree)


def _resolve(ctx: Ctx, conflict: Conflict) -> dict[str, bytes]:
    """One file from the merging agent. It must keep every name that any side declares, apart from what a side took out on purpose."""
    if any(text is None for text in conflict.sides.values()):
        gone = [name for name, text in conflict.sides.items() if text is None]
        raise StageFailed(
            f"{conflict.path}: deleted by {', '.join(gone)} and changed by another milestone: decide in milestones/ and run doit again"
        )
    tasks = {m.name: m.task for m in Plan.read(ctx.plan).milestones}
    texts = {name: text for name, text in conflict.sides.items() if text is not None}
    reply: MergedFile = ctx.ask(
        facts={"paths": (conflict.path,)},
        path=conflict.path,
        versions=[{"name": name, "task": tasks.get(name, ""), "text": show({conflict.path: text})} for name, text in texts.items()],
        problems=[conflict.reason],
    )
    wanted = {name for text in texts.values() for name in _names(ctx, conflict.path, text)}
    lost = sorted(wanted - set(_names(ctx, conflict.path, reply.tree[conflict.path])))
    if lost:
        raise StageFailed(f"the merge of {conflict.path} lost {', '.join(lost)}: mend the files under milestones/ and run doit again")
    ctx.note(f"{conflict.reason}; merged by MergeAgent")
    return reply.tree


def _names(ctx: Ctx, path: str, text: bytes) -> list[str]:
    return [s.name for s in ctx.pack.symbols(path, text.decode("utf-8", "replace"))]


def _declared_twice(ctx: Ctx, tree: Tree) -> list[str]:
    files = {path: _names(ctx, path, text) for path, text in tree.items() if path.endswith(tuple(ctx.pack.suffixes))}
    return duplicates(files)
