"""Several files written as one transaction: all of them, or none."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def commit(root: Path, changes: Mapping[str, bytes | None]) -> None:
    """Writes each path's bytes, or deletes it where they are None; missing folders are made.

    No symbolic link below `root` is followed. Raises OSError, and then every file is as it was.
    """
    transaction = _Transaction(root)
    try:
        for path, data in changes.items():
            transaction.stage(path, data)
        transaction.carry_out()
    except BaseException:
        transaction.undo()
        raise
    finally:
        transaction.close()


@dataclass
class _Staged:
    """A change whose new content (`fresh`) and old content (`backup`) lie as temporary files beside `name`; "" where there is none."""

    folder: int
    name: str
    fresh: str = ""
    backup: str = ""
    done: bool = False


class _Transaction:
    def __init__(self, root: Path) -> None:
        self._folders: dict[str, int] = {"": os.open(root.resolve(strict=True), _FOLDER)}
        self._made: list[tuple[int, str]] = []
        self._staged: list[_Staged] = []

    def _folder(self, path: str) -> int:
        """An open descriptor of the folder, made if missing."""
        if path not in self._folders:
            parent_path, _, name = path.rpartition("/")
            parent = self._folder(parent_path)
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
                self._made.append((parent, name))
            self._folders[path] = os.open(name, _FOLDER, dir_fd=parent)
        return self._folders[path]

    def stage(self, path: str, data: bytes | None) -> None:
        folder_path, _, name = path.rpartition("/")
        staged = _Staged(self._folder(folder_path), name)
        self._staged.append(staged)
        old, mode = _read(staged.folder, name)
        if old is not None:
            staged.backup = f".{secrets.token_hex(8)}.tmp"
            _write(staged.folder, staged.backup, old, mode)
        if data is not None:
            staged.fresh = f".{secrets.token_hex(8)}.tmp"
            _write(staged.folder, staged.fresh, data, mode)

    def carry_out(self) -> None:
        for staged in self._staged:
            if staged.fresh:
                os.rename(staged.fresh, staged.name, src_dir_fd=staged.folder, dst_dir_fd=staged.folder)
            else:
                os.unlink(staged.name, dir_fd=staged.folder)
            staged.done = True
        for folder in self._folders.values():
            os.fsync(folder)

    def undo(self) -> None:
        for staged in reversed(self._staged):
            if staged.done and staged.backup:
                os.rename(staged.backup, staged.name, src_dir_fd=staged.folder, dst_dir_fd=staged.folder)
            elif staged.done:
                os.unlink(staged.name, dir_fd=staged.folder)
        self._remove_leftovers()
        for parent, name in reversed(self._made):
            with suppress(OSError):  # somebody else put a file into it
                os.rmdir(name, dir_fd=parent)

    def _remove_leftovers(self) -> None:
        for staged in self._staged:
            for name in filter(None, (staged.fresh, staged.backup)):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=staged.folder)

    def close(self) -> None:
        self._remove_leftovers()
        for folder in self._folders.values():
            os.close(folder)


def _read(folder: int, name: str) -> tuple[bytes | None, int | None]:
    """The content and permissions of the file, (None, None) when there is none."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None, None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(), os.fstat(descriptor).st_mode & 0o7777


def _write(folder: int, name: str, data: bytes, mode: int | None) -> None:
    descriptor = os.open(name, _FRESH, 0o666, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        if mode is not None:
            os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
