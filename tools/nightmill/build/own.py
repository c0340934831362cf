"""The acceptance tests that the person brought along: taken as they are, proved like all others, never set aside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nightmill.errors import ConfigError, machine_trouble
from nightmill.paths import expand
from nightmill.run.trees import Tree, read_tree

if TYPE_CHECKING:
    from nightmill.run.rundir import RunDir

OWN = "own"
"""Folder inside the locked tests' own."""


def own_tests(run: RunDir) -> Tree:
    """Path below the folder of the locked tests → text; empty without `tests:` in run.yaml. Raises ConfigError when it names nothing."""
    if run.config.tests is None:
        return {}
    path = expand(run.config.tests, run.root)
    with machine_trouble():
        found = {path.name: path.read_bytes()} if path.is_file() else read_tree(path)
    if not found:
        raise ConfigError(f"run.yaml: tests: {path} holds no file: name a test file or a directory of tests, or remove the line")
    return {f"{OWN}/{rel}": data for rel, data in found.items()}


def is_own(test: str) -> bool:
    """Whether a test id, or a path from the tree's root, is one of them."""
    return test.split("/")[1:2] == [OWN]


def own(tests: Iterable[str]) -> tuple[str, ...]:
    return tuple(test for test in tests if is_own(test))
