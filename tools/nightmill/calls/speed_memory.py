"""Speeds of earlier runs on this machine, for the first forecast of a new one. A cache: whatever is wrong with it is passed over."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from nightmill.calls.speeds import Model, Speed
from nightmill.config import OpenAIProvider, RunConfig
from nightmill.errors import MachineError
from nightmill.run.atomic import write_atomic

MOST = 200
"""Models remembered; the ones measured longest ago go first."""


def state_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """`nightmill/speeds.json` in the person's state directory (XDG); None without a home."""
    base = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME", "")
    folder = Path(base) if base.startswith("/") else Path(home, ".local", "state") if home.startswith("/") else None
    return folder / "nightmill" / "speeds.json" if folder else None


def recall(config: RunConfig, path: Path | None = None) -> dict[Model, Speed]:
    """What is known of this run's models from earlier runs, by the address of their server."""
    known = _read(path or state_file())
    return {model: known[name] for model, name in _names(config).items() if name in known}


def remember(config: RunConfig, measured: Mapping[Model, Speed], path: Path | None = None) -> None:
    """Adds what this run measured. Servers only: a provider that reads files says nothing about speed."""
    path = path or state_file()
    names = _names(config)
    fresh = {names[model]: speed for model, speed in measured.items() if model in names}
    if path is None or not fresh:
        return
    known = {name: speed for name, speed in _read(path).items() if name not in fresh} | fresh
    last = dict(list(known.items())[-MOST:])
    text = json.dumps({name: {k: round(v, 3) for k, v in vars(speed).items() if v is not None} for name, speed in last.items()}, indent=1)
    try:
        write_atomic(path, text.encode(), 0o600)
    except (OSError, MachineError):
        return


def _names(config: RunConfig) -> dict[Model, str]:
    """Model of the run → `host:port model`, without what else an address may hold (a key)."""
    names = {}
    for model in (model for models in config.models.values() for model in models):
        provider = config.providers[model.provider]
        if isinstance(provider, OpenAIProvider):
            host = urlsplit(provider.url).netloc.rpartition("@")[2]
            names[model.provider, model.model] = f"{host} {model.model}"
    return names


def _read(path: Path | None) -> dict[str, Speed]:
    try:
        data = json.loads(path.read_bytes()) if path else {}
    except (OSError, ValueError, RecursionError):
        return {}
    entries = data.items() if isinstance(data, dict) else ()
    return {name: _speed(entry) for name, entry in entries if isinstance(entry, dict)}


def _speed(entry: Mapping[str, object]) -> Speed:
    good = {
        name: float(value)
        for name in Speed.__dataclass_fields__
        if isinstance(value := entry.get(name), int | float) and 0 < value < math.inf
    }
    return Speed(**good)
