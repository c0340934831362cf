"""No isolation, by the person's explicit choice: commands run as this user, who can read and write all that is theirs.

Still a copy of the tree, an empty environment, and the limits that a supervisor can keep: wall time, output, memory, disk, file size.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nightmill.gate.disk import DiskUse
from nightmill.gate.interpreter import examine
from nightmill.gate.limits import Limits, Ran, never
from nightmill.gate.supervisor import Command, supervise
from nightmill.gate.workdir import Workdir
from nightmill.run.trees import Tree


class Unsandboxed:
    """See `nightmill.gate.sandbox.Sandbox`. There is no inside: its paths in arguments and environment become the host's."""

    protections: tuple[str, ...] = ("UNSANDBOXED",)

    def __init__(self, *, scratch: Path) -> None:
        self._scratch = scratch

    def workdir(self, tree: Tree) -> Workdir:
        return Workdir(tree, scratch=self._scratch)

    def python(self, interpreter: Path) -> str:
        return examine(interpreter).path

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
        limits = limits or Limits()
        outside = _Translation({"/build": work.path, **(bind or {})})
        with self.workdir({}) as home:
            own = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home.path), "TMPDIR": str(home.path), "LANG": "C.UTF-8"}
            own |= {name: outside(value) for name, value in (env or {}).items()}
            size = [f"--fsize={limits.file_mb << 20}", "--core=0"]
            command = Command(["prlimit", *size, "--", *map(outside, argv)], env=own, cwd=work.path)
            ended = supervise(command, limits, DiskUse(work.fd, limits.disk_mb << 20), stopping)
        code = -signal.SIGKILL if ended.status is None else os.waitstatus_to_exitcode(ended.status)
        return Ran(code if code >= 0 else None, -code if code < 0 else None, ended.killed, ended.output, ended.seconds, ended.truncated)


class _Translation:
    """Replaces paths inside by paths of the host wherever they stand as whole path components: `--rootdir=/build`, `/build:/opt/x`."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths
        longest_first = sorted(paths, key=len, reverse=True)
        self._pattern = re.compile(r"(?<![\w./-])(" + "|".join(map(re.escape, longest_first)) + r")(?![\w.-])")

    def __call__(self, text: str) -> str:
        return self._pattern.sub(lambda found: str(self._paths[found[1]]), text)
