"""One writer per run directory: `flock` on `.nightmill/lock`, with the holder's name in it for whoever comes second."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nightmill.errors import RunLocked, machine_trouble


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Takes the lock without waiting. Raises RunLocked naming the holder."""
    with machine_trouble():
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunLocked(f"{holder(path)} works in this run directory: wait for it, or stop it with Ctrl-C or kill") from None
        record = json.dumps({"pid": os.getpid(), "boot": boot_id(), "since": time.time()}).encode()
        with machine_trouble():
            os.ftruncate(fd, 0)
            os.pwrite(fd, record, 0)
        yield
    finally:
        os.close(fd)


def holder(path: Path) -> str:
    """`nightmill (pid 123, since 02:14:07)`, as far as the lock file tells."""
    try:
        record = json.loads(path.read_bytes())
        since = time.strftime("%H:%M:%S", time.localtime(record["since"]))
        return f"nightmill (pid {record['pid']}, since {since})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another nightmill"
