"""The evidence a gate leaves behind. A record is written by the runner from what commands did, never from a model's words."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

NOT_THE_CODE = "not the code's fault"
"""How the detail of a step begins that machine or sandbox kept from running."""

StepStatus = Literal["passed", "failed", "incomplete", "not_run"]
Verdict = Literal["green", "red", "incomplete", "not_run"]
Killed = Literal["wall", "output", "memory", "disk", "stopped"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Diagnostic(_Record):
    """One located complaint of a tool. `file` is relative to the gated tree, lines and columns count from 1."""

    file: str
    line: int
    message: str
    column: int = 0
    code: str = ""
    severity: Literal["error", "warning"] = "error"


class TestOutcome(_Record):
    """One test as the runner saw it. `id` is stable across trees: `acceptance/test_x.py::test_name[param]`."""

    __test__ = False

    id: str
    outcome: Literal["passed", "failed", "error", "skipped", "xfailed", "xpassed"]
    message: str = ""
    exception: str = ""
    """Class name of what was raised, e.g. `AssertionError`."""
    crash_file: str = ""
    """Innermost frame inside the gated tree, relative to it; empty when there is none."""
    crash_line: int = 0
    crash_function: str = ""
    """Name of that frame's function, qualified when known (`Ledger.total`)."""
    traceback: str = ""
    """The report as the test runner prints it, at most a few kB."""
    flaky: str = ""
    """How its outcomes differ, one line, when two runs on the same tree did not agree; `outcome` is then never `passed`."""
    touched: tuple[str, ...] = ()
    """Functions of the tree it called, `money.py::Ledger.total`; only where that was asked for."""


class StepRecord(_Record):
    """One command of a gate (build, lint, test) and what came of it."""

    name: str
    status: StepStatus
    command: tuple[str, ...] = ()
    exit: int | None = None
    signal: int | None = None
    killed: Killed | None = None
    seconds: float = 0.0
    detail: str = ""
    """Why, in one line, when not passed; for an unlocated failure the head and tail of the output follow."""
    diagnostics: tuple[Diagnostic, ...] = ()
    tests: tuple[TestOutcome, ...] = ()
    seed: int = 0
    """What the order of its tests was shuffled by; 0: as declared."""
    surroundings: tuple[str, ...] = ()
    """Environment in which this run differed from the first, `TZ=…`."""
    again: StepRecord | None = None
    """The second run of the same tests, without its tests: what they did there is part of this step's outcomes."""
    advisory: bool = False
    """True for a step that comments and cannot turn the gate red (lint in this version)."""


class GateRecord(_Record):
    """Everything one gate run proved about one tree."""

    verdict: Verdict
    reason: str
    """One line: why this verdict."""
    steps: tuple[StepRecord, ...]
    tree: str
    """Hash of the gated tree (`nightmill.run.trees.tree_hash`)."""
    acceptance: str = ""
    """Hash of the locked tests that were used, empty when none."""
    protections: tuple[str, ...] = ()
    """Which sandbox protections were in force, e.g. `bubblewrap`, `seccomp`, `no-network`; `UNSANDBOXED` when overridden."""
    toolchain: str = ""
    """What judged, with its version and place: `node 20.11.1 (/usr/bin/node)`."""

    @property
    def trouble(self) -> str:
        """What of the machine or the sandbox kept a step from running, one line; "" when nothing did."""
        return next((s.detail.splitlines()[0] for s in self.steps if s.detail.startswith(NOT_THE_CODE)), "")

    @property
    def tests(self) -> tuple[TestOutcome, ...]:
        return tuple(t for s in self.steps for t in s.tests)

    @property
    def flaky(self) -> tuple[TestOutcome, ...]:
        """Tests whose outcome changed between two runs on this very tree."""
        return tuple(t for t in self.tests if t.flaky)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return tuple(d for s in self.steps if not s.advisory for d in s.diagnostics)

    @property
    def built(self) -> bool:
        """Whether the build step passed; says nothing about behaviour."""
        return any(s.name == "build" and s.status == "passed" for s in self.steps)

    @property
    def passed(self) -> frozenset[str]:
        """Ids of the tests that passed."""
        return frozenset(t.id for t in self.tests if t.outcome == "passed")
