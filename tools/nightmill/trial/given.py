"""A task as a person keeps it: instructions, files to write, and tests; laid out with a `tests/` folder, or as Exercism does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nightmill.errors import ConfigError, UsageError, machine_trouble
from nightmill.gate.languages import detect
from nightmill.gate.languages.base import LanguagePack
from nightmill.run.trees import Tree, read_tree

TESTS = "tests/"
INSTRUCTIONS = ("instructions.md", ".docs/introduction.md", ".docs/instructions.md", ".docs/instructions.append.md")
"""In the order in which they are read."""
PROSE = (".md", ".rst")
LAYOUT = "instructions.md (or .docs/instructions.md), the files to write, and tests in tests/ or in files named as tests"


@dataclass(frozen=True)
class Given:
    """`stubs`: the files to write and what lies beside them; `tests`: paths below the folder of the locked tests.

    What tests import and holds none itself is in both: a test finds it at the top of the tree only. It is locked all the same.
    """

    stubs: Tree
    tests: Tree


@dataclass(frozen=True)
class Task:
    """`files`: stubs and tests as they lie in `folder`, without instructions, other prose and hidden folders (solutions lie there)."""

    name: str
    folder: Path
    instructions: str
    files: Tree
    given: Given
    language: str


def given(files: Tree, pack: LanguagePack) -> Given:
    """Takes a task's files apart. Raises ConfigError when one half is missing."""
    folder = {path.removeprefix(TESTS): data for path, data in files.items() if path.startswith(TESTS)}
    stubs = {path: data for path, data in files.items() if not path.startswith(TESTS)}
    named = {} if folder else {path: data for path, data in stubs.items() if pack.is_test_file(path)}
    tests, stubs = folder or named, {path: data for path, data in stubs.items() if path not in named}
    if not any(pack.is_test_file(path) for path in tests):
        raise ConfigError(f"the task has no test file of {pack.name}: put them into {TESTS}")
    if not any(path.endswith(tuple(pack.suffixes)) for path in stubs):
        raise ConfigError(f"the task has no {pack.name} file to write: put a stub beside {TESTS}")
    helpers = {path: data for path, data in tests.items() if path.endswith(tuple(pack.suffixes)) and not pack.forbidden(path)}
    helpers = {path: data for path, data in helpers.items() if not pack.tests_in(path, data.decode("utf-8", "replace"))}
    return Given({**helpers, **stubs}, tests)


def read_task(folder: Path) -> Task:
    """Raises UsageError, naming what is missing, for a directory that is no task."""
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(f"--task {folder}: there is no such directory")
    with machine_trouble():
        texts = [(folder / name).read_text("utf-8", "replace").strip() for name in INSTRUCTIONS if (folder / name).is_file()]
        files = {path: data for path, data in read_tree(folder).items() if not _aside(path)}
    if not "".join(texts):
        raise UsageError(f"{folder} holds no instructions; a task is {LAYOUT}")
    packs = detect(files, Path(sys.executable))
    if not packs:
        raise UsageError(f"{folder} holds no file in a language that nightmill can gate; a task is {LAYOUT}")
    try:
        return Task(folder.name, folder, "\n\n".join(texts) + "\n", files, given(files, packs[0]), packs[0].name)
    except ConfigError as error:
        raise UsageError(f"{folder}: {error}") from error


def tasks_in(folder: Path) -> Iterator[Task]:
    """`folder` itself when it is a task, else each directory in it that is one, by name."""
    if not folder.expanduser().is_dir():
        raise UsageError(f"{folder}: there is no such directory")
    try:
        yield read_task(folder)
        return
    except UsageError:
        pass
    for path in sorted(p for p in folder.expanduser().iterdir() if p.is_dir() and not p.name.startswith(".")):
        try:
            yield read_task(path)
        except UsageError:
            continue


def _aside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return any(part.startswith(".") for part in parts) or (len(parts) == 1 and path.endswith(PROSE))
