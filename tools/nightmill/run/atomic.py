"""Whole files or nothing: temp file in the same directory, fsync, rename, directory fsync."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from nightmill.errors import machine_trouble

TEMP_SUFFIX = ".tmp"
_OURS = re.compile(r"\..*\.[0-9a-f]{12}(?:\.old)?\.tmp")


def write_atomic(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Replaces `path` by `data`; `mode` is narrowed by the umask. After a crash at any moment the file is whole: the old text or the new.

    Raises MachineError when the disk is full, read-only or forbidden; nothing is left behind then.
    """
    with machine_trouble():
        path.parent.mkdir(parents=True, exist_ok=True)
        temp = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}{TEMP_SUFFIX}")
        try:
            _write_synced(temp, data, mode)
            temp.replace(path)
        except OSError as error:
            temp.unlink(missing_ok=True)
            error.filename = str(path)
            raise
        sync_dir(path.parent)


def _write_synced(path: Path, data: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def append_line(path: Path, line: bytes, *, sync: bool) -> None:
    """Appends one or more whole lines; a torn last line of a killed writer is closed first so that it damages nothing else."""
    with machine_trouble():
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line
            view = memoryview(line)
            while view:
                view = view[os.write(fd, view) :]
            if sync:
                os.fsync(fd)
        except OSError as error:
            error.filename = str(path)
            raise
        finally:
            os.close(fd)


def sweep(root: Path) -> int:
    """Removes temporary files that a killed process left below `root`; returns how many. Call it only under the run's lock."""
    found = [Path(folder, name) for folder, _, names in os.walk(root) for name in names if _OURS.fullmatch(name)]
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)
