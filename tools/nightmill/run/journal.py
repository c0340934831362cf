"""Which text nightmill itself put where (`.nightmill/journal.jsonl`): what tells a hand edit from our own writing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from nightmill.redact import SHAPES_ONLY, Redactor
from nightmill.run.atomic import append_line

Act = Literal["made", "removed", "rescued", "proposed", "set_aside"]


@dataclass(frozen=True)
class Entry:
    """`path` is relative to the run directory; `sha` is the hash of the text, kept under `objects/` ("" for a removal)."""

    act: Act
    stage: str
    path: str
    sha: str
    at: float


_ADAPTER = TypeAdapter(Entry)


class Journal:
    """Append-only and fsynced. Positions count readable lines from 0. Safe between threads."""

    def __init__(self, path: Path, redactor: Redactor = SHAPES_ONLY) -> None:
        self.path = path
        self._redactor = redactor
        self._lock = threading.RLock()
        self._entries: list[Entry] | None = None

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())

    def since(self, position: int) -> list[Entry]:
        return self._load()[position:]

    def append(self, acts: Iterable[tuple[Act, str, str, str]]) -> None:
        """Records (act, stage, path, sha) lines in one durable write; a secret in a name is redacted, as Ledger.publish does."""
        now = time.time()
        entries = [Entry(act, self._redactor(stage), self._redactor(path), sha, now) for act, stage, path, sha in acts]
        if not entries:
            return
        data = "".join(json.dumps(asdict(e), ensure_ascii=False) + "\n" for e in entries).encode()
        with self._lock:
            loaded = self._load()
            append_line(self.path, data, sync=True)
            loaded.extend(entries)

    def _load(self) -> list[Entry]:
        with self._lock:
            if self._entries is None:
                self._entries = list(_read(self.path))
            return self._entries


def _read(path: Path) -> Iterator[Entry]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n"):
        try:
            yield _ADAPTER.validate_json(line)
        except ValidationError:
            continue
