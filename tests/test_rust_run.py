"""A whole rewrite of a Rust program: scripted replies, the real pipeline, the real sandbox, real Cargo."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from runs import NIGHTMILL, Ran, events_of
from runs import run as run_command
from small_runs import configure
from test_packs import needed

LOANS = Path(__file__).parent / "fixtures" / "missions" / "rust-loans"
pytestmark = pytest.mark.slow


@pytest.fixture
def loans(tmp_path: Path) -> Path:
    needed("rust")
    root = Path(shutil.copytree(LOANS, tmp_path / "loans"))
    configure(root, build={"max_iterations": 3, "review": "last"})
    return root


def run(root: Path, *words: str) -> Ran:
    return run_command(root, "run", *words, command=NIGHTMILL, timeout=300)


def test_a_rust_program_is_rewritten_and_ends_green(loans: Path) -> None:
    done = run(loans)
    assert done.code == 0, done.out + done.err
    assert "Verdict: green" in (loans / "gate.md").read_text()
    attempts = [(e.stage, e.asked, e.outcome) for e in events_of(loans) if e.kind == "attempt_finished"]
    assert [a[1:] for a in attempts if a[0] == "implement:date"] == [("rewrite", "red"), ("rewrite", "red"), ("patch", "green")]
    baseline = json.loads((loans / "baseline.json").read_text())
    assert baseline["built"] and len(baseline["tests"]["passed"]) == 2, baseline
    proof = json.loads((loans / "proof.json").read_text())
    assert proof["unproven"] == {} and proof["v1_ran"] and proof["agree_with_v1"] == 10
    manifest = (loans / "v2/Cargo.toml").read_text()
    assert 'name = "loans"' in manifest and 'version = "2.3.0"' in manifest and "profile" not in manifest
    assert foreign(loans) == []
    assert run(loans).asked == []


def foreign(root: Path) -> list[str]:
    """Words of Python in what models were sent."""
    sent = [path.read_text() for path in (root / ".nightmill" / "calls").rglob("*") if path.is_file()]
    prompts = "\n".join(text for text in sent if "# Your task" in text)
    assert "todo!()" in prompts and "#[test]" in prompts and "```rust" in prompts
    return [word for word in ("NotImplementedError", "```python", "pytest", "def fee", "docstring") if word in prompts]
