"""A small process between us and untrusted commands: it starts one, and kills everything below it when told or when we die.

Started as a script by the supervisor (`python -I -S guard.py SPEC`), standard library only. SPEC is JSON:

    argv    the command
    life    fd of a pipe whose other end only the orchestrator holds; its end-of-file means "kill all and report"
    status  fd to which go the session id of the command, a newline, and when all is over its wait status; both in decimal
    parent  pid of the orchestrator
    uid     null, or the unprivileged user to become (we are root)
    stage   fds of directories and files to make reachable as /tmp/FD for that user, who may not be able to walk to them

Being a subreaper, the guard is the parent of whatever escapes its own parent, so no `setsid`, double fork or daemon leaves the tree.
A kill of the orchestrator at any moment closes the pipe. After a kill of the guard itself the orchestrator ends the session.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE, _OPEN_TREE_CLONE = -100, 0x1000, 0x8000, 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT = 428, 429  # the same on every architecture (linux/arch/*/syscall.tbl)
_KILL_FOR_S = 10.0
"""A tree that cannot be killed for so long is stuck in the kernel."""

_PARENT_EVERY_S = 1.0
"""A fork of the orchestrator may hold its end of the pipe open after its death, so its pid is looked at too."""

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def stage_mounts(fds: Sequence[int]) -> None:
    """Mount what each fd names on /tmp/FD, in a mount namespace of our own that ends with us. Needs CAP_SYS_ADMIN; OSError otherwise."""
    if not fds:
        return
    trees = []
    for fd in fds:
        flags = _OPEN_TREE_CLONE | _AT_EMPTY_PATH | _AT_RECURSIVE | os.O_CLOEXEC
        trees.append(_checked(_libc.syscall(_SYS_OPEN_TREE, fd, b"", flags), "open_tree"))
    _checked(_libc.unshare(_CLONE_NEWNS), "unshare")
    _checked(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "mount /")
    _checked(_libc.mount(b"tmpfs", b"/tmp", b"tmpfs", ctypes.c_ulong(0), b"mode=755,size=1m"), "mount /tmp")
    for fd, tree in zip(fds, trees, strict=True):
        place = Path("/tmp", str(fd))
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            place.mkdir()
        else:
            place.touch()
        moved = _libc.syscall(_SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, bytes(place), _MOVE_MOUNT_F_EMPTY_PATH)
        _checked(moved, "move_mount")
        os.close(tree)
        os.close(fd)


def drop_to(uid: int) -> None:
    """Become `uid` for good: no group, no capability, no way back. OSError when the kernel refuses."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _become(argv: Sequence[str], uid: int | None, stage: Sequence[int], guard: int, go: int) -> None:
    """In the child, once the guard has written to `go`: never returns."""
    try:
        if not os.read(go, 1):
            return
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        stage_mounts(stage)
        if uid is not None:
            drop_to(uid)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guard:
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and the command would inherit it
                signal.signal(ignored, signal.SIG_DFL)
            os.execvp(argv[0], list(argv))
    except OSError as error:
        os.write(2, f"guard: {error.strerror or error}\n".encode())
    finally:
        os._exit(127)


def children(pid: int) -> list[int]:
    """Pids of the direct children of every thread of `pid`; empty when it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Pids of the tree below `pid`, parents first."""
    found = children(pid)
    for one in found:
        found += children(one)
    return found


def session_members(session: int) -> list[int]:
    """Pids of the living processes of a session, in the whole system."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session, *_ = place.read_text(errors="replace").rpartition(")")[2].split()
            if int(its_session) == session and state not in "ZX":
                found.append(int(place.parent.name))
    return found


def kill_session(session: int) -> None:
    """Kill what is left of a session, with all below its members."""
    until = time.monotonic() + _KILL_FOR_S
    while (members := session_members(session)) and time.monotonic() < until:
        for pid in [*members, *(below for one in members for below in descendants(one))]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def kill_tree() -> None:
    """Kill and reap everything below this process."""
    until = time.monotonic() + _KILL_FOR_S
    while time.monotonic() < until:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def main(spec_text: str) -> int:
    spec = json.loads(spec_text)
    life, status = spec["life"], spec["status"]
    for fd in (life, status):
        os.set_inheritable(fd, False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    guard = os.getpid()
    go_read, go_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go_write)
        _become(spec["argv"], spec["uid"], spec["stage"], guard, go_read)
    os.write(status, f"{child}\n".encode())
    os.write(go_write, b"go")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    keep = {0, 1, 2, life, status, wake_read, wake_write}
    for fd in [int(link.name) for link in Path("/proc/self/fd").iterdir()]:
        if fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)
    ended: int | None = None
    while ended is None:
        ready, _, _ = select.select([life, wake_read], [], [], _PARENT_EVERY_S)
        if life in ready or os.getppid() != spec["parent"]:
            break
        with contextlib.suppress(BlockingIOError):
            os.read(wake_read, 4096)
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == child:
                    ended = reaped[1]
    kill_tree()
    with contextlib.suppress(OSError):
        os.write(status, b"killed" if ended is None else str(ended).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
