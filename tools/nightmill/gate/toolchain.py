"""Tools of a language: where one is on this machine, which version it is, and how it gets into the sandbox."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_ASK_S = 30.0
_SYSTEM = Path("/usr")
"""What every sandbox has."""


@dataclass(frozen=True)
class Tool:
    """A program that is one file, apart from the system's own libraries."""

    name: str
    path: Path
    """Absolute and free of links and shims."""
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.path})"

    @property
    def inside(self) -> str:
        """Its path in the sandbox."""
        return str(self.path) if self.path.is_relative_to(_SYSTEM) else f"/nightmill/bin/{self.name}"

    @property
    def bind(self) -> Mapping[str, Path]:
        """What a run must bind for it: path inside → file of the host."""
        return {} if self.path.is_relative_to(_SYSTEM) else {self.inside: self.path}


def find(name: str, homes: Sequence[str], ask: Sequence[str]) -> Tool | None:
    """The tool of the search path, else the newest below the `homes` (patterns, `~` allowed); None when there is none that works.

    `ask`: arguments with which it prints its own path and, on the next line, its version; so a version manager's shim is seen through.
    """
    return _find(name, tuple(homes), tuple(ask), os.environ.get("PATH", os.defpath), str(Path.home()))


@lru_cache
def _find(name: str, homes: tuple[str, ...], ask: tuple[str, ...], path: str, home: str) -> Tool | None:
    on_path = shutil.which(name, path=path)
    if on_path and (tool := _asked(name, Path(on_path), ask)):
        return tool
    places = [place for pattern in homes for place in _expanded(pattern, home) if os.access(place / name, os.X_OK)]
    tools = [tool for place in places if (tool := _asked(name, place / name, ask))]
    return max(tools, key=lambda tool: [int(part) for part in re.findall(r"\d+", tool.version)], default=None)


def _expanded(pattern: str, home: str) -> list[Path]:
    whole = Path(pattern.replace("~", home, 1) if pattern.startswith("~") else pattern)
    return sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor))))


def _asked(name: str, path: Path, ask: Sequence[str]) -> Tool | None:
    try:
        asked = subprocess.run(
            [path, *ask], stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", timeout=_ASK_S, check=True, cwd="/"
        )
        real, version = asked.stdout.split("\n")[:2]
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Tool(name, Path(real).resolve(), version.strip())
