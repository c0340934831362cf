"""What the gate tests share: gates over the real sandbox, with small limits, and trees written as text."""

from __future__ import annotations

import textwrap

from nightmill.gate.languages.python import PythonPack
from nightmill.gate.quality import QualityGate
from nightmill.gate.records import StepRecord, TestOutcome
from nightmill.gate.sandbox import Limits
from sandbox_help import sandbox

SMALL = Limits(wall_s=12, memory_mb=512, output_kb=256, disk_mb=64, file_mb=32, processes=64)


def gate(limits: Limits = SMALL, *, lint: bool = False) -> QualityGate:
    return QualityGate(PythonPack() if lint else PythonPack(ruff=None), sandbox(), limits)


def tree(**files: str) -> dict[str, bytes]:
    """`app="..."` → app.py, `acceptance__test_x="..."` → acceptance/test_x.py."""
    return {name.replace("__", "/") + ".py": textwrap.dedent(text).encode() for name, text in files.items()}


def by_name(step: StepRecord) -> dict[str, TestOutcome]:
    """Outcomes by the id's last part."""
    return {t.id.rsplit("::", 1)[-1].removeprefix("acceptance/"): t for t in step.tests}
