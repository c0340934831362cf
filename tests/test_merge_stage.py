"""The merging stage: two milestones that wrote one file, the real stage and sandbox, MergeAgent from files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nightmill.graph.execute import execute
from nightmill.graph.session import Session
from nightmill.paths import load_dodo
from nightmill.run.trees import read_tree
from small_runs import configure, opened, scratch, small_run

STUB = "raise NotImplementedError"
BASE = f"""\
class Plan:
    def __init__(self):
        {STUB}

    def first(self):
        {STUB}

    def last(self):
        {STUB}
"""
A = BASE.replace(STUB, "self.trips = [1, 2]", 1).replace(STUB, "return self.trips[0]", 1)
B = BASE.replace(STUB, "self._trips = [1, 2]", 1).replace(f"last(self):\n        {STUB}", "last(self):\n        return self._trips[-1]")
TESTS = """\
from plan import Plan


def test_t1_first():
    assert Plan().first() == 1


def test_t2_last():
    assert Plan().last() == 2
"""
PLAN = "".join(
    f"## MILESTONE: {name}\nRISK: EASY\nDEPENDS_ON: none\nFILES: plan.py\nTASK: {task}\n\n"
    for name, task in (("a", "first"), ("b", "last"))
)
MIXED = A.replace(f"last(self):\n        {STUB}", "last(self):\n        return self._trips[-1]")
GOOD = MIXED.replace("self._trips", "self.trips")


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as folder:
        root = small_run(folder / "run")
        files = {"contract.md": "C1: first\n", "plan.md": PLAN, "schema/plan.py": BASE, "acceptance/test_plan.py": TESTS}
        files |= {"milestones/a/plan.py": A, "milestones/b/plan.py": B}
        for rel, text in files.items():
            (root / rel).parent.mkdir(parents=True, exist_ok=True)
            (root / rel).write_text(text)
        configure(root, build={"max_iterations": 2, "review": "last"})
        execute(opened(root), load_dodo().intake)
        yield root


def merged(root: Path, *replies: str) -> Session:
    for number, text in enumerate(replies, 1):
        (root / f"replies/merge-1.{number}.md").write_text(text)
    stage = load_dodo().merge_wave
    needs = (*stage.needs, "schema/", "milestones/a/", "milestones/b/")
    session = opened(root)
    execute(session, stage.bind(name="merge:1", needs=needs, makes=("waves/1/",), subject="1", slice="a b"))
    return session


def whole(text: str) -> str:
    return f"plan.py\n```python\n{text}```\n"


def test_a_merge_that_loses_a_name_is_asked_again_with_the_name(root: Path) -> None:
    session = merged(root, whole("class Plan:\n    def first(self):\n        return 1\n"), whole(GOOD))
    refused = [e.rule for e in session.run.events if e.kind == "reply_refused"]
    assert len(refused) == 1 and "Plan.last" in refused[0]
    assert read_tree(root / "waves/1")["plan.py"].decode() == GOOD


def test_a_merge_that_breaks_what_passed_on_a_side_is_mended_by_a_patch(root: Path) -> None:
    patch = "plan.py\n```\n<<<<<<< SEARCH\n        return self._trips[-1]\n=======\n        return self.trips[-1]\n>>>>>>> REPLACE\n```\n"
    session = merged(root, whole(MIXED), patch)
    assert [(e.asked, e.outcome) for e in session.run.events if e.kind == "attempt_finished"] == [("patch", "green")]
    assert read_tree(root / "waves/1")["plan.py"].decode() == GOOD


def test_a_merge_that_stays_broken_is_kept_and_told(root: Path) -> None:
    session = merged(root, whole(MIXED), "nothing", "nothing", "nothing")
    told = [e.text for e in session.run.events if e.kind == "finding"]
    assert any("lost acceptance/test_plan.py::test_t2_last" in text for text in told)
