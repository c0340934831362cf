"""Runs one command under a guard and ends it with its whole tree when it uses more than it may, or when asked to."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nightmill.errors import MachineError
from nightmill.gate import guard
from nightmill.gate.disk import DiskUse
from nightmill.gate.limits import Limits
from nightmill.gate.records import Killed

_TICK_S = 0.05
_MEMORY_EVERY_S = 0.2
_GUARD_GIVES_UP_S = 15.0
"""Longer than the guard itself tries to kill."""
_OUTPUT_KILL_FACTOR = 4
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Command:
    """What to start. `fds` are inherited by the command, `stage` are mounted by the guard (see guard.py); the caller closes both."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path = Path("/")
    uid: int | None = None
    fds: Sequence[int] = ()
    stage: Sequence[int] = ()


@dataclass(frozen=True)
class Ended:
    """`status` is a wait status; None exactly when `killed` is set."""

    status: int | None
    killed: Killed | None
    output: bytes
    seconds: float
    truncated: bool


@dataclass
class _Output:
    """The first and the last half of what comes, at most `limit` bytes."""

    limit: int
    total: int = 0
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = max(0, self.limit // 2 - len(self._head))
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > self.limit:
            del self._tail[: -(self.limit - self.limit // 2)]

    @property
    def truncated(self) -> bool:
        return self.total > self.limit

    @property
    def text(self) -> bytes:
        if not self.truncated:
            return bytes(self._head + self._tail)
        tail = self._tail[-(self.limit - self.limit // 2) :]
        missing = self.total - len(self._head) - len(tail)
        return bytes(self._head) + f"\n[... {missing} bytes left out ...]\n".encode() + bytes(tail)


def tree_memory(pid: int, enough: int) -> int:
    """Bytes of memory the tree below `pid` uses. Beyond `enough`, pages shared after a fork are counted once (proportional set size)."""
    pids = guard.descendants(pid)
    resident = {one: _resident(one) for one in pids}
    if sum(resident.values()) <= enough:
        return sum(resident.values())
    return sum(_proportional(one, fallback) for one, fallback in resident.items())


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def _proportional(pid: int, fallback: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return fallback


class _Run:
    """One command from start to end, driven by the thread that waits for it."""

    def __init__(self, command: Command, limits: Limits, disk: DiskUse, stopping: Callable[[], bool]) -> None:
        self.limits, self.disk, self.stopping = limits, disk, stopping
        self.output = _Output(limits.output_kb * 1024)
        self.report = b""
        self.killed: Killed | None = None
        self.started = self._memory_seen = time.monotonic()
        self._start(command)

    def _start(self, command: Command) -> None:
        out_read, out_write = os.pipe()
        status_read, status_write = os.pipe()
        life_read, self.life = os.pipe()
        self.out, self.status = out_read, status_read
        spec = {"argv": list(command.argv), "life": life_read, "status": status_write, "parent": os.getpid()}
        spec |= {"uid": command.uid, "stage": list(command.stage)}
        try:
            self.guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, json.dumps(spec)],
                stdin=subprocess.DEVNULL,
                stdout=out_write,
                stderr=out_write,
                cwd=command.cwd,
                env=dict(command.env),
                pass_fds=(life_read, status_write, *command.fds, *command.stage),
                start_new_session=True,
            )
        except BaseException:
            for fd in (out_read, status_read, self.life):
                os.close(fd)
            raise
        finally:
            for fd in (out_write, status_write, life_read):
                os.close(fd)
        os.set_blocking(self.out, False)

    def over(self) -> Killed | None:
        """The first limit that is exceeded now."""
        now = time.monotonic()
        if self.stopping():
            return "stopped"
        if now - self.started > self.limits.wall_s:
            return "wall"
        if self.output.total > _OUTPUT_KILL_FACTOR * self.output.limit:
            return "output"
        if now - self._memory_seen > _MEMORY_EVERY_S:
            allowed = self.limits.memory_mb << 20
            if tree_memory(self.guard.pid, allowed) > allowed:
                return "memory"
            self._memory_seen = time.monotonic()
        return "disk" if self.disk.over() else None

    def _kill(self) -> None:
        if self.life >= 0:
            os.close(self.life)
            self.life = -1

    def watch(self) -> None:
        """Until the guard has reported."""
        checked = give_up = 0.0
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.out, selectors.EVENT_READ, self._read_output)
            waiting.register(self.status, selectors.EVENT_READ, self._read_status)
            while waiting.get_map():
                for key, _ in waiting.select(_TICK_S):
                    if not key.data():
                        waiting.unregister(key.fd)
                now = time.monotonic()
                if give_up and now > give_up:
                    return
                if not give_up and now - checked > _TICK_S:
                    checked, self.killed = now, self.over()
                    if self.killed:
                        self._kill()
                        give_up = now + _GUARD_GIVES_UP_S

    def _read_output(self) -> bool:
        data = os.read(self.out, 1 << 16)
        self.output.add(data)
        return bool(data)

    def _read_status(self) -> bool:
        data = os.read(self.status, 64)
        self.report += data
        if not data and not self.result:
            self._end_session()
        return bool(data)

    @property
    def result(self) -> bytes:
        """What the guard said at its end."""
        return self.report.partition(b"\n")[2]

    def _end_session(self) -> None:
        """The guard is dead. Its death signal reaches neither all of bubblewrap while that is still setting up, nor further processes."""
        session = self.report.partition(b"\n")[0]
        if session:
            guard.kill_session(int(session))

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        self._kill()
        try:
            self.guard.wait(_GUARD_GIVES_UP_S)
        except subprocess.TimeoutExpired:
            self.guard.kill()
            self.guard.wait()
            self._end_session()
        os.close(self.out)
        os.close(self.status)


def supervise(command: Command, limits: Limits, disk: DiskUse, stopping: Callable[[], bool]) -> Ended:
    """Run `command` to its end or to the first limit it breaks; afterwards no process of its tree is left.

    Call it from the thread that may wait. `stopping` is asked about every 0.05 s. Raises MachineError when the guard itself dies.
    """
    run = _Run(command, limits, disk, stopping)
    try:
        run.watch()
    finally:
        run.close()
    seconds = time.monotonic() - run.started
    if run.result.isdigit():
        return Ended(int(run.result), None, run.output.text, seconds, run.output.truncated)
    if run.killed:
        return Ended(None, run.killed, run.output.text, seconds, run.output.truncated)
    last = run.output.text.decode(errors="replace").strip().splitlines()[-1:]
    raise MachineError(f"the process that guards a command died ({' '.join(last) or 'killed from outside'}): run doit again")
