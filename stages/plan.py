"""plan: the milestones in which the schema is filled in. Their grammar and waves are in nightmill.build.milestones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from nightmill.build.milestones import Plan, problems, slug, waves
from nightmill.calls.small import asks_small
from nightmill.errors import BadReply, NoUsableReply, StageFailed
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage

STUB = """\
## MILESTONE: main
RISK: EASY
DEPENDS_ON: none
FILES: main.py
TASK: Implement every stub in main.py as the contract says.
"""


@stage(
    needs=["contract.md", "schema/"],
    makes="plan.md",
    skill="milestone_planner",
    template="plan.md.j2",
    role="architect",
    reply=Plan,
    plans=True,
    stub=STUB,
)
def plan(ctx: Ctx) -> None:
    """Split the work into milestones that can be built and tested by themselves."""
    schema = ctx.tree("schema/")
    stubs = ctx.pack.stubs(schema)
    if not stubs:
        raise StageFailed(f"schema/ has no stub to implement: give it a function whose body is `{ctx.pack.stub}`")
    try:
        small = asks_small(ctx)
        made = Plan.read(by_imports(stubs, schema)) if small else ctx.ask(facts={"stub_files": tuple(stubs)}, stubs=stubs)
    except (BadReply, NoUsableReply) as error:
        ctx.finding("milestone_planner", f"no usable plan, so each file is its own milestone: {error}")
        made = Plan.read("\n".join(_by_file(file, names) for file, names in stubs.items()))
    for problem in problems(made):
        ctx.finding("milestone_planner", problem)
    if hard := [milestone.name for milestone in made.milestones if milestone.risk == "HARD"]:
        ctx.note(f"planned as hard, not split further: {', '.join(hard)}")
    ctx.note(f"{len(made.milestones)} milestones in {len(waves(made))} waves")
    ctx.write(made.text)


def _by_file(file: str, names: tuple[str, ...], after: str = "") -> str:
    return f"## MILESTONE: {slug(file)}\nRISK: EASY\n{after}FILES: {file}\nTASK: Implement {', '.join(names)} as the contract says.\n"


def by_imports(stubs: Mapping[str, tuple[str, ...]], schema: Mapping[str, bytes]) -> str:
    """A milestone per file, after those that its import lines name. Asked for a plan, a very small model repeats the example's."""
    blocks = []
    for file, names in stubs.items():
        imports = "\n".join(
            line
            for line in schema[file].decode("utf-8", "replace").split("\n")
            if re.match(r"\s*(from|import|use|#include|export\b.*\bfrom|\}\s*from)\b", line)
        )
        before = [slug(other) for other in stubs if other != file and re.search(rf"\b{re.escape(PurePosixPath(other).stem)}\b", imports)]
        blocks.append(_by_file(file, names, f"DEPENDS_ON: {', '.join(before) or 'none'}\n"))
    return "\n".join(blocks)
