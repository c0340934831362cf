"""The directory in which one gate runs its commands: a private copy of a tree, writable inside, gone afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from pathlib import Path
from types import TracebackType

from nightmill.errors import machine_trouble
from nightmill.gate.disk import overwrite, read_regular, remove_tree
from nightmill.run.trees import Tree

_PREFIX = "nightmill-gate-"
_STALE_AFTER_S = 60.0
"""Between being made and being locked a directory looks abandoned; nobody needs so long."""


class Workdir:
    """A context manager. Inside the sandbox it is `inside`; on the host `path`, to be reached through `read` only."""

    def __init__(self, tree: Tree, *, scratch: Path, uid: int | None = None, inside: str | None = None) -> None:
        """A copy of `tree` under `scratch`, mode 0700, owned by `uid` (None: by us). Files that begin with `#!` become executable.

        Raises ValueError for a path that is absolute, leaves the directory, or is both a file and a directory; MachineError when the
        disk is full or `scratch` not writable.
        """
        _check_paths(tree)
        with machine_trouble():
            scratch.mkdir(parents=True, exist_ok=True)
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=scratch))
        self.inside = inside or str(self.path)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        try:
            with machine_trouble():
                self._write(tree, uid)
        except BaseException:
            self.close()
            raise

    def _write(self, tree: Tree, uid: int | None) -> None:
        made = {self.path}
        for rel, data in tree.items():
            file = self.path / rel
            for folder in reversed(file.relative_to(self.path).parents[:-1]):
                made.add(self.path / folder)
                (self.path / folder).mkdir(mode=0o755, exist_ok=True)
            file.write_bytes(data)
            file.chmod(0o755 if data.startswith(b"#!") else 0o644)
            made.add(file)
        if uid is not None:
            for path in made:
                os.chown(path, uid, uid)

    def read(self, rel: str, limit: int) -> bytes | None:
        """A file that a command left, at most `limit` bytes. None when it is missing, larger, a link, hard-linked or not a regular file."""
        return read_regular(self.fd, rel, limit)

    def overwrite(self, rel: str, data: bytes) -> None:
        """New bytes for a file that was laid there. Raises OSError when something else lies in its place by now."""
        overwrite(self.fd, rel, data)

    def close(self) -> None:
        if self.fd >= 0:
            remove_tree(self.path)
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Workdir:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _check_paths(tree: Tree) -> None:
    files = set(tree)
    for rel in files:
        parts = rel.split("/")
        if "\0" in rel or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{rel!r} is not a relative path inside a tree")
        for i in range(1, len(parts)):
            if "/".join(parts[:i]) in files:
                raise ValueError(f"{'/'.join(parts[:i])} is both a file and a directory")


def sweep(scratch: Path, owner: int) -> None:
    """Remove directories of uid `owner` that a killed process left under `scratch`; those in use are locked."""
    for path in scratch.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                seen = os.fstat(fd)
                if seen.st_uid == owner and time.time() - seen.st_ctime > _STALE_AFTER_S:
                    remove_tree(path)
            finally:
                os.close(fd)
