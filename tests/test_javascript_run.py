"""A whole rewrite of a JavaScript program: scripted replies, the real pipeline, the real sandbox, real Node."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from nightmill.run.trees import read_tree
from runs import NIGHTMILL, Ran, events_of
from runs import run as run_command
from small_runs import configure, small_run
from test_packs import needed

KIOSK = Path(__file__).parent / "fixtures" / "missions" / "js-kiosk"


@pytest.fixture
def kiosk(tmp_path: Path) -> Path:
    needed("javascript")
    root = Path(shutil.copytree(KIOSK, tmp_path / "kiosk"))
    configure(root, build={"max_iterations": 3, "review": "last"})
    return root


def run(root: Path, *words: str) -> Ran:
    return run_command(root, "run", *words, command=NIGHTMILL)


@pytest.mark.slow
def test_a_javascript_program_is_rewritten_and_ends_green(kiosk: Path) -> None:
    done = run(kiosk)
    assert done.code == 0, done.out + done.err
    assert "Verdict: green" in (kiosk / "gate.md").read_text()
    attempts = [(e.stage, e.asked, e.outcome) for e in events_of(kiosk) if e.kind == "attempt_finished"]
    assert [a for a in attempts if a[0] == "implement:money"] == [
        ("implement:money", "rewrite", "red"),
        ("implement:money", "patch", "green"),
    ]
    baseline = json.loads((kiosk / "baseline.json").read_text())
    assert baseline["built"] and len(baseline["tests"]["passed"]) == 3, baseline
    proof = json.loads((kiosk / "proof.json").read_text())
    assert proof["unproven"] == {} and proof["v1_ran"] and proof["agree_with_v1"] == 12
    package = json.loads((kiosk / "v2/package.json").read_text())
    assert (package["name"], package["type"], "scripts" in package) == ("kiosk", "module", False)
    assert foreign(kiosk) == []
    assert run(kiosk).asked == []


def foreign(root: Path) -> list[str]:
    """Words of Python in what models were sent."""
    sent = [path.read_text() for path in (root / ".nightmill" / "calls").rglob("*") if path.is_file()]
    prompts = "\n".join(text for text in sent if "# Your task" in text)
    assert "not implemented" in prompts and "node:test" in prompts and "```js" in prompts
    return [word for word in ("NotImplementedError", "```python", "pytest", "def fee", "docstring", ".py", "ValueError") if word in prompts]


@pytest.mark.slow
def test_prompts_of_a_javascript_run_speak_javascript(kiosk: Path) -> None:
    done = run(kiosk, "tests")
    assert done.code == 0, done.out + done.err
    assert foreign(kiosk) == []


@pytest.mark.slow
def test_a_bug_that_is_never_mended_ends_red_with_the_best_tree_kept(kiosk: Path) -> None:
    replies = kiosk / "replies"
    (replies / "implement-money.2.md").unlink()
    for name in ("money", "basket", "receipt"):
        (replies / f"implement-{name}.1.md").rename(replies / f"implement-{name}.md")
    shutil.copy(replies / "implement-money.md", replies / "integrate.md")
    done = run(kiosk)
    assert done.code == 76, done.out + done.err
    assert "Verdict: red" in (kiosk / "gate.md").read_text() and "test_t4_half_a_cent" in (kiosk / "gate.md").read_text()
    assert read_tree(kiosk / "v2")["receipt.js"]


TILL = """// A till.

/** Without tax. */
export function net(cents) {
  if (cents < 0) throw new RangeError(`negative: ${cents}`);
  return Math.floor((cents * 100) / 119);
}

export async function label(cents) {
  return `${Math.floor(cents / 100)}.${String(cents % 100).padStart(2, "0")}`;
}
"""
MISSION = "# Mission: till\n\n## Keep\n- Everything else.\n\n## Change\n- net gives 1 for a price of 0, so that nothing is free.\n"
NET = """```js
export function net(cents) {
  if (cents < 0) throw new RangeError(`negative: ${cents}`);
%s  return Math.floor((cents * 100) / 119);
}
```
"""
LABEL = """Here it is:
```js
const two = (part) => String(part).padStart(2, "0");

export async function label(cents) {
  return `${Math.floor(cents / 100)}.${two(cents % 100)}`;
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
    "test_matrix.2": "I think these are good:\n```js\nlabel(5)  // -> 0.05\nlabel(Date.now())\n```\n",
    "test_matrix.3": "edge: net(0)\n",
    **twice(4, "1", "100", 'raises RangeError "negative: -5"', "200"),
    "analysis": "NONE\n",
    "implement-till-js.1": NET % "",
    "implement-till-js.2": LABEL,
    "implement-till-js.3": NET % "  if (cents === 0) return 1;\n",
    "implement-till-js/security_reviewer": "VERDICT: APPROVED\n",
    "implement-till-js/maintenance_reviewer": "VERDICT: APPROVED\n",
    "production_review": "VERDICT: APPROVED\n",
    "formal_review": "VERDICT: APPROVED\n",
    "ip_review": "VERDICT: APPROVED\n",
}


COMMON = TILL.replace("export ", "") + "\nmodule.exports = { net, label };\n"


@pytest.mark.slow
@pytest.mark.parametrize(("till", "kind"), [(TILL, "module"), (COMMON, "commonjs")], ids=["module", "commonjs"])
def test_a_small_model_is_asked_for_javascript_function_by_function(tmp_path: Path, till: str, kind: str) -> None:
    needed("javascript")
    model = {"default": {"provider": "scripted", "model": "m", "grain": "item"}}
    root = small_run(tmp_path / "r", SMALL, source={"till.js": till}, models=model, build={"max_iterations": 3, "review": "last"})
    (root / "mission.md").write_text(MISSION)
    done = run(root)
    assert done.code == 0, done.out + done.err
    matrix = (root / "test_matrix.md").read_text()
    for cells in (
        "C1 | net(238) | 200",
        'C1 | net(-5) | raises RangeError "negative: -5"',
        'C2 | await label(5) | "0.05"',
        "C3 | net(0) | 1",
    ):
        assert cells in matrix, matrix
    assert "if (cents === 0)" in (root / "v2/till.js").read_text() and "const two" in (root / "v2/till.js").read_text()
    assert json.loads((root / "v2/package.json").read_text())["type"] == kind
    assert "```python" not in "".join(path.read_text() for path in (root / ".nightmill" / "calls").rglob("*") if path.is_file())


def test_without_node_the_run_says_what_to_install_and_exits_78(tmp_path: Path) -> None:
    root = small_run(tmp_path / "r", {}, source={"till.js": TILL})
    done = run_command(root, "-c", WITHOUT, command=[sys.executable])
    assert done.code == 78 and "install Node" in done.err + done.out and not done.asked


WITHOUT = """
import sys
from nightmill.gate import toolchain
toolchain.find = lambda *_: None
from nightmill.cli import main
sys.argv = ["nightmill", "run"]
sys.exit(main())
"""
