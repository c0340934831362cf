"""Every finished call as one file, named by the hash of what was asked: asking again replays it."""

from __future__ import annotations

import codecs
import json
import os
import time
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from nightmill.errors import MachineError, machine_trouble
from nightmill.providers.base import Reply, Request
from nightmill.run.atomic import write_atomic

SYNC_S = 1.0
"""How much of a streaming reply a power cut may cost, in seconds. A killed process loses nothing of it: each piece is written at once."""


@dataclass(frozen=True)
class _Record:
    request: Request
    reply: Reply
    at: float


_ADAPTER = TypeAdapter(_Record)


class CallStore:
    """`calls/KEY.json` per finished call; `calls/KEY.partial` while its reply streams, and after it was interrupted.

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

    def put(self, request: Request, reply: Reply) -> None:
        record = _Record(request, reply, time.time())
        write_atomic(self._finished(request.key), json.dumps(asdict(record), ensure_ascii=False, indent=1).encode(), 0o600)
        self.drop_partial(request)

    def discard(self, request: Request) -> None:
        """Forgets a finished call, so that it is asked anew."""
        self._finished(request.key).unlink(missing_ok=True)

    def partial(self, request: Request) -> str:
        """What an interrupted call had written of its answer; "" when there is nothing. Half a character at the end is left out.

        Nothing is read behind a link: it would be sent to the provider, and written to.
        """
        path = self._partial(request)
        if path.is_symlink() or not path.is_file():
            return ""
        try:
            return codecs.getincrementaldecoder("utf-8")().decode(path.read_bytes())
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    def open_partial(self, request: Request, resume: str = "") -> Partial:
        """For the text behind `resume`, which the file holds already. What an earlier call left stays until the first piece comes."""
        return Partial(self._partial(request), len(resume.encode()))

    def drop_partial(self, request: Request) -> None:
        self._partial(request).unlink(missing_ok=True)

    def _record(self, key: str) -> _Record | None:
        try:
            return _ADAPTER.validate_json(self._finished(key).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _finished(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _partial(self, request: Request) -> Path:
        return self.folder / f"{request.key}.partial"


class Partial:
    """A reply on its way to disk; fsynced about once a second, so that a person can watch it and a crash loses little."""

    def __init__(self, path: Path, keep: int) -> None:
        """The first `keep` bytes of what lies there stay."""
        self._path = path
        self._keep = keep
        self._file: FileIO | None = None
        self._synced = time.monotonic()
        self._spoilt = False

    def add(self, text: str) -> None:
        if self._spoilt or not text:
            return
        with machine_trouble():
            if self._file is None:
                self._file = self._open()
            self._file.write(text.encode())
            if time.monotonic() - self._synced >= SYNC_S:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()

    def _open(self) -> FileIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.is_symlink():
            self._path.unlink()
        try:
            file = FileIO(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+")
        except IsADirectoryError:
            raise MachineError(f"{self._path} should be a file: move away what is there") from None
        file.truncate(self._keep)
        file.seek(self._keep)
        return file

    def spoil(self) -> None:
        """The answer cannot be continued from what is visible of it: nothing is kept."""
        if not self._spoilt:
            self._spoilt = True
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file:
            self._file.close()
