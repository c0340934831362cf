"""Run directories of a few files, with stages of a few lines: for tests of the engine below the real pipeline."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nightmill.graph.session import Session
from nightmill.graph.stage import Body, Stage
from nightmill.run.rundir import RunDir

V1 = {"main.py": "def main(argv):\n    return len(argv)\n"}
HERE = Path(__file__)
MEMORY = Path("/dev/shm")


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory where there is one: hundreds of small runs would wait for fsync most of their time."""
    with tempfile.TemporaryDirectory(prefix="nightmill-test-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def small_run(root: Path, replies: Mapping[str, str] | None = None, *, source: Mapping[str, str] | None = None, **config: Any) -> Path:
    """A run directory with a mission, a source tree and scripted replies (`contract.1` → its text); `config` goes to run.yaml."""
    for rel, text in {"mission.md": "Keep everything.\n"}.items():
        root.mkdir(parents=True, exist_ok=True)
        (root / rel).write_text(text)
    for rel, text in (source or V1).items():
        path = root / "v1" / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "replies").mkdir()
    for name, text in (replies or {}).items():
        path = root / "replies" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    configure(root, **config)
    return root


def configure(root: Path, **config: Any) -> None:
    """Writes run.yaml (JSON is YAML)."""
    default = {"provider": "scripted", "model": "m", "temperature": 0.2, "max_tokens": 1000}
    base = {"source": "v1", "providers": {"scripted": {"kind": "scripted", "replies": "replies"}}, "models": {"default": default}}
    (root / "run.yaml").write_text(json.dumps({**base, **config}))


def opened(root: Path) -> Session:
    """A process of its own, as far as a run directory is concerned."""
    return Session(RunDir(root))


def make(name: str, body: Body, needs: tuple[str, ...] = (), makes: tuple[str, ...] = ("out.md",), **header: Any) -> Stage:
    return Stage(name, body, header.pop("file", HERE), needs, makes, **header)
