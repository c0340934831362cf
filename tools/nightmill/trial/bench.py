"""Many tries, one after the other, resumably: one line of JSON for each, then the table."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from nightmill.errors import Stopped, machine_trouble, worst
from nightmill.run.atomic import append_line
from nightmill.trial.attempt import attempt, place
from nightmill.trial.given import Task
from nightmill.trial.result import Result, identity, line, verify
from nightmill.trial.setting import Setting
from nightmill.trial.table import columns, false_done, lines

JUDGED = (0, 76)
"""Exit codes that say something of the model; after any other one the task is tried again by the next bench."""
IN_A_ROW = 3
"""Tries that came to nothing, one after the other: nobody answers, or the machine cannot judge."""
Key = tuple[str, str, str, str, int]
"""(task, its hash, model, strategy, tries)."""


def run_all(tasks: Sequence[Task], settings: Sequence[Setting], out: Path | None, keep: Path | None, say: Callable[[str], None]) -> int:
    """Returns 0 when every try was judged and every solved one is green afresh; 1 when one is not; else the worst exit code."""
    wanted = [(task, given) for given in settings for task in tasks]
    done = {key_of(found): found for found in read(out)} if out else {}
    codes: list[int] = []
    for number, (task, given) in enumerate(wanted, 1):
        key = key_for(task, given)
        if key in done:
            continue
        say(f"{number}/{len(wanted)} {task.name} ({given.model}, {given.strategy})")
        found, code = _one(task, given, keep, say)
        codes.append(code)
        if code in JUDGED:
            done[key] = found
            if out:
                append_line(out, line(found), sync=True)
        if code == Stopped.exit_code or (len(codes) >= IN_A_ROW and not {*codes[-IN_A_ROW:]} & {*JUDGED}):
            say(f"ended after {number} of {len(wanted)} tries; the same command goes on")
            break
    results = [done[key] for key in (key_for(task, given) for task, given in wanted) if key in done]
    if results:
        sys.stdout.write("\n".join(lines(columns(results))) + "\n")
        sys.stdout.flush()
    if wrong := false_done(results):
        say(f"called solved, but not green when judged afresh: {', '.join(wrong)}")
        codes.append(1)
    return worst([code for code in codes if code != 76])


def _one(task: Task, given: Setting, keep: Path | None, say: Callable[[str], None]) -> tuple[Result, int]:
    folder = keep / _name(task, given) if keep else None
    with place(folder) as root:
        found, code = attempt(task, given, root, lambda text: say(f"  {text}"))
        if found.solved:
            found = found.model_copy(update={"verified": verify(root, task)})
    word = "solved" if found.solved else "not solved"
    say(f"  {word}: {found.passed} of {found.owed} tests, {found.tokens} tokens, {found.seconds:.1f} s")
    return found, code


def _name(task: Task, given: Setting) -> str:
    return re.sub(r"[^\w.-]+", "-", f"{task.name}.{given.model}.{given.strategy}.{given.tries}")


def key_for(task: Task, given: Setting) -> Key:
    return (task.name, identity(task), given.model, given.strategy, given.tries)


def key_of(found: Result) -> Key:
    return (found.task, found.given, found.model, found.strategy, found.tries)


def read(path: Path) -> Iterator[Result]:
    """The results of a file, oldest first; a torn or foreign line is passed over."""
    with machine_trouble():
        data = path.read_bytes() if path.is_file() else b""
    for text in data.split(b"\n"):
        try:
            yield Result.model_validate_json(text)
        except ValidationError:
            continue
