"""task and attempt: one small task whose tests a person has given (`nightmill try`): taken apart, then the build loop alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from nightmill.build.editing import Edits, guard
from nightmill.build.job import Job
from nightmill.build.judge import Duty
from nightmill.build.loop import build
from nightmill.edits.parse import parse
from nightmill.errors import ConfigError, OutOfBudget
from nightmill.gate.languages.base import LanguagePack
from nightmill.graph.context import Ctx
from nightmill.graph.stage import GATES, stage
from nightmill.run.trees import Tree
from nightmill.trial.given import given

WHOLE_BYTES = 8000
"""Files to write that hold no more together are asked for whole each time; beyond it, blocks may change a part."""


@stage(makes=["schema/", "acceptance/"], config=["language"], outside=True)
def task(ctx: Ctx) -> None:
    """Take a task apart: the files to write, and the person's tests, which are locked."""
    session = ctx.session
    try:
        files = {rel: session.read_source(rel) for rel in sorted(session.source_files)}
    except FileNotFoundError as error:
        raise ConfigError(f"{error.filename} vanished while the task was read: run doit again when it stands") from error
    unfit = {**session.source_skipped, "with what looks like a secret": sorted(session.source_redacted)}
    if lost := [f"{path} ({why})" for why, paths in unfit.items() for path in paths]:
        raise ConfigError(f"the task cannot be taken as it is: {', '.join(lost[:4])}: leave these files out, or change them")
    found = given(files, ctx.pack)
    ctx.write_tree(found.stubs, "schema/")
    ctx.write_tree(found.tests, "acceptance/")


@dataclass(frozen=True)
class WholeFiles(Edits):
    """Edits by whole files. facts["files"]: those to be written; the only one may be sent without its path."""

    @classmethod
    def format(cls, facts: Mapping[str, Any]) -> str:
        pack: LanguagePack = facts["pack"]
        shown = "\n\n".join(f"{path}\n```{pack.name}\n(every line of {path})\n```" for path in facts["files"])
        return f"The path alone on a line, directly below it the whole file in a fenced block. Nothing else.\n\n{shown}\n"

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        files: tuple[str, ...] = facts["files"]
        reply = super().parse(text, facts).text
        blocks = re.findall(r"^(```+)[\w+-]*[ \t]*\n(.*?)^\1[ \t]*$", reply + "\n", re.S | re.M)
        if len(files) == 1 and blocks and not parse(reply, lambda path: path in files).items:
            fence, code = blocks[0]
            reply = f"{files[0]}\n{fence}\n{code}{fence}\n"
        return cls(reply)


@stage(
    needs=["mission.md", "schema/", "acceptance/"],
    makes="v2/",
    skill="target_implementer",
    template="task.md.j2",
    templates=["task_repair.md.j2"],
    role="implementer",
    reply=Edits,
    config=["build.max_iterations", "build.review", "build.strategy", *GATES],
    stub="main.py\n```python\ndef main(argv: list[str]) -> int:\n    return 0\n```\n",
)
def attempt(ctx: Ctx) -> None:
    """Attempts at the task until the gate says green or they are used up; the best is kept."""
    seed, tests = ctx.tree("schema/"), ctx.tree("acceptance/")
    files = tuple(path for path in sorted(seed) if path.endswith(tuple(ctx.pack.suffixes)) and path not in tests)
    job = Job(
        name="the task",
        duty=Duty(files, "Do what the instructions say."),
        seed=seed,
        acceptance=tests,
        guard=_locking(ctx, tests, guard(files, {}, ctx.pack.forbidden)),
        final=True,
        template="task.md.j2",
        patch_template="task_repair.md.j2",
        reply=WholeFiles if sum(len(seed[path]) for path in files) <= WHOLE_BYTES else Edits,
        pieces=False,
    )
    state = build(ctx, job, keep=ctx.write_tree)
    if not state.judgement.green:
        tries = ctx.option("build.max_iterations")
        raise OutOfBudget(f"not solved in {tries} attempts: {state.judgement.reason}; the best is in v2/. Raise build.max_iterations")


def _locking(ctx: Ctx, tests: Tree, others: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """Nothing that looks like a test is written, wherever it lies: the gate would not run it, but it would be delivered."""

    def why_not(path: str) -> str | None:
        if path in tests or path.startswith("tests/") or ctx.pack.is_test_file(path):
            return "the tests are given and locked"
        return others(path)

    return why_not
