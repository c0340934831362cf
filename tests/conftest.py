"""Shared by all tests: the pipeline as an installed nightmill would load it, and small run directories."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nightmill import demo
from nightmill.paths import load_dodo
from runs import run

load_dodo()

collect_ignore = ["fixtures"]
"""Miniature projects with tests of their own: data."""


@pytest.fixture(scope="session", autouse=True)
def _state_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What nightmill remembers between runs lands beside the tests, not with the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def demo_run(tmp_path: Path) -> Path:
    """The bundled example laid out as `nightmill demo` does, not run yet."""
    return quick(demo.prepare(tmp_path, None))


def quick(root: Path) -> Path:
    """With one mutant only: most of a suite's time would go into them."""
    path = root / "run.yaml"
    path.write_text(path.read_text().replace("mutants: 12", "mutants: 1"))
    return root


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished demo; tests copy it."""
    root = quick(demo.prepare(tmp_path_factory.mktemp("demo"), None))
    done = run(root)
    assert done.code == 0, done.out + done.err
    return root


@pytest.fixture
def finished_run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it in another place: nothing in a run may depend on where it lies."""
    return Path(shutil.copytree(finished, tmp_path / "copy", symlinks=True))
