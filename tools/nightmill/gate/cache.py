"""A tree that was gated before is not gated again: records by content of tree, tests, toolchain and limits."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from nightmill import __version__
from nightmill.gate.quality import QualityGate
from nightmill.gate.records import GateRecord
from nightmill.run.atomic import write_atomic
from nightmill.run.trees import Tree, sha, tree_hash

_INSTALLED = (
    "import sys,os;print(sys.version);[print(p,*sorted(n for n in os.listdir(p) if 'info' in n)) for p in sys.path if os.path.isdir(p)]"
)


class GateCache:
    """`folder`/KEY.json for each complete verdict, green or red. What did not run to its end is never remembered.

    `fresh` runs the commands whatever is remembered: the verdict on the whole is never taken from here.
    """

    def __init__(self, gate: QualityGate, folder: Path, interpreter: Path) -> None:
        self.gate, self.folder, self.interpreter = gate, folder, interpreter

    def run(self, tree: Tree, acceptance: Tree | None = None, *, fresh: bool = False) -> GateRecord:
        path = self.folder / f"{self._key(tree, acceptance or {})}.json"
        remembered = None if fresh else _read(path)
        if remembered:
            return remembered
        record = self.gate.run(tree, acceptance)
        if record.verdict in ("green", "red") and _ended(record):
            write_atomic(path, record.model_dump_json().encode())
        return record

    def _key(self, tree: Tree, acceptance: Tree) -> str:
        gate = self.gate
        parts = [
            __version__,
            tree_hash(tree),
            tree_hash(acceptance),
            gate.pack.name,
            self._toolchain,
            gate.sandbox.protections,
            repr(gate.limits),
        ]
        return sha(json.dumps(parts))

    @cached_property
    def _toolchain(self) -> str:
        """The interpreter with its version and the names of all packages it can see: installing one makes every record void."""
        asked = [str(self.interpreter), "-P", "-c", _INSTALLED]
        done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return sha(f"{self.interpreter}\0{done.stdout}\0{done.returncode}\0{sys.platform}")


def _ended(record: GateRecord) -> bool:
    """Whether no limit and no signal had a part in it: on a busy machine the same tree may do better the next time."""
    return not any(s.killed or s.signal is not None for s in record.steps) and all(t.exception != "TimedOut" for t in record.tests)


def _read(path: Path) -> GateRecord | None:
    try:
        return GateRecord.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
