"""A whole rewrite of a Rust program: scripted replies, the real pipeline, the real sandbox, real Cargo."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from runs import NIGHTMILL, Ran, events_of
from runs import run as run_command
from small_runs import configure, small_run
from test_packs import needed

WITHOUT = """
import sys
from nightmill.gate.languages import _rust_toolchain
_rust_toolchain._find = lambda *_: None
from nightmill.cli import main
sys.argv = ["nightmill", "run"]
sys.exit(main())
"""
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


TILL = """//! A till.

/// Without tax.
pub fn net(cents: i64) -> i64 {
    if cents < 0 {
        panic!("negative: {}", cents);
    }
    cents * 100 / 119
}

pub fn label(cents: i64) -> Result<String, String> {
    if cents < 0 {
        return Err(format!("negative: {}", cents));
    }
    Ok(format!("{}.{:02}", cents / 100, cents % 100))
}
"""
MISSION = "# Mission: till\n\n## Keep\n- Everything else.\n\n## Change\n- net gives 1 for a price of 0, so that nothing is free.\n"
NET = """```rust
pub fn net(cents: i64) -> i64 {
    if cents < 0 {
        panic!("negative: {}", cents);
    }
%s    cents * 100 / 119
}
```
"""
LABEL = """Here it is:
```rust
fn two(part: i64) -> String {
    format!("{:02}", part)
}

pub fn label(cents: i64) -> Result<String, String> {
    if cents < 0 {
        return Err(format!("negative: {}", cents));
    }
    Ok(format!("{}.{}", cents / 100, two(cents % 100)))
}
```
"""


def twice(first: int, *results: str) -> dict[str, str]:
    """Replies for results, each of which is asked for two times, from the reply number `first` on."""
    return {f"test_matrix.{first + 2 * n + again}": result for n, result in enumerate(results) for again in (0, 1)}


SMALL = {
    "contract-1.1": "usual: net(119)\nedge: net(0)\nwrong: net(-5)\n",
    "contract-1.2": "usual: label(1250)\nother: label(x)\n",
    "contract_review-1": "VERDICT: APPROVED\n",
    "test_matrix.1": "usual: net(238)\nedge: net(0)\n",
    "test_matrix.2": "I think these are good:\n```rust\nlabel(5)  // -> 0.05\nlabel(-3)\n```\n",
    "test_matrix.3": "edge: net(0)\n",
    **twice(4, "1", "100", 'raises panic "negative: -5"', "200"),
    "analysis": "NONE\n",
    "implement-src-lib-rs.1": NET % "",
    "implement-src-lib-rs.2": LABEL,
    "implement-src-lib-rs.3": NET % "    if cents == 0 {\n        return 1;\n    }\n",
    "implement-src-lib-rs/security_reviewer": "VERDICT: APPROVED\n",
    "implement-src-lib-rs/maintenance_reviewer": "VERDICT: APPROVED\n",
    "production_review": "VERDICT: APPROVED\n",
    "formal_review": "VERDICT: APPROVED\n",
    "ip_review": "VERDICT: APPROVED\n",
}


def test_a_small_model_is_asked_for_rust_function_by_function(tmp_path: Path) -> None:
    needed("rust")
    model = {"default": {"provider": "scripted", "model": "m", "grain": "item"}}
    root = small_run(tmp_path / "r", SMALL, source={"src/lib.rs": TILL}, models=model, build={"max_iterations": 3, "review": "last"})
    (root / "mission.md").write_text(MISSION)
    done = run(root)
    assert done.code == 0, done.out + done.err
    matrix = (root / "test_matrix.md").read_text()
    for cells in (
        "C1 | net(238) | 200",
        'C1 | net(-5) | raises panic "negative: -5"',
        'C2 | label(5) | Ok("0.05")',
        'C2 | label(-3) | Err("negative: -3")',
        "C3 | net(0) | 1",
    ):
        assert cells in matrix, matrix
    new = (root / "v2/src/lib.rs").read_text()
    assert "if cents == 0" in new and "fn two" in new and 'name = "program"' in (root / "v2/Cargo.toml").read_text()
    assert "```python" not in "".join(path.read_text() for path in (root / ".nightmill" / "calls").rglob("*") if path.is_file())


def test_without_cargo_the_run_says_what_to_install_and_exits_78(tmp_path: Path) -> None:
    root = small_run(tmp_path / "r", {}, source={"src/lib.rs": TILL})
    done = run_command(root, "-c", WITHOUT, command=[sys.executable])
    assert done.code == 78 and "install Rust" in done.err + done.out and not done.asked
