"""Shared by all tests: the pipeline as an installed nightmill would load it, and small run directories."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nightmill import demo
from nightmill.paths import load_dodo
from runs import run

load_dodo()


@pytest.fixture
def demo_run(tmp_path: Path) -> Path:
    """The bundled example laid out as `nightmill demo` does, not run yet."""
    return demo.prepare(tmp_path, None)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished demo; tests copy it."""
    root = demo.prepare(tmp_path_factory.mktemp("demo"), None)
    done = run(root)
    assert done.code == 0, done.out + done.err
    return root


@pytest.fixture
def finished_run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it in another place: nothing in a run may depend on where it lies."""
    return Path(shutil.copytree(finished, tmp_path / "copy", symlinks=True))
