"""An attempt of a small model: one function after the other, each put into its file by program. A retry is a fresh sample."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nightmill.build.editing import Edits
from nightmill.calls.numbered import clauses
from nightmill.calls.sections import show
from nightmill.calls.small import OneFunction
from nightmill.errors import BadReply, NoUsableReply
from nightmill.gate.languages.base import under_acceptance
from nightmill.run.trees import Tree

if TYPE_CHECKING:
    from nightmill.build.job import Job
    from nightmill.build.state import State
    from nightmill.gate.records import TestOutcome
    from nightmill.graph.context import Ctx

FAILURES_SHOWN = 3
FAILURE_CHARS = 700
_HIDDEN = {"code": "", "schema": "", "tests": "", "analysis": "", "mission": ""}
"""Sections that a model asked for one function does without: what it needs of them stands in the task."""


def write_functions(ctx: Ctx, job: Job, state: State, attempt: int) -> Edits:
    """Whole files with the functions wanted now. Raises BadReply when no answer can be used, NoUsableReply when none came."""
    tree = dict(state.tree)
    trouble: BadReply | NoUsableReply | None = None
    for file, name in wanted(ctx, job, state):
        text = tree[file].decode("utf-8", "replace")
        try:
            tree[file] = _write(ctx, job, state, file, name, text, attempt).encode()
        except BadReply as error:
            trouble = error
            ctx.note(f"attempt {attempt}: no usable {name}: {error}")
        except NoUsableReply as error:
            trouble = trouble or error
            ctx.note(f"attempt {attempt}: no reply for {name}: {error}")
    changed = {file: data for file, data in tree.items() if data != state.tree.get(file)}
    if not changed:
        raise trouble or BadReply("No function was written differently.")
    return Edits(show(changed))


def wanted(ctx: Ctx, job: Job, state: State) -> list[tuple[str, str]]:
    """(file, function): those still to be written; when there is none, those that a red test names; else all."""
    mine = {file: data for file, data in state.tree.items() if file in job.duty.files}
    owed = [(file, name) for file, names in ctx.pack.stubs(mine).items() for name in names if job.duty.owes(file, name)]
    if owed:
        return owed
    every = [(file, name) for file, data in mine.items() for name in _functions(ctx, file, data)]
    named = [(file, name) for file, name in every if _about(ctx, job, name, state.judgement.failed)]
    return named or every


def _functions(ctx: Ctx, file: str, data: bytes) -> Sequence[str]:
    skeleton = ctx.pack.skeleton(file, data.decode("utf-8", "replace"))
    return ctx.pack.stubs({file: skeleton.encode()}).get(file, ()) if skeleton is not None else ()


def _about(ctx: Ctx, job: Job, name: str, tests: Sequence[TestOutcome]) -> list[str]:
    """The red tests that call a function, or ended in it: each test's text, then what it said."""
    word = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
    acceptance = under_acceptance(job.acceptance)
    found = []
    for test in tests:
        file, _, function = test.id.partition("[")[0].partition("::")
        text = ctx.pack.function(file, acceptance.get(file, b"").decode("utf-8", "replace"), function.replace("::", "."))
        if word.search(text) or word.search(test.traceback) or word.fullmatch(test.crash_function.rpartition(".")[2]):
            found.append(f"{text}\n\n{test.exception}: {test.message}"[:FAILURE_CHARS])
    return found


def _write(ctx: Ctx, job: Job, state: State, file: str, name: str, text: str, attempt: int) -> str:
    """The file's text with the function as the model writes it. Raises BadReply, NoUsableReply."""
    changed = [clause for clause in clauses(ctx.read("contract.md")) if clause.changed]
    here = [clause for clause in changed if re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", clause.text)]
    symbol = next((s.signature for s in ctx.pack.symbols(file, text) if s.name == name), name)
    reply: OneFunction = ctx.ask(
        OneFunction,
        template="function_item.md.j2",
        sections=_HIDDEN,
        facts={"pack": ctx.pack, "text": text, "name": name},
        vary=attempt - 1,
        function=symbol,
        path=file,
        old=_old(ctx, ctx.source(), file, name),
        changed=[f"{clause.id}: {clause.text}" for clause in here],
        failures=_about(ctx, job, name, state.judgement.failed)[:FAILURES_SHOWN] if state.built else [],
        rules=ctx.pack.prompt_rules[:1],
    )
    return reply.text


def _old(ctx: Ctx, source: Tree, file: str, name: str) -> str:
    """The old version of a function as a fenced block; "" when the old program has none in that file."""
    old = ctx.pack.function(file, source[file].decode("utf-8", "replace"), name) if file in source else ""
    return show({file: old.encode()}).partition("\n")[2] if old else ""
