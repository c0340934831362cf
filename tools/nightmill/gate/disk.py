"""File system access to directories that hostile code may have arranged: never through a link, at any depth, in bounded time."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MAX_DEPTH = 100
"""No build nests deeper; a tree that does hides its size, since each level costs a walk one more open."""
_SLICE_S = 0.02
_PAUSE_FACTOR = 4.0
"""A walk is followed by a pause of so many times its own duration, so that measuring takes at most a fifth of a core."""
_MIN_PAUSE_S = 0.3
_RESERVE = 128 << 20
"""Bytes left free on the host's disk, whatever the walk sees (deleted files that are still open are invisible to it)."""


def open_below(root: int, rel: str, flags: int) -> int:
    """An fd of `rel` below the directory fd `root`, opened part by part. OSError (ELOOP, ENOTDIR) at any link, ValueError for `..`."""
    *folders, name = [part for part in rel.split("/") if part not in ("", ".")] or ["."]
    if ".." in (*folders, name):
        raise ValueError(f"{rel} leaves its directory")
    at, opened = root, -1
    try:
        for folder in folders:
            step = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            if opened >= 0:
                os.close(opened)
            at = opened = step
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        if opened >= 0:
            os.close(opened)


def _unlock(root: int, rel: str) -> Callable[[], None]:
    """Give us access to a directory whose owner (we) took it away; what is returned restores its mode."""
    path = open_below(root, rel, os.O_PATH | os.O_DIRECTORY) if rel else os.dup(root)
    handle = _handle(path)
    mode = stat.S_IMODE(os.fstat(path).st_mode)
    handle.chmod(mode | 0o700)

    def lock() -> None:
        with contextlib.suppress(OSError):
            handle.chmod(mode)
        os.close(path)

    return lock


def _handle(fd: int) -> Path:
    """A path to exactly what an O_PATH fd names: no link can be slipped in between."""
    return Path(f"/proc/self/fd/{fd}")


def read_regular(root: int, rel: str, limit: int) -> bytes | None:
    """The bytes of a regular file with a single name, at most `limit` of them; None for anything else that may lie there."""
    try:
        fd = open_below(root, rel, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or seen.st_size > limit:
            return None
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(limit + 1)
    finally:
        os.close(fd)
    return data if len(data) <= limit else None


def overwrite(root: int, rel: str, data: bytes) -> None:
    """New bytes for a regular file that is there. Raises OSError for a link anywhere on the way, and for anything else than such a file."""
    fd = open_below(root, rel, os.O_WRONLY | os.O_NONBLOCK)
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1:
            raise OSError(errno.EINVAL, "not a regular file with a single name", rel)
        os.ftruncate(fd, 0)
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(data)
    finally:
        os.close(fd)


def remove_tree(path: Path) -> None:
    """Remove a directory with everything in it: unreadable, read-only or nested too deep for any path. Nothing may still write there.

    Each directory found is first renamed to the top, so that depth never grows; links are removed, not followed.
    """
    with contextlib.suppress(FileNotFoundError):
        root = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _empty(root)
        finally:
            os.close(root)
        path.rmdir()


def _list(root: int, name: str) -> int:
    """An fd to list directory `name` ("" is the root itself), made accessible to us for good."""
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root) if name else os.dup(root)
    try:
        _handle(path).chmod(0o700)
        return os.open(_handle(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(path)


def _empty(root: int) -> None:
    count = 0
    pending = [""]
    while pending:
        name = pending.pop()
        folder = _list(root, name)
        try:
            with os.scandir(folder) as entries:
                for entry in list(entries):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.name, dir_fd=folder)
                    elif not name:
                        pending.append(entry.name)
                    else:
                        os.close(_list(folder, entry.name))  # moving a directory needs the right to write in it
                        count += 1
                        moved = f".nightmill-removed-{count}"
                        os.rename(entry.name, moved, src_dir_fd=folder, dst_dir_fd=root)
                        pending.append(moved)
        finally:
            os.close(folder)
        if name:
            os.rmdir(name, dir_fd=root)


class DiskUse:
    """How full a directory is, measured a slice at a time so that the caller's loop never waits."""

    def __init__(self, root: int, limit: int) -> None:
        """`root`: fd of the directory, kept open by the caller. `limit`: bytes."""
        self._root, self._limit = root, limit
        self._floor = min(_RESERVE, self._free() // 2)
        self._walk: Iterator[int] | None = None
        self._sum = 0
        self._began = self._next = 0.0

    def _free(self) -> int:
        seen = os.fstatvfs(self._root)
        return seen.f_bavail * seen.f_frsize

    def over(self) -> bool:
        """Measure for at most 20 ms; True as soon as the limit is known to be passed or the host's disk is about to be full."""
        now = time.monotonic()
        if self._walk is None:
            if now < self._next:
                return False
            self._walk, self._sum, self._began = self._sizes(), 0, now
            if self._free() < self._floor:
                return True
        for size in self._walk:
            self._sum += size
            if self._sum > self._limit:
                return True
            if time.monotonic() - now > _SLICE_S:
                return False
        self._walk = None
        ended = time.monotonic()
        self._next = ended + max(_MIN_PAUSE_S, _PAUSE_FACTOR * (ended - self._began))
        return False

    def _sizes(self) -> Iterator[int]:
        """Bytes on disk of each entry; more than the limit for a tree too deep to measure. What vanishes meanwhile counts nothing."""
        pending: list[tuple[str, int] | Callable[[], None]] = [("", 0)]
        while pending:
            item = pending.pop()
            if callable(item):
                item()
                continue
            rel, depth = item
            if depth > _MAX_DEPTH:
                yield self._limit + 1
            with contextlib.suppress(OSError), contextlib.ExitStack() as cleanup:
                folder = self._open(rel, pending)
                cleanup.callback(os.close, folder)
                for entry in cleanup.enter_context(os.scandir(folder)):
                    with contextlib.suppress(OSError):
                        yield entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            pending.append((f"{rel}/{entry.name}", depth + 1))

    def _open(self, rel: str, pending: list[tuple[str, int] | Callable[[], None]]) -> int:
        """An fd to list `rel`. A directory without access is unlocked until all below it, which `pending` will hold, is seen."""
        with contextlib.suppress(PermissionError):
            folder = open_below(self._root, rel, _DIRECTORY)
            if os.geteuid() == 0 or os.fstat(folder).st_mode & 0o500 == 0o500:
                return folder
            os.close(folder)
        pending.append(_unlock(self._root, rel))
        return open_below(self._root, rel, _DIRECTORY)
