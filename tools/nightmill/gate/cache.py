"""A tree that was gated before is not gated again: records by content of tree, tests, toolchain, limits and manner of the run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from nightmill import __version__
from nightmill.gate.manner import PLAIN, SURROUNDINGS, Manner
from nightmill.gate.quality import QualityGate
from nightmill.gate.records import GateRecord, StepRecord
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

    def beside(self, gate: QualityGate) -> GateCache:
        """The same memory for the same language under other limits."""
        return GateCache(gate, self.folder, self.interpreter)

    def run(self, tree: Tree, acceptance: Tree | None = None, manner: Manner = PLAIN, *, fresh: bool = False) -> GateRecord:
        path = self.folder / f"{self._key(tree, acceptance or {}, manner)}.json"
        remembered = None if fresh else _read(path, GateRecord)
        if remembered:
            return remembered
        record = self.gate.run(tree, acceptance, manner)
        if record.verdict in ("green", "red") and _ended(record.steps):
            write_atomic(path, record.model_dump_json().encode())
        return record

    def test(self, tree: Tree, acceptance: Tree, manner: Manner = PLAIN) -> StepRecord:
        """The test step alone; see `QualityGate.test`."""
        path = self.folder / f"{self._key(tree, acceptance, manner)}.test.json"
        if remembered := _read(path, StepRecord):
            return remembered
        step = self.gate.test(tree, acceptance, manner)
        if step.status in ("passed", "failed") and step.tests and _ended([step]):
            write_atomic(path, step.model_dump_json().encode())
        return step

    def _key(self, tree: Tree, acceptance: Tree, manner: Manner) -> str:
        gate = self.gate
        parts = [
            __version__,
            tree_hash(tree),
            tree_hash(acceptance),
            gate.pack.name,
            gate.pack.toolchain,
            self._toolchain,
            gate.sandbox.protections,
            repr(gate.limits),
            repr(manner),
            SURROUNDINGS,
        ]
        return sha(json.dumps(parts))

    @cached_property
    def _toolchain(self) -> str:
        """The interpreter with its version and the names of all packages it can see: installing one makes every record void."""
        asked = [str(self.interpreter), "-P", "-c", _INSTALLED]
        done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return sha(f"{self.interpreter}\0{done.stdout}\0{done.returncode}\0{sys.platform}")


def _ended(steps: Sequence[StepRecord]) -> bool:
    """Whether no limit and no signal had a part in it: on a busy machine the same tree may do better the next time."""
    every = [s for step in steps for s in (step, step.again) if s]
    return not any(s.killed or s.signal is not None for s in every) and all(t.exception != "TimedOut" for s in every for t in s.tests)


_Kind = TypeVar("_Kind", bound=BaseModel)


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
