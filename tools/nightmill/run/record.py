"""Stamps: what each stage's artifact was made from. The only truth about freshness; doit's database is a cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from nightmill.run.atomic import write_atomic


@dataclass(frozen=True)
class Stamp:
    """`facts`: name → value of everything the stage was made from. `product`: path → hash of what it made.

    `position` is the journal's length when the stamp was written; `by` says whose text the product is.
    """

    stage: str
    facts: Mapping[str, str]
    product: Mapping[str, str]
    position: int
    by: str = "stage"


_ADAPTER = TypeAdapter(Stamp)


def file_name(stage: str) -> str:
    """A stage's name as a file name: `implement:rounding` → `implement-rounding`."""
    return stage.replace(":", "-").replace("/", "-")


class Stamps:
    """One small JSON file per stage, written atomically after the artifact."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, stage: str) -> Path:
        return self.folder / f"{file_name(stage)}.json"

    def get(self, stage: str) -> Stamp | None:
        """None when there is none or it cannot be read: the stage then runs again, from its journalled calls."""
        try:
            return _ADAPTER.validate_json(self._path(stage).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def put(self, stamp: Stamp) -> None:
        write_atomic(self._path(stamp.stage), json.dumps(asdict(stamp), indent=1, ensure_ascii=False, sort_keys=True).encode())

    def forget(self, stage: str) -> bool:
        path = self._path(stage)
        existed = path.exists()
        path.unlink(missing_ok=True)
        return existed


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """`name: old → new` for each fact that differs, hashes shortened; input facts first."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before != after:
            lines.append(f"{name}: {_short(before)} → {_short(after)}")
    return lines


def _short(value: str | None) -> str:
    if value is None:
        return "(absent)"
    return value[:10] if len(value) == 64 and value.isalnum() else value
