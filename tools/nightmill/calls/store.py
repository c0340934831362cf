"""Every finished call as one file, named by the hash of what was asked: asking again replays it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from nightmill.errors import machine_trouble
from nightmill.providers.base import Reply, Request
from nightmill.run.atomic import write_atomic

SYNC_S = 1.0
"""How much of a streaming reply a power cut may cost, in seconds."""


@dataclass(frozen=True)
class _Record:
    request: Request
    reply: Reply
    at: float


_ADAPTER = TypeAdapter(_Record)


class CallStore:
    """`calls/KEY.json` per finished call; `calls/KEY.partial` while its reply streams.

    `asked/TURN` beside it holds the KEY that a question led to: a finished call is found again without asking a server for its window.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = folder.with_name("asked")

    def get(self, request: Request) -> Reply | None:
        """None when it was never finished, or its file cannot be read: it is then asked again."""
        record = self._record(request.key)
        return record.reply if record else None

    def recall(self, turn: str) -> tuple[Request, Reply] | None:
        """The finished call that answered this question, if any."""
        try:
            key = (self.asked / turn).read_text(encoding="ascii")
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        record = self._record(key) if key.isalnum() else None
        return (record.request, record.reply) if record else None

    def remember(self, turn: str, request: Request) -> None:
        write_atomic(self.asked / turn, request.key.encode(), 0o600)

    def _record(self, key: str) -> _Record | None:
        try:
            return _ADAPTER.validate_json((self.folder / f"{key}.json").read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def put(self, request: Request, reply: Reply) -> None:
        record = _Record(request, reply, time.time())
        write_atomic(self.folder / f"{request.key}.json", json.dumps(asdict(record), ensure_ascii=False, indent=1).encode(), 0o600)
        self._partial(request).unlink(missing_ok=True)

    def _partial(self, request: Request) -> Path:
        return self.folder / f"{request.key}.partial"

    def open_partial(self, request: Request) -> Partial:
        with machine_trouble():
            self.folder.mkdir(parents=True, exist_ok=True)
            return Partial(self._partial(request))


class Partial:
    """A reply on its way to disk; fsynced about once a second, so that a person can watch it and a crash loses little."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._synced = time.monotonic()

    def add(self, text: str) -> None:
        with machine_trouble():
            self._file.write(text.encode())
            if time.monotonic() - self._synced >= SYNC_S:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()

    def close(self) -> None:
        self._file.close()
