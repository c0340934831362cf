"""The sandbox: bubblewrap with a system that is read-only and nearly empty, no network, our call filter, and a supervisor outside.

What is not bound is not there: of the host a command sees /usr, three files of /etc, the interpreters it was given, and its work
directory. Started by root, everything runs as an unprivileged user, because namespaces made by root can reach global kernel settings.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nightmill.errors import machine_trouble
from nightmill.gate import probe, seccomp
from nightmill.gate.disk import DiskUse
from nightmill.gate.interpreter import SYSTEM_LINKS, Interpreter, examine
from nightmill.gate.limits import Limits, Ran, never
from nightmill.gate.supervisor import Command, Ended, supervise
from nightmill.gate.workdir import Workdir
from nightmill.run.trees import Tree

DROPPED_UID = 65530
"""Whom root becomes: 65520…65533 belong to no distribution's users nor to systemd's dynamic ones, and exist in small id maps too."""

INSIDE = "/build"
_HOME = "/home/sandbox"
_PASSWD = b"sandbox:x:1000:1000::/home/sandbox:/bin/sh\n"
_FILES = 1024
_SHM = 64 << 20
_BASE_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": _HOME,
    "USER": "sandbox",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
_ALWAYS = (
    *("seccomp", "no-network", "read-only-system", "private-home-and-tmp", "empty-environment", "no-capabilities", "process-limit"),
    *("memory-watchdog", "disk-watchdog", "output-limit", "wall-limit"),
)
_NAMESPACES = ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
_IDENTITY = ("--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--die-with-parent", "--clearenv", "--cap-drop", "ALL")
# No --new-session: the guard has made one, without a terminal, and by it finds what is left when all else fails.


@dataclass
class _Fds:
    """File descriptors of one start. What root may open and the dropped user not is staged by the guard."""

    staged: bool
    stage: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)

    def bind(self, host: int, inside: str, *, writable: bool = False) -> list[str]:
        kind = "--bind" if writable else "--ro-bind"
        (self.stage if self.staged else self.passed).append(host)
        return [kind, f"/tmp/{host}", inside] if self.staged else [f"{kind}-fd", str(host), inside]

    def data(self, name: str, content: bytes) -> str:
        fd = os.memfd_create(name)
        self.passed.append(fd)
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        return str(fd)

    def close(self) -> None:
        for fd in (*self.stage, *self.passed):
            os.close(fd)


class Bubblewrap:
    """See `nightmill.gate.sandbox.Sandbox`. Safe to use from several threads."""

    def __init__(self, bwrap: Path, *, scratch: Path, uid: int | None, forbid_nesting: bool = True) -> None:
        """`uid`: whom to become, None for an ordinary user who stays who they are. `forbid_nesting`: with --disable-userns."""
        self._bwrap, self._scratch, self._uid = bwrap, scratch, uid
        self._nesting = ("--disable-userns",) if forbid_nesting else ()
        self._filter = seccomp.program()
        self._interpreters: dict[str, Interpreter] = {}
        dropped = (f"uid-{uid}",) if uid is not None else ()
        nesting = ("no-nested-namespaces",) if forbid_nesting else ()
        self.protections: tuple[str, ...] = (f"bubblewrap {version(bwrap)}", *dropped, *nesting, *_ALWAYS)

    def workdir(self, tree: Tree) -> Workdir:
        return Workdir(tree, scratch=self._scratch, uid=self._uid, inside=INSIDE)

    def python(self, interpreter: Path) -> str:
        found = examine(interpreter)
        self._interpreters = {**self._interpreters, found.path: found}
        return found.path

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
        status_read, status_write = os.pipe()
        with os.fdopen(status_read, "rb") as status:
            with contextlib.closing(_Fds(staged=self._uid is not None, passed=[status_write])) as fds:
                inner = [*self._mounts(fds, work, bind or {}, limits), *self._environment(env or {})]
                inner += ["--seccomp", fds.data("seccomp", self._filter), "--json-status-fd", str(status_write)]
                outer = [str(self._bwrap), *_NAMESPACES, *self._nesting, *_IDENTITY, *inner, "--", *_prlimit(limits), *argv]
                command = Command(outer, env={"PATH": _BASE_ENV["PATH"]}, uid=self._uid, fds=fds.passed, stage=fds.stage)
                ended = supervise(command, limits, DiskUse(work.fd, limits.disk_mb << 20), stopping)
            started = b'"exit-code"' in status.read()
        if ended.killed is None and not started:
            raise probe.refusal(probe.classify(ended.output.decode(errors="replace")))
        return _ran(ended)

    def _mounts(self, fds: _Fds, work: Workdir, bind: Mapping[str, Path], limits: Limits) -> Iterator[str]:
        yield from _system()
        yield from ("--ro-bind-data", fds.data("passwd", _PASSWD), "/etc/passwd", "--proc", "/proc", "--dev", "/dev")
        size = str(limits.disk_mb << 20)
        yield from ("--size", size, "--perms", "1777", "--tmpfs", "/tmp", "--size", size, "--perms", "0700", "--tmpfs", _HOME)
        yield from ("--size", str(_SHM), "--perms", "1777", "--tmpfs", "/dev/shm")
        interpreters = self._interpreters.values()
        for tree in sorted({tree for one in interpreters for tree in one.trees}):
            yield from fds.bind(_open(tree), str(tree))
        for where, target in sorted({link for one in interpreters for link in one.links}):
            yield from ("--symlink", target, str(where))
        yield from fds.bind(os.dup(work.fd), INSIDE, writable=True)
        for inside, host in bind.items():
            yield from fds.bind(_open(host), inside)
        yield from ("--chdir", INSIDE, "--remount-ro", "/proc", "--remount-ro", "/")

    def _environment(self, env: Mapping[str, str]) -> Iterator[str]:
        python = dict(pair for one in self._interpreters.values() for pair in one.env)
        for name, value in {**_BASE_ENV, **python, **env}.items():
            yield from ("--setenv", name, value)


def _open(host: Path) -> int:
    """An fd of a file or directory to bind. The path is ours or the person's, never the tree's, so links to it are followed."""
    with machine_trouble():
        return os.open(host, os.O_PATH | os.O_CLOEXEC)


def _system() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for path in SYSTEM_LINKS:
        if Path(path).is_symlink():
            yield from ("--symlink", str(Path(path).readlink()), path)
        elif Path(path).is_dir():
            yield from ("--ro-bind", path, path)
    for name in ("ld.so.cache", "alternatives", "localtime"):
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _prlimit(limits: Limits) -> Sequence[str]:
    """Set inside: there the number of processes counts this sandbox's only."""
    return (
        "/usr/bin/prlimit", f"--nproc={limits.processes}", f"--nofile={_FILES}", f"--fsize={limits.file_mb << 20}",
        f"--data={limits.memory_mb << 20}", "--core=0", "--",
    )  # fmt: skip


def _ran(ended: Ended) -> Ran:
    """bubblewrap reports a signal as a shell does."""
    code = None if ended.status is None else os.waitstatus_to_exitcode(ended.status)
    died = signal.SIGKILL if code is None else code - 128 if 128 < code <= 192 else None
    return Ran(None if died else code, died and int(died), ended.killed, ended.output, ended.seconds, ended.truncated)


def version(bwrap: Path) -> str:
    """As `bwrap --version` prints it, "?" when it does not."""
    try:
        asked = subprocess.run([bwrap, "--version"], capture_output=True, text=True, encoding="utf-8", timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "?"
    return asked.stdout.split()[-1]
