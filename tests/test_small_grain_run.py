"""A whole run of a model that is asked item by item: scripted replies, the real pipeline, the real sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs import NIGHTMILL, Ran, events_of
from runs import run as run_command
from small_runs import small_run

TILL = '''"""A till."""


def net(cents):
    """Without tax."""
    if cents < 0:
        raise ValueError("negative: %d" % cents)
    return cents * 100 // 119


def label(cents):
    return "%d.%02d" % divmod(cents, 100)
'''
MISSION = "# Mission: till\n\n## Keep\n- Everything else.\n\n## Change\n- net gives 1 for a price of 0, so that nothing is free.\n"
NET = """```python
def net(cents: int) -> int:
    if cents < 0:
        raise ValueError(f'negative: {cents}')
%s    return cents * 100 // 119
```
"""
LABEL = """Here it is:
```python
def label(cents: int) -> str:
    whole, part = divmod(cents, 100)
    return f'{whole}.{part:02d}'
```
"""


def twice(first: int, *results: str) -> dict[str, str]:
    """Replies for results, each of which is asked for two times, from the reply number `first` on."""
    return {f"test_matrix.{first + 2 * n + again}": result for n, result in enumerate(results) for again in (0, 1)}


REPLIES = {
    "contract-1.1": "usual: net(119)\nedge: net(0)\nwrong: net(-5)\n",
    "contract-1.2": "usual: label(1250)\nother: label('x')\n",
    "contract_review-1": "VERDICT: APPROVED\n",
    "test_matrix.1": "usual: net(238)\nedge: net(0)\n",
    "test_matrix.2": "I think these are good:\n```python\nlabel(5)  # -> 0.05\nlabel(time.time())\n```\n",
    "test_matrix.3": "edge: net(0)\n",
    **twice(4, "1", "100", "raises ValueError 'negative: -5'", "200"),
    "analysis": "NONE\n",
    "implement-till-py.1": NET % "",
    "implement-till-py.2": LABEL,
    "implement-till-py.3": NET % "    if cents == 0:\n        return 1\n",
    "implement-till-py/security_reviewer": "VERDICT: APPROVED\n",
    "implement-till-py/maintenance_reviewer": "VERDICT: APPROVED\n",
    "production_review": "VERDICT: APPROVED\n",
    "formal_review": "VERDICT: APPROVED\n",
    "ip_review": "VERDICT: APPROVED\n",
}
MODEL = {"default": {"provider": "scripted", "model": "m", "grain": "item"}}


def small(root: Path, replies: dict[str, str], till: str = TILL) -> Path:
    small_run(root, replies, source={"till.py": till}, models=MODEL, build={"max_iterations": 3, "review": "last"})
    (root / "mission.md").write_text(MISSION)
    return root


def run(root: Path, *stages: str) -> Ran:
    return run_command(root, "run", *stages, command=NIGHTMILL)


@pytest.mark.slow
def test_a_small_model_is_asked_for_calls_and_functions_and_the_old_program_gives_the_results(tmp_path: Path) -> None:
    root = small(tmp_path / "r", REPLIES)
    done = run(root)
    assert done.code == 0, done.out + done.err
    assert {label.split("#")[0].split(":")[0] for label in done.asked}.isdisjoint({"schema", "tests", "plan"})
    matrix = (root / "test_matrix.md").read_text()
    for cells in ("C1 | net(238) | 200", "C1 | net(-5) | raises ValueError 'negative: -5'", "C2 | label(5) | '0.05'", "C3 | net(0) | 1"):
        assert cells in matrix
    assert "C1 | net(0)" not in matrix, "the clause that changes a result takes its call from the others"
    assert "if cents == 0" in (root / "v2/till.py").read_text()
    told = (root / "deviations.md").read_text()
    assert "no new name or parameter was designed" in told
    assert "nobody has seen it: net(0): 1" in told
    assert run(root).asked == []


UNCHANGED = REPLIES | {"test_matrix.3": "usual: net(476)"} | twice(4, "400", "100", "0", "raises ValueError 'negative: -5'", "200")


@pytest.mark.slow
def test_a_change_that_no_test_shows_is_told_and_never_counts_as_shown(tmp_path: Path) -> None:
    root = small(tmp_path / "r", UNCHANGED)
    assert run(root).code == 0
    told = (root / "deviations.md").read_text()
    assert "no test shows the change" in told and "**C3**: no row of the test matrix covers it" in told


@pytest.mark.slow
def test_a_call_whose_result_the_change_touches_becomes_a_row_of_the_change(tmp_path: Path) -> None:
    root = small(tmp_path / "r", UNCHANGED | twice(8, "1"))
    run(root, "test_matrix")
    matrix = (root / "test_matrix.md").read_text()
    assert "C3 | net(0) | 1" in matrix and "C1 | net(0)" not in matrix
    assert "no test shows the change" not in "".join(e.text for e in events_of(root) if e.kind == "finding")


@pytest.mark.slow
def test_a_changed_result_of_which_the_model_is_not_sure_is_no_row(tmp_path: Path) -> None:
    root = small(tmp_path / "r", REPLIES | {"test_matrix.5": "2"} | twice(10, "raises ValueError 'negative: -5'", "200"))
    run(root, "test_matrix")
    assert "net(0)" not in (root / "test_matrix.md").read_text()
    told = [(e.kind, e.text) for e in events_of(root) if e.kind in ("note", "finding")]
    assert ("note", "no result of net(0): the model says 1, then 2") in told
    assert ("finding", "no test: the model named no call that shows it") in told


@pytest.mark.slow
def test_a_small_model_that_never_writes_the_change_ends_honestly_red(tmp_path: Path) -> None:
    root = small(
        tmp_path / "r",
        {k: v for k, v in REPLIES.items() if k != "implement-till-py.3"} | {"implement-till-py": NET % "", "integrate": NET % ""},
    )
    done = run(root)
    assert done.code == 76, done.out + done.err
    assert "not proven" in (root / "deviations.md").read_text()
    assert "cents * 100 // 119" in (root / "v2/till.py").read_text()


def test_where_the_old_program_cannot_run_the_rows_are_believed_and_that_is_told(tmp_path: Path) -> None:
    believed = "T1 | C1 | net(119) | 100\nT2 | C2 | label(5) | '0.05'\nT3 | C3 | net(0) | 1\n"
    root = small(tmp_path / "r", REPLIES | {"test_matrix.4": believed}, till="import nowhere\n" + TILL)
    run(root, "test_matrix")
    told = [e.text for e in events_of(root) if e.kind in ("note", "finding")]
    assert "T1 | C1 | net(119) | 100" in (root / "test_matrix.md").read_text()
    assert any("could not be observed" in text and "nowhere" in text for text in told)
