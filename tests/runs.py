"""Running the real command on real run directories, and reading what it did."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nightmill.run.events import Event, read_events

DOIT = [sys.executable, "-m", "doit"]
NIGHTMILL = [sys.executable, "-m", "nightmill"]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    events: tuple[Event, ...]
    """Those of this command alone."""

    @property
    def started(self) -> list[str]:
        return [e.stage for e in self.events if e.kind == "stage_started"]

    @property
    def made(self) -> list[str]:
        return [e.stage for e in self.events if e.kind == "stage_finished" and e.status == "made"]

    @property
    def asked(self) -> list[str]:
        """Labels of the calls that reached a provider."""
        return [e.label for e in self.events if e.kind == "call_finished" and not e.replayed]


def events_of(root: Path) -> list[Event]:
    return list(read_events(root / ".nightmill" / "events.jsonl"))


def run(root: Path, *arguments: str, command: Sequence[str] = DOIT, timeout: float = 120) -> Ran:
    """Runs `doit ARGUMENTS` (or another command) in a run directory, as cron would: no terminal, no input."""
    before = len(events_of(root))
    done = subprocess.run(
        [*command, *arguments],
        cwd=root,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, tuple(events_of(root)[before:]))


def environment() -> dict[str, str]:
    """As a person's: what was compiled once is not compiled again by each of hundreds of commands."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV", "PYTHONDONTWRITE"))}


def product(root: Path) -> dict[str, bytes]:
    """What a run made, without what tells the time: every artifact but report.html and summary.json."""
    skip = {"report.html", "summary.json"}
    files = [p for p in root.rglob("*") if p.is_file() and ".nightmill" not in p.relative_to(root).parts and p.name not in skip]
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(files)}
