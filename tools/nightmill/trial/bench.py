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

IN_A_ROW = 3
"""Tries that say nothing of the model, one after the other: nobody answers, the machine cannot judge, a budget is spent. They are not
written down, so that the next bench makes them again."""
Key = tuple[str, str, str, str, int]
"""(task, its hash, model, strategy, tries)."""


def run_all(tasks: Sequence[Task], settings: Sequence[Setting], out: Path | None, keep: Path | None, say: Callable[[str], None]) -> int:
    """Returns 0 when every try was judged and every solved one is green afresh; 1 when one is not; else the worst exit code."""
    wanted = [(task, given) for given in settings for task in tasks]
    done = {key_of(found): found for found in read(out)} if out else {}
    codes: list[int] = []
    judged: list[bool] = []
    for number, (task, given) in enumerate(wanted, 1):
        key = key_for(task, given)
        if key in done:
            continue
        say(f"{number}/{len(wanted)} {task.name} ({given.model}, {given.strategy})")
        found, code = _one(task, given, keep, say)
        judged.append(code in (0, 76) and found.used_up)
        codes.append(0 if judged[-1] else code)
        if judged[-1]:
            done[key] = found
            if out:
                append_line(out, line(found), sync=True)
        if code == Stopped.exit_code or (len(judged) >= IN_A_ROW and not any(judged[-IN_A_ROW:])):
            say(f"ended after {number} of {len(wanted)} tries; the same command goes on")
            break
    results = [done[key] for key in (key_for(task, given) for task, given in wanted) if key in done]
    if results:
        sys.stdout.write("\n".join(lines(columns(results))) + "\n")
        sys.stdout.flush()
    if wrong := false_done(results):
        say(f"called solved, but not green when judged afresh: {', '.join(wrong)}")
        codes.append(1)
    return worst(codes)


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
