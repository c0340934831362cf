"""What a try came to: from the gate's records and the run's events alone, never from what a model said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from nightmill.errors import EXIT_WORDS
from nightmill.gate.manner import twice
from nightmill.gate.records import GateRecord
from nightmill.graph.session import Session
from nightmill.run.events import Event
from nightmill.run.evidence import latest
from nightmill.run.rundir import RunDir
from nightmill.run.trees import read_tree, tree_hash
from nightmill.trial.given import Task
from nightmill.trial.setting import Setting

STAGE = "attempt"


class Attempt(BaseModel):
    """One attempt of the last execution. `passed` of `owed` tests; `best`: it took the place of the best so far."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    attempt: int
    asked: str
    outcome: str
    passed: int
    owed: int
    diagnostics: int
    best: bool
    differs: str
    reason: str


class Result(BaseModel):
    """The line that `nightmill try` prints. Tokens and seconds are those that were really spent, over all invocations."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    task: str
    given: str
    """Hash of the task: its files and instructions."""
    model: str
    strategy: str
    tries: int
    """Attempts that were allowed."""
    solved: bool
    attempts: int
    passed: int
    """Tests that pass on the tree that was kept, of `owed`."""
    owed: int
    tokens_prompt: int
    tokens_completion: int
    seconds_model: float
    seconds: float
    verdict: str
    attempts_detail: tuple[Attempt, ...] = ()
    verified: bool | None = None
    """Whether a gate that was run afresh says green too; null where nobody looked."""

    @property
    def used_up(self) -> bool:
        """Whether it was solved, or all attempts were made: else something other than the model ended it, a budget for one."""
        return self.solved or self.attempts >= self.tries

    @property
    def tokens(self) -> int:
        return self.tokens_prompt + self.tokens_completion


def identity(task: Task) -> str:
    """Hash of what the person gave."""
    return tree_hash({**task.files, "instructions.md": task.instructions.encode()})


def result(root: Path, task: Task, given: Setting, code: int) -> Result:
    """`code`: what the run ended with."""
    run = RunDir(root)
    events = list(run.events)
    now = [e for e in latest(events) if getattr(e, "stage", "") == STAGE]
    attempts = [Attempt.model_validate(e.model_dump()) for e in now if e.kind == "attempt_finished"]
    records = [e.record for e in now if e.kind == "gate_ran"]
    kept = _of_the_kept(root, task, records)
    calls = [e for e in events if e.kind == "call_finished" and not e.replayed]
    return Result(
        task=task.name,
        given=identity(task),
        model=given.model,
        strategy=given.strategy,
        tries=given.tries,
        solved=kept is not None and kept.verdict == "green",
        attempts=len(attempts),
        passed=len(kept.passed) if kept else 0,
        owed=max((len(record.tests) for record in records), default=0),
        tokens_prompt=sum(e.prompt_tokens or 0 for e in calls),
        tokens_completion=sum(e.completion_tokens or 0 for e in calls),
        seconds_model=round(sum(e.seconds for e in calls), 3),
        seconds=round(_seconds(events), 3),
        verdict=f"{kept.verdict}: {kept.reason}" if kept else f"not judged: {EXIT_WORDS.get(code, str(code))}",
        attempts_detail=tuple(attempts),
    )


def _of_the_kept(root: Path, task: Task, records: Sequence[GateRecord]) -> GateRecord | None:
    """The last gate on the very tree in v2/ with the very tests that were given; None when there was none."""
    tree, tests = tree_hash(read_tree(root / "v2")), tree_hash(task.given.tests)
    return next((r for r in reversed(records) if r.tree == tree and r.acceptance == tests), None)


def _seconds(events: Iterable[Event]) -> float:
    """At work, over all invocations. Each one's clock begins anew."""
    ends: list[float] = []
    for event in events:
        if event.kind == "run_started" or not ends:
            ends.append(0.0)
        ends[-1] = max(ends[-1], event.up)
    return sum(ends)


def verify(root: Path, task: Task) -> bool:
    """Runs the gate afresh on v2/ with the tests as the person has them: whether it is green. Raises MachineError, ConfigError."""
    session = Session(RunDir(root))
    tests = task.given.tests
    return session.gate_cache.run(read_tree(root / "v2"), tests, twice(tests), fresh=True).verdict == "green"


def line(found: Result, **more: Any) -> bytes:
    """One line of JSON, newline included."""
    return found.model_copy(update=more).model_dump_json().encode() + b"\n"
