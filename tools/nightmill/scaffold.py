"""A new run directory: mission.md to fill in, a commented run.yaml, doit.cfg."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from nightmill.calls.prompts import render_text
from nightmill.errors import UsageError
from nightmill.paths import CONFIG_FILE, MISSION_FILE, RUN_FILE
from nightmill.run.atomic import write_atomic

DEFAULT_URL = "http://127.0.0.1:8080/v1"
"""llama-server's default address."""


@dataclass(frozen=True)
class Answering:
    """Who answers in a new run: a URL and a model id, or a folder of scripted replies."""

    url: str = DEFAULT_URL
    model: str = "default"
    replies: str = ""
    context: int | None = None


def command(name: str) -> str:
    """How a person can call one of our commands from where they are: its name if that is on PATH, else its path."""
    return name if shutil.which(name) else shlex.quote(str(Path(sys.executable).with_name(name)))


def run_path(name: str, base: Path) -> Path:
    """`runs/NAME` below `base`, or the path itself when the name is one. Raises UsageError for a name that is none."""
    if not name.strip() or not name.isprintable():
        raise UsageError(f"{name!r} is no name for a run: choose another one")
    return (base / name if "/" in name or name in (".", "..") else base / "runs" / name).resolve()


def new_run(root: Path, source: str, answering: Answering, *, mission: str = "") -> None:
    """Writes the files of a new run; a mission.md that is there already is kept.

    Raises UsageError when there is a run, or a doit project, already, or the directory cannot be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{root} cannot be made: {error.strerror}: choose another name") from error
    for name in (RUN_FILE, CONFIG_FILE):
        if (root / name).exists():
            raise UsageError(f"{root} holds a {name} already: choose another name, or remove it")
    variables = {
        "name": root.name,
        "source": json.dumps(source, ensure_ascii=False),
        "url": json.dumps(answering.url),
        "provider": "scripted" if answering.replies else "local",
        "model": json.dumps(answering.model),
        "replies": json.dumps(answering.replies) if answering.replies else "",
        "context": answering.context or "",
    }
    write_atomic(root / CONFIG_FILE, render_text("new_doit.cfg.j2", variables).encode())
    if not (root / MISSION_FILE).exists():
        write_atomic(root / MISSION_FILE, (mission or render_text("new_mission.md.j2", variables)).encode())
    write_atomic(root / RUN_FILE, render_text("new_run.yaml.j2", variables).encode())


def source_for(root: Path, source: Path) -> str:
    """How run.yaml names the source: relative when it lies inside the run, else absolute, so that the run can be moved alone.

    Raises UsageError when there is no such directory.
    """
    path = source.expanduser().resolve()
    if not path.is_dir():
        raise UsageError(
            f"--source {source}: {'is not a directory' if path.exists() else 'does not exist'}: give the directory of the old program"
        )
    return os.path.relpath(path, root) if path.is_relative_to(root) else str(path)
