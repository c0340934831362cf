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


def hashes(root: Path) -> dict[str, str]:
    return {rel: sha(path.read_bytes()) for rel, path in walk(root)}


def tree_hash(tree: Tree | Mapping[str, str]) -> str:
    """One hash for a tree, given its contents or the hashes of its files."""
    lines = [f"{rel}\0{v if isinstance(v, str) else sha(v)}\n" for rel, v in sorted(tree.items())]
    return sha("".join(lines))
