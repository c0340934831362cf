"""The project's files as the planner sees them: from a mapping, or from disk without following a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from nightmill.edits.items import Refused
from nightmill.edits.paths import fold, normalise
from nightmill.run.trees import walk

_MOST_HINT_FILES = 2000
_MOST_HINT_BYTES = 8_000_000
_LARGEST_HINT_FILE = 1_000_000


class Files(Protocol):
    """Paths are normalised. None of these follows a symbolic link below the root."""

    def is_file(self, path: str) -> bool: ...

    def read(self, path: str) -> bytes: ...

    def demand_usable(self, path: str) -> None:
        """Raises Refused when `path` can be neither a file nor a new file here: a link, a folder, below a file."""

    def names(self, folder: str) -> Collection[str]:
        """The names directly in `folder` ("" is the root); empty when it is none."""

    def some(self) -> Iterator[tuple[str, bytes]]:
        """Files to search for hints: all of a small project, a bounded part of a large one."""


def exists(files: Files, text: str) -> bool:
    """Is `text`, as a reply writes it, the path of a file?"""
    try:
        return files.is_file(normalise(text))
    except Refused:
        return False


def demand_no_twin(files: Files, path: str) -> None:
    """Raises Refused when a path to be created differs from an existing name in case or composition only."""
    folder = ""
    for part in path.split("/"):
        names = files.names(folder)
        if part not in names:
            twin = next((name for name in names if fold(name) == fold(part)), None)
            if twin:
                raise Refused("path", f"`{part}` and the existing `{twin}` differ only in case: use the existing name.")
            return
        folder = f"{folder}/{part}" if folder else part


class MemoryFiles:
    def __init__(self, tree: Mapping[str, bytes]) -> None:
        self._tree = tree
        self._folders: dict[str, set[str]] = {"": set()}
        for path in tree:
            while path:
                folder, _, name = path.rpartition("/")
                self._folders.setdefault(folder, set()).add(name)
                path = folder

    def is_file(self, path: str) -> bool:
        return path in self._tree

    def read(self, path: str) -> bytes:
        return self._tree[path]

    def demand_usable(self, path: str) -> None:
        if path in self._folders:
            raise Refused("path", "this is a folder.")
        parent = path.rpartition("/")[0]
        while parent:
            if parent in self._tree:
                raise Refused("path", f"`{parent}` is a file, not a folder.")
            parent = parent.rpartition("/")[0]

    def names(self, folder: str) -> Collection[str]:
        return self._folders.get(folder, ())

    def some(self) -> Iterator[tuple[str, bytes]]:
        return iter(sorted(self._tree.items()))


class DiskFiles:
    def __init__(self, root: Path) -> None:
        self._root = root.resolve(strict=True)
        self._modes: dict[str, int] = {}

    def _mode(self, path: str) -> int:
        """The mode of `path` itself; 0 when there is nothing. Kept, because one reply asks for few paths many times."""
        if path not in self._modes:
            try:
                self._modes[path] = os.lstat(self._root / path).st_mode
            except OSError:
                self._modes[path] = 0
        return self._modes[path]

    def _parents(self, path: str) -> Iterator[str]:
        parts = path.split("/")
        return ("/".join(parts[:n]) for n in range(1, len(parts)))

    def is_file(self, path: str) -> bool:
        return all(stat.S_ISDIR(self._mode(parent)) for parent in self._parents(path)) and stat.S_ISREG(self._mode(path))

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def demand_usable(self, path: str) -> None:
        for parent in self._parents(path):
            self._demand_no_link(parent)
            if self._mode(parent) and not stat.S_ISDIR(self._mode(parent)):
                raise Refused("path", f"`{parent}` is a file, not a folder.")
        self._demand_no_link(path)
        if self._mode(path) and not stat.S_ISREG(self._mode(path)):
            raise Refused("path", "this is a folder or a special file.")

    def _demand_no_link(self, path: str) -> None:
        if not stat.S_ISLNK(self._mode(path)):
            return
        try:
            target = (self._root / path).resolve()
        except (OSError, RuntimeError):  # a loop of links
            target = self._root.parent
        if not target.is_relative_to(self._root):
            raise Refused("outside", f"`{path}` is a symbolic link that leads out of the project.")
        raise Refused("path", f"`{path}` is a symbolic link: use `{target.relative_to(self._root).as_posix()}` instead.")

    def names(self, folder: str) -> Collection[str]:
        try:
            return [entry.name for entry in (self._root / folder).iterdir()]
        except OSError:
            return ()

    def some(self) -> Iterator[tuple[str, bytes]]:
        left = _MOST_HINT_BYTES
        for count, (path, place) in enumerate(walk(self._root)):
            size = place.stat().st_size
            if count >= _MOST_HINT_FILES or size > left:
                return
            if size <= _LARGEST_HINT_FILE:
                left -= size
                yield path, place.read_bytes()
