"""One try: a run directory of its own, the pipeline `task` run by doit in it, lines for a person meanwhile."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from nightmill.graph.verbs import doit
from nightmill.lines import narrate
from nightmill.paths import working_directory
from nightmill.run.events import Event
from nightmill.trial.given import Task
from nightmill.trial.result import Result, result
from nightmill.trial.setting import Setting, lay

TOLD = frozenset({"attempt_finished", "edit_refused", "reply_refused"})


def attempt(task: Task, given: Setting, root: Path, say: Callable[[str], None]) -> tuple[Result, int]:
    """Tries a task in `root`, or goes on there; returns what it came to and doit's exit code. `say` gets a line per attempt."""
    lay(root, task, given)
    with _working_in(root), redirect_stdout(sys.stderr):
        code = doit(["run"], watch=_teller(say))
    return result(root, task, given, code), code


@contextmanager
def place(keep: Path | None) -> Iterator[Path]:
    """The run directory: the one to keep, or one that is gone afterwards."""
    if keep is not None:
        yield keep.expanduser().resolve()
        return
    with tempfile.TemporaryDirectory(prefix="nightmill-try-") as folder:
        yield Path(folder).resolve() / "run"


def _teller(say: Callable[[str], None]) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        if event.kind == "run_ended" and event.exit not in (0, 76):
            say(f"{event.word}: {event.reason}")
        elif event.kind == "call_finished" and event.outcome != "ok":
            say(f"{event.label}: {event.outcome}: {event.detail}")
        elif event.kind in TOLD and (line := narrate(event)):
            say(line.text)

    return tell


@contextmanager
def _working_in(root: Path) -> Iterator[None]:
    before = working_directory()
    os.chdir(root)
    try:
        yield
    finally:
        os.chdir(before)
