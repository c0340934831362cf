"""Trees of files as values: posix relative path → bytes. Small enough for memory: one project's sources, never a disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

Tree = Mapping[str, bytes]

SKIP_DIRS = frozenset({"__pycache__", ".git", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules", ".venv", ".hypothesis"})
"""Left by tools, never part of an artifact."""


def sha(data: bytes | str) -> str:
    """SHA-256, hex."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def walk(root: Path) -> Iterator[tuple[str, Path]]:
    """(relative posix path, path) of every regular file below `root`, sorted; links are not followed, tools' leavings skipped."""
    for folder, dirs, files in os.walk(root, followlinks=False):
        dirs[:] = sorted(d for d in dirs if d not in SKIP_DIRS)
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file() or name.endswith((".pyc", ".tmp")):
                continue
            yield path.relative_to(root).as_posix(), path


def read_tree(root: Path) -> dict[str, bytes]:
    """The files below `root`; empty when there is no such directory."""
    return {rel: path.read_bytes() for rel, path in walk(root)}


_seen: dict[tuple[str, int, int, int, int], str] = {}


def file_hash(path: Path) -> str:
    """SHA-256 of a file, remembered in this process by its path, inode, size and time of change."""
    stat = path.stat()
    key = (str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    if key not in _seen:
        _seen[key] = sha(path.read_bytes())
    return _seen[key]


def hashes(root: Path) -> dict[str, str]:
    """Relative path → hash of the files below `root`; empty when there is no such directory."""
    return {rel: file_hash(path) for rel, path in walk(root)}


def tree_hash(tree: Tree | Mapping[str, str]) -> str:
    """One hash for a tree, given its contents or the hashes of its files."""
    return sha("".join(f"{rel}\0{_digest(tree[rel])}\n" for rel in sorted(tree)))


def _digest(value: bytes | str) -> str:
    return value if isinstance(value, str) else sha(value)
