"""What a try is given beside its task: who answers, how, how often. Written as the run.yaml of its run directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightmill.build.strategies import chosen
from nightmill.config import RunConfig, parse, read_yaml
from nightmill.errors import UsageError
from nightmill.graph.preflight import written
from nightmill.paths import MISSION_FILE, RUN_FILE
from nightmill.run.atomic import write_atomic
from nightmill.run.trees import read_tree
from nightmill.trial.given import Task

TRIES = 4
FOLDER = "task"
"""Where the task lies in its run directory."""
_PATHS = {"replies", "api_key_file"}


@dataclass(frozen=True)
class Setting:
    """A run.yaml for tries, checked."""

    raw: Mapping[str, Any]
    config: RunConfig

    @property
    def strategy(self) -> str:
        """By its name, never `auto`."""
        return chosen(self.config)

    @property
    def tries(self) -> int:
        return self.config.build.max_iterations

    @property
    def model(self) -> str:
        """The first of the implementer's."""
        return self.config.candidates("implementer")[0].model


def from_file(path: Path) -> dict[str, Any]:
    """A person's run.yaml; what it names relative to itself is made absolute. Raises ConfigError."""
    raw = {key: value for key, value in read_yaml(path, such_as="models: …").items() if value is not None}
    base = path.expanduser().resolve().parent
    providers = raw.get("providers")
    if isinstance(providers, Mapping):
        raw["providers"] = {name: _absolute(entry, base) for name, entry in providers.items()}
    if isinstance(gates := raw.get("gates"), Mapping) and isinstance(python := gates.get("python"), str):
        raw["gates"] = {**gates, "python": _beside(python, base)}
    return raw


def _absolute(entry: Any, base: Path) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    return {key: _beside(value, base) if key in _PATHS and isinstance(value, str) else value for key, value in entry.items()}


def _beside(path: str, base: Path) -> str:
    return path if path.startswith("~") else str(base / path)


def answered_by(url: str, model: str, context: int | None) -> dict[str, Any]:
    """One server, one model."""
    entry = {"provider": "local", "model": model} | ({"context": context} if context else {})
    return {"providers": {"local": {"url": url}}, "models": {"default": entry}}


def setting(raw: Mapping[str, Any], strategy: str | None, tries: int | None) -> Setting:
    """`raw` as the configuration of a try: no reviewers, no more than `tries` attempts. Raises ConfigError."""
    build = raw.get("build")
    whole = {
        **{key: value for key, value in raw.items() if key not in ("tests", "language")},
        "pipeline": "task",
        "source": FOLDER,
        "build": {"max_iterations": TRIES, "review": "last", **(build if isinstance(build, Mapping) else {})},
    }
    whole["build"] |= ({"strategy": strategy} if strategy else {}) | ({"max_iterations": tries} if tries else {})
    return Setting(whole, parse(whole))


def lay(root: Path, task: Task, given: Setting) -> None:
    """Makes `root` the run directory of a try, or goes on with one that was begun there. run.yaml is written last: it marks a whole one.

    Raises UsageError when something else lies there, MachineError.
    """
    files = dict(task.files)
    mission = task.instructions if written(task.instructions) else f"{task.instructions}\nMake the tests pass.\n"
    if (root / RUN_FILE).exists():
        there = (root / MISSION_FILE).read_bytes() if (root / MISSION_FILE).is_file() else b""
        if read_tree(root / FOLDER) != files or there != mission.encode():
            raise UsageError(f"{root} holds another run, or the task was changed since: choose another directory for --keep")
    elif root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file: choose a directory for --keep")
    else:
        for path, data in files.items():
            write_atomic(root / FOLDER / path, data)
        write_atomic(root / MISSION_FILE, mission.encode())
    write_atomic(root / RUN_FILE, (json.dumps(given.raw, indent=1, ensure_ascii=False) + "\n").encode())
