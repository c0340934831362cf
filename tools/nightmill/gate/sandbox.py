"""Where model-written code runs. `find` gives the sandbox of this machine, or says why there is none; nothing falls back silently."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from nightmill.errors import SandboxMissing
from nightmill.gate import probe
from nightmill.gate.bubblewrap import DROPPED_UID, Bubblewrap
from nightmill.gate.limits import Limits, Ran, never
from nightmill.gate.unsandboxed import Unsandboxed
from nightmill.gate.workdir import Workdir, sweep
from nightmill.run.trees import Tree

__all__ = ["Limits", "Ran", "Sandbox", "Workdir", "find", "never"]

_PROBE = Limits(wall_s=30.0, output_kb=64)
_SYSTEM_BWRAP = Path("/usr/bin/bwrap")
"""Preferred over the search path: distributions bind the right to create namespaces to this very path."""


class Sandbox(Protocol):
    """Runs commands in a work directory. The directory appears as /build, writable; a command can change nothing else."""

    @property
    def protections(self) -> tuple[str, ...]:
        """What is in force, for the record."""

    def workdir(self, tree: Tree) -> Workdir:
        """A private copy of `tree`; leave its `with` block to remove it."""

    def python(self, interpreter: Path) -> str:
        """Make an interpreter, a virtual environment's included, usable in later runs; its path inside. Raises ConfigError."""

    def run(
        self,
        argv: Sequence[str],
        work: Workdir,
        *,
        bind: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        stopping: Callable[[], bool] = never,
    ) -> Ran:
        """Run one command to its end, or to the first limit it breaks; no process of it survives.

        `bind`: path inside → file or directory of the host, read-only. `env` is added to a minimal environment. `stopping` is asked
        about twenty times a second; once true the command is killed. Raises SandboxMissing when the sandbox cannot be set up.
        """


def find(
    *,
    python: Path,
    unsandboxed: bool = False,
    scratch: Path | None = None,
    uid: int = DROPPED_UID,
    bwrap: Path | None = None,
) -> Sandbox:
    """The sandbox of this machine, proven by a run of `python` in it, or, when `unsandboxed`, none at all.

    `scratch`: where work directories are made, by default the system's directory for temporary files. `uid`: whom to become when
    started by root. Raises SandboxMissing with cause and remedy in one line; ConfigError when `python` does not work.
    """
    scratch = scratch or Path(tempfile.gettempdir())
    dropped = uid if os.geteuid() == 0 else None
    sweep(scratch, os.geteuid() if dropped is None else dropped)
    if unsandboxed:
        return Unsandboxed(scratch=scratch)
    if uid == 0:
        raise SandboxMissing("generated code must not run as root: choose another uid than 0 for the sandbox")
    program = bwrap or (_SYSTEM_BWRAP if _SYSTEM_BWRAP.exists() else Path(shutil.which("bwrap") or ""))
    if not program.is_file():
        raise probe.refusal(probe.MISSING)
    if not Path("/usr/bin/prlimit").exists():
        raise probe.refusal(probe.PRLIMIT_MISSING)
    sandbox = Bubblewrap(program, scratch=scratch, uid=dropped)
    try:
        _prove(sandbox, python)
    except SandboxMissing:
        sandbox = Bubblewrap(
            program, scratch=scratch, uid=dropped, forbid_nesting=False
        )  # not every kernel and version can; our filter refuses too
        _prove(sandbox, python)
    return sandbox


def _prove(sandbox: Sandbox, python: Path) -> None:
    inside = sandbox.python(python)
    with sandbox.workdir({}) as work:
        ran = sandbox.run([inside, "-c", "open('/build/written', 'w').write('yes')"], work, limits=_PROBE)
        if ran.exit != 0 or work.read("written", 10) != b"yes":
            raise probe.refusal(probe.INTERPRETER)
