"""merge: the milestones of one wave as one tree. A model is asked only where their edits exclude each other, and gated like any attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from nightmill.build.editing import guard
from nightmill.build.job import Job
from nightmill.build.judge import Duty
from nightmill.build.loop import build
from nightmill.build.merge import Conflict, duplicates, merge
from nightmill.build.milestones import Plan
from nightmill.calls.replies import WholeFiles
from nightmill.calls.sections import show
from nightmill.errors import BadReply, StageFailed
from nightmill.gate.languages.base import LanguagePack
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage
from nightmill.run.trees import Tree


@dataclass(frozen=True)
class MergedFile(WholeFiles):
    """facts["paths"]: the one file to be merged; facts["wanted"]: the names its versions declare; facts["pack"]: the language pack."""

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        reply = super().parse(text, facts)
        pack: LanguagePack = facts["pack"]
        for path, content in reply.files.items():
            if errors := pack.precheck({path: content.encode()}):
                raise BadReply(f"{errors[0].file}:{errors[0].line}: {errors[0].message}. Write the whole file again.")
            names = [s.name for s in pack.symbols(path, content)]
            if lost := sorted(set(facts["wanted"]) - set(names)):
                raise BadReply(
                    f"Your file lost {', '.join(lost)}, which a version declares. Write the whole file again with everything in it."
                )
            if twice := duplicates({path: names}):
                raise BadReply(f"Your file declares {', '.join(twice)} twice. Write the whole file again with one of each.")
        return reply


@stage(
    needs=["contract.md", "acceptance/", "source/"],
    makes="waves/N/",
    skill="merge_agent",
    template="merge.md.j2",
    templates=["patch.md.j2", "implement.md.j2", "function_item.md.j2"],
    role="implementer",
    reply=MergedFile,
    config=["build.max_iterations", "build.review"],
    stub="main.py\n```python\nX = 1\n```\n",
    name="merge",
)
def merge_wave(ctx: Ctx) -> None:
    """Merge the milestones of a wave; what collides goes to MergeAgent and through the gate."""
    sides = {need.split("/")[1]: ctx.tree(need) for need in ctx.stage.needs if need.startswith("milestones/")}
    found = merge(ctx.seed, sides)
    tree = dict(found.tree)
    for conflict in found.conflicts:
        tree |= _resolve(ctx, conflict)
    if twice := [name for name in _declared_twice(ctx, tree) if name not in _declared_twice(ctx, ctx.seed)]:
        both = f"merging wave {ctx.subject} declares {', '.join(twice)} twice"
        raise StageFailed(f"{both}: mend the files under milestones/ and run doit again")
    shared = _shared(ctx.seed, sides)
    ctx.write_tree(_gated(ctx, tree, sides, shared) if shared else tree)


def _resolve(ctx: Ctx, conflict: Conflict) -> dict[str, bytes]:
    """One file from the merging agent. It must keep every name that any side declares."""
    gone = [name for name, text in conflict.sides.items() if text is None]
    if gone:
        both = f"{conflict.path}: deleted by {', '.join(gone)} and changed by another milestone"
        raise StageFailed(f"{both}: decide in milestones/ and run doit again")
    tasks = {m.name: m.task for m in Plan.read(ctx.plan).milestones}
    texts = {name: text for name, text in conflict.sides.items() if text is not None}
    reply: MergedFile = ctx.ask(
        sections={"source": "", "tests": ""},
        facts={
            "paths": (conflict.path,),
            "pack": ctx.pack,
            "wanted": {name for text in texts.values() for name in _names(ctx, conflict.path, text)},
        },
        path=conflict.path,
        versions=[{"name": name, "task": tasks.get(name, ""), "text": show({conflict.path: text})} for name, text in texts.items()],
        problems=[conflict.reason],
    )
    ctx.note(f"{conflict.reason}; merged by MergeAgent")
    return reply.tree


def _gated(ctx: Ctx, tree: Tree, sides: Mapping[str, Tree], files: tuple[str, ...]) -> Tree:
    """The merged tree after the gate: what passed on any side must pass on it, or the files that both wrote are mended."""
    acceptance = ctx.tree("acceptance/")
    gates = tuple(ctx.gate(side, acceptance) for side in sides.values())
    job = Job(
        name=f"merge of wave {ctx.subject}",
        duty=Duty(files, "The merged files must do all that each milestone's own version does."),
        seed=tree,
        acceptance=acceptance,
        guard=guard(files, {}, ctx.pack.forbidden),
        must_pass=frozenset(test for gate in gates for test in gate.passed),
        sides=gates,
        whole=True,
    )
    state = build(ctx, job, keep=ctx.write_tree)
    if lost := sorted(job.must_pass - state.judgement.passed):
        ctx.finding("quality_gate", f"merging wave {ctx.subject} lost {', '.join(lost[:6])}, which passed on one side", files[0])
    return state.tree


def _shared(seed: Tree, sides: Mapping[str, Tree]) -> tuple[str, ...]:
    """Files that more than one milestone changed: each may be right alone and wrong together."""
    paths = sorted({path for side in sides.values() for path in side})
    return tuple(path for path in paths if sum(side.get(path) != seed.get(path) for side in sides.values()) > 1)


def _names(ctx: Ctx, path: str, text: bytes) -> list[str]:
    return [s.name for s in ctx.pack.symbols(path, text.decode("utf-8", "replace"))]


def _declared_twice(ctx: Ctx, tree: Tree) -> list[str]:
    files = {path: _names(ctx, path, text) for path, text in tree.items() if path.endswith(tuple(ctx.pack.suffixes))}
    return duplicates(files)
