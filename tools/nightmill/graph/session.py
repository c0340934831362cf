"""One process at work in one run directory: what the stages share."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from nightmill.errors import ConfigError, Stopped, machine_trouble
from nightmill.paths import expand, find_run, working_directory
from nightmill.run.evidence import evidence_hash
from nightmill.run.rundir import RunDir
from nightmill.run.trees import sha, tree_hash

if TYPE_CHECKING:
    from nightmill.calls.backends import Backends
    from nightmill.calls.budget import Budget
    from nightmill.calls.router import Router
    from nightmill.calls.speeds import Speeds
    from nightmill.console import Console
    from nightmill.gate.cache import GateCache
    from nightmill.gate.languages.base import LanguagePack
    from nightmill.gate.quality import QualityGate
    from nightmill.gate.sandbox import Sandbox
    from nightmill.graph.stage import Stage
    from nightmill.run.events import Event
    from nightmill.run.snapshot import Snapshot


@dataclass
class Session:
    """Shared by all stages of one `doit`; safe between threads. Expensive parts are made when first needed."""

    run: RunDir
    talkative: bool = False
    """Speak even when nobody seems to watch: `nightmill demo` in a pipe."""
    watch: Callable[[Event], None] | None = None
    """Told of every event in place of the console: `nightmill try` speaks for itself."""
    console: Console | None = None
    locked: bool = False
    """This process holds the run's lock, so that stages may run."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _once: threading.RLock = field(default_factory=threading.RLock)

    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Asks everything in flight to end at its next safe point."""
        self._stop.set()

    def check_stop(self) -> None:
        """Raises Stopped when a signal came."""
        if self.stopping():
            raise Stopped("stopped by a signal; run doit again to go on")

    def open_console(self) -> None:
        """From here on the person sees what happens. Without any terminal (cron) only a run that does not end well speaks."""
        from nightmill.console import Console

        if self.watch:
            self.run.events.subscribe(self.watch)
            return
        attended = any(s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr))
        self.console = Console(sys.stdout, quiet=not (attended or self.talkative))
        self.run.events.subscribe(self.console.on_event)

    def show(self, stages: Sequence[Stage]) -> None:
        """Tells the console which stages there are now."""
        from nightmill.graph.reading import stage_lines

        if self.console:
            self.console.plan(stage_lines(self, stages))

    def close(self) -> None:
        if self.console:
            self.console.close()
        if "backends" in self.__dict__:
            self.backends.close()

    @cached_property
    def source_root(self) -> Path:
        return expand(self.run.config.source, self.run.root)

    def source_hash(self) -> str:
        """Hash of the source tree as it stands; of the snapshot when the tree is not there any more (a copied run)."""
        return tree_hash(self.source_files)

    @property
    def source_files(self) -> Mapping[str, str]:
        """Relative path → hash of the text, secrets redacted."""
        return self._snapshot.files

    @property
    def source_skipped(self) -> Mapping[str, list[str]]:
        """Reason → paths that are not taken as source."""
        return self._snapshot.skipped

    @property
    def source_redacted(self) -> Mapping[str, int]:
        """Relative path → how many secrets were replaced in it."""
        return self._snapshot.redacted

    def read_source(self, rel: str) -> bytes:
        """A file of the source tree as it stands, secrets redacted. Raises FileNotFoundError."""
        return self.run.redactor.file((self.source_root / rel).read_bytes())

    @cached_property
    def _snapshot(self) -> Snapshot:
        """Raises ConfigError when there is neither a usable source nor a complete snapshot of it."""
        from nightmill.run.snapshot import Snapshot, scan

        if not self.source_root.exists() and (locked := self.locked_source):
            return Snapshot(self.source_root, locked)
        return scan(self.source_root, run=self.run.root, redactor=self.run.redactor)

    @property
    def locked_source(self) -> dict[str, str]:
        """Path → hash as `source.lock` lists them; empty when there is none or its objects are gone."""
        try:
            text = (self.run.root / "source.lock").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return {}
        files = {}
        for line in text.splitlines():
            digest, _, rel = line.partition("  ")
            if rel and digest not in self.run.objects:
                return {}
            if rel:
                files[rel] = digest
        return files

    def evidence_hash(self, states: Mapping[str, str]) -> str:
        """What reports are made from: the events that still count, and which stages are up to date."""
        return sha(evidence_hash(self.run.events) + repr(sorted(states.items())))

    @cached_property
    def backends(self) -> Backends:
        from nightmill.calls.backends import Backends

        return Backends(self.run)

    @cached_property
    def budget(self) -> Budget:
        from nightmill.calls.budget import Budget

        return Budget(self.run.config.budgets, self.run.events)

    @cached_property
    def router(self) -> Router:
        """Which of a role's models answers next."""
        from nightmill.calls.health import Health
        from nightmill.calls.router import Router

        health = Health(self.run.events)
        self.run.events.subscribe(health.add)
        return Router(health)

    @cached_property
    def speeds(self) -> Speeds:
        """How fast each model was seen to read and write."""
        from nightmill.calls.speed_memory import recall
        from nightmill.calls.speeds import Speeds

        speeds = Speeds(self.run.events, recall(self.run.config))
        self.run.events.subscribe(speeds.add)
        return speeds

    @cached_property
    def sandbox(self) -> Sandbox:
        """Raises SandboxMissing, with the fix, when model-written code cannot be isolated here."""
        from nightmill.gate.sandbox import find

        with self._once:
            return find(unsandboxed=self.run.config.gates.sandbox != "bubblewrap", python=self.python)

    @property
    def python(self) -> Path:
        configured = self.run.config.gates.python
        if configured is None:
            return Path(sys.executable)
        path = expand(configured, self.run.root)
        if not os.access(path, os.X_OK) or path.is_dir():
            raise ConfigError(f"gates.python: {path} is no program: set it to a Python interpreter, or remove the line")
        return path

    @cached_property
    def pack(self) -> LanguagePack:
        """Raises ConfigError when the source is in no language that has a pack."""
        from nightmill.gate.languages import detect, pack

        if self.run.config.language != "auto":
            return pack(self.run.config.language, self.python)
        found = detect(dict.fromkeys(self.source_files, b""), self.python)
        if not found:
            raise ConfigError(f"source: {self.source_root} is in no language that nightmill can gate: set `language:` in run.yaml")
        return found[0]

    @cached_property
    def gate_cache(self) -> GateCache:
        from nightmill.gate.cache import GateCache

        return GateCache(self.gate, self.run.state / "gates", self.python)

    @cached_property
    def gate(self) -> QualityGate:
        from nightmill.gate.quality import QualityGate
        from nightmill.gate.sandbox import Limits

        gates = self.run.config.gates
        limits = Limits(wall_s=gates.wall_s, memory_mb=gates.memory_mb, disk_mb=gates.disk_mb)
        return QualityGate(self.pack, self.sandbox, limits, self.stopping)


_current: Session | None = None


def set_current(session: Session | None) -> None:
    global _current
    _current = session


def current() -> Session:
    """The session whose tasks are being made: dodo.py asks for it.

    Raises doit's InvalidDodoFile where dodo.py is loaded by doit itself, outside of a run.
    """
    if _current is None:
        from doit.exceptions import InvalidDodoFile

        raise InvalidDodoFile("this is where the pipeline is written, not a run: go to a run directory (runs/NAME) and type doit there")
    return _current


def open_here(talkative: bool = False, watch: Callable[[Event], None] | None = None) -> Session:
    """Opens the run around the working directory, makes its top the working directory, and makes it current.

    Raises UsageError when there is none, ConfigError for a broken run.yaml, MachineError.
    """
    session = Session(RunDir(find_run(working_directory())), talkative, watch)
    with machine_trouble():
        os.chdir(session.run.root)
    session.run.require_kinds()
    session.run.config  # noqa: B018 - a broken run.yaml is reported before anything else happens
    set_current(session)
    return session
