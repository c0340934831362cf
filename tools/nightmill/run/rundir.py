"""One run directory and its memory, opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nightmill.config import OpenAIProvider, RunConfig, api_key, load
from nightmill.errors import ConfigError, MachineError
from nightmill.paths import RUN_FILE, STATE
from nightmill.redact import Redactor, from_environment, known
from nightmill.run.events import EventLog
from nightmill.run.journal import Journal
from nightmill.run.ledger import Ledger, Objects
from nightmill.run.record import Stamps, file_name


@dataclass(frozen=True)
class RunDir:
    """`root` is absolute; everything stored below it names relative paths only, so that the directory can be copied and moved."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / STATE

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    @property
    def database(self) -> Path:
        return self.state / "doit.db"

    @property
    def calls(self) -> Path:
        return self.state / "calls"

    def require_kinds(self) -> None:
        """Raises MachineError when something of another kind stands where the run keeps its memory."""
        folders = (self.state, self.calls, *(self.state / name for name in ("objects", "stamps", "takes")))
        files = (self.lock, self.database, *(self.state / name for name in ("journal.jsonl", "events.jsonl")))
        for path, is_kind, kind in [*((p, p.is_dir(), "directory") for p in folders), *((p, p.is_file(), "file") for p in files)]:
            if not is_kind and os.path.lexists(path):
                raise MachineError(f"{path} should be a {kind}: move away what is there")

    @cached_property
    def config(self) -> RunConfig:
        """Raises ConfigError."""
        return load(self.root / RUN_FILE)

    @cached_property
    def redactor(self) -> Redactor:
        """Knows what the environment of this process holds in secrets, and the keys of the run's providers."""
        return Redactor(from_environment(os.environ) | frozenset(known(self._keys())))

    def _keys(self) -> Iterator[str | None]:
        """What cannot be read here is told by whoever needs it."""
        with suppress(ConfigError):
            for provider in self.config.providers.values():
                with suppress(ConfigError):
                    yield api_key(provider, self.root) if isinstance(provider, OpenAIProvider) else None

    @cached_property
    def objects(self) -> Objects:
        return Objects(self.state / "objects")

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.state / "journal.jsonl", self.redactor)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.root, self.journal, self.objects, self.redactor)

    @cached_property
    def stamps(self) -> Stamps:
        return Stamps(self.state / "stamps")

    @cached_property
    def events(self) -> EventLog:
        return EventLog(self.state / "events.jsonl", self.redactor)

    def take(self, stage: str) -> int:
        """How often the person asked for `redo` of this stage."""
        try:
            return int((self.state / "takes" / file_name(stage)).read_text())
        except (FileNotFoundError, ValueError):
            return 0
