"""Bringing a wave's milestones together: edits that do not touch each other are taken, all else is a conflict. Nothing is last-wins."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nightmill.errors import MachineError
from nightmill.run.trees import Tree


@dataclass(frozen=True)
class Conflict:
    """One file that two or more milestones changed in ways that cannot both stand. None as a text means: no such file."""

    path: str
    base: bytes | None
    sides: Mapping[str, bytes | None]

    @property
    def reason(self) -> str:
        return f"{self.path}: changed by {' and '.join(self.sides)} in ways that exclude each other"


@dataclass(frozen=True)
class Merged:
    tree: dict[str, bytes]
    conflicts: tuple[Conflict, ...]


def merge(base: Tree, sides: Mapping[str, Tree]) -> Merged:
    """Three-way merge of any number of trees over their common base; the result does not depend on the order of `sides`."""
    tree: dict[str, bytes] = {}
    conflicts = []
    for path in sorted({*base, *(p for side in sides.values() for p in side)}):
        changed = {name: sides[name].get(path) for name in sorted(sides) if sides[name].get(path) != base.get(path)}
        versions = set(changed.values())
        if len(versions) > 1:
            text = _merge_texts(base.get(path), [changed[name] for name in sorted(changed)])
            if text is None:
                conflicts.append(Conflict(path, base.get(path), changed))
                continue
        else:
            text = versions.pop() if versions else base.get(path)
        if text is not None:
            tree[path] = text
    return Merged(tree, tuple(conflicts))


def _merge_texts(base: bytes | None, versions: list[bytes | None]) -> bytes | None:
    """All versions over the base in any order with one result; None when they overlap or the order matters."""
    if base is None or any(v is None or b"\0" in v for v in (base, *versions)):
        return None
    known = [v for v in dict.fromkeys(versions) if v is not None]
    results = {_fold(base, order) for order in (known, known[::-1])}
    return results.pop() if len(results) == 1 else None


def _fold(base: bytes, versions: list[bytes]) -> bytes | None:
    merged: bytes | None = versions[0]
    for version in versions[1:]:
        merged = three_way(merged, base, version) if merged is not None else None
    return merged


def three_way(mine: bytes, base: bytes, theirs: bytes) -> bytes | None:
    """Both changes to one text, or None when they overlap."""
    text, conflicts = three_way_marked(mine, base, theirs)
    return None if conflicts else text


def three_way_marked(
    mine: bytes, base: bytes, theirs: bytes, labels: tuple[str, str, str] = ("mine", "base", "theirs")
) -> tuple[bytes, int]:
    """`git merge-file`: the merged text, with conflict markers where both changed the same lines, and how many conflicts."""
    with tempfile.TemporaryDirectory(prefix="nightmill-merge-") as folder:
        paths = [Path(folder, name) for name in ("mine", "base", "theirs")]
        for path, data in zip(paths, (mine, base, theirs), strict=True):
            path.write_bytes(data)
        names = [part for label in labels for part in ("-L", label)]
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "LC_ALL": "C.UTF-8",
        }
        try:
            done = subprocess.run(
                ["git", "merge-file", "-p", *names, *map(str, paths)], cwd=folder, env=env, capture_output=True, check=False
            )
        except FileNotFoundError:
            raise MachineError("git is not installed (it merges texts): apt-get install git") from None
    if done.returncode < 0 or done.returncode > 127:
        raise MachineError(f"git merge-file failed: {done.stderr.decode(errors='replace').strip()[:200]}")
    return done.stdout, done.returncode


def duplicates(names: Mapping[str, list[str]]) -> list[str]:
    """`file: name` for every top-level name that a file declares twice."""
    return [f"{file}: {name}" for file, found in sorted(names.items()) for name in sorted({n for n in found if found.count(n) > 1})]
