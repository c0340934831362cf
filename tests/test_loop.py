"""The build loop on a tiny schema: the real stage, the real sandbox, and replies from files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nightmill.errors import OutOfBudget
from nightmill.graph.execute import execute
from nightmill.graph.session import Session
from nightmill.graph.stage import Stage
from nightmill.paths import load_dodo
from nightmill.run.events import AttemptFinished
from nightmill.run.trees import read_tree
from small_runs import configure, opened, scratch, small_run

SCHEMA = '''\
def net(cents: int) -> int:
    """Cents without tax, rounded half up (C1)."""
    raise NotImplementedError


def label(cents: int) -> str:
    """`1.05` for 105 (C2)."""
    raise NotImplementedError
'''
TILL = 'def total(cents: list[int]) -> int:\n    """The sum."""\n    raise NotImplementedError\n'
TESTS = """\
from money import label, net
from till import total


def test_t1_net():
    assert net(119) == 100


def test_t2_label():
    assert label(105) == "1.05"


def test_t3_total():
    assert total([1, 2]) == 3
"""
PLAN = """\
## MILESTONE: money
RISK: EASY
DEPENDS_ON: none
FILES: money.py
TASK: Implement net and label.

## MILESTONE: till
RISK: EASY
DEPENDS_ON: none
FILES: till.py
TASK: Implement total.
"""
MONEY = load_dodo().implement.bind(
    name="implement:money", needs=(*load_dodo().implement.needs, "schema/"), makes=("milestones/money/",), subject="money", slice="money"
)


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as folder:
        root = small_run(folder / "run", {f"implement-money/{who}": "VERDICT: APPROVED\n" for who in MONEY.reviewers})
        files = {"contract.md": "C1: net\nC2: label\n", "analysis.md": "NONE\n", "plan.md": PLAN}
        files |= {"schema/money.py": SCHEMA, "schema/till.py": TILL, "acceptance/test_money.py": TESTS}
        for rel, text in files.items():
            (root / rel).parent.mkdir(exist_ok=True)
            (root / rel).write_text(text)
        execute(opened(root), load_dodo().intake)
        yield root


def code(net: str, label: str) -> str:
    return SCHEMA.replace("raise NotImplementedError", net, 1).replace("raise NotImplementedError", label, 1)


RIGHT_NET, RIGHT_LABEL = "return (cents * 200 + 119) // 238", 'return f"{cents // 100}.{cents % 100:02}"'
RIGHT = code(RIGHT_NET, RIGHT_LABEL)
HALF = code(RIGHT_NET, "return str(cents)")
OTHER_HALF = code("return 0", RIGHT_LABEL)
WRONG = code("return 0", "return str(cents)")


def whole(text: str, path: str = "money.py") -> str:
    return f"{path}\n```python\n{text}```\n"


def patch(old: str, new: str) -> str:
    return f"money.py\n```\n<<<<<<< SEARCH\n    {old}\n=======\n    {new}\n>>>>>>> REPLACE\n```\n"


MEND = patch("return str(cents)", RIGHT_LABEL)


def build(root: Path, *replies: str, stage: Stage = MONEY, iterations: int = 6, strategy: str = "auto", **config: Any) -> Session:
    """Runs the stage with these replies, one per attempt."""
    configure(root, build={"max_iterations": iterations, "review": "last", "strategy": strategy}, **config)
    for number, reply in enumerate(replies, 1):
        (root / f"replies/implement-money.{number}.md").write_text(reply)
    session = opened(root)
    execute(session, stage)
    return session


def attempts(root: Path) -> list[AttemptFinished]:
    return [e for e in opened(root).run.events if e.kind == "attempt_finished"]


def told(root: Path) -> list[tuple[str, str, bool]]:
    """What was asked, how it ended, and whether it became the best."""
    return [(e.asked, e.outcome, e.best) for e in attempts(root)]


def money(root: Path) -> str:
    return (root / "milestones/money/money.py").read_text()


def findings(root: Path) -> list[str]:
    return [e.text for e in opened(root).run.events if e.kind == "finding"]


def prompt(root: Path, number: int) -> str:
    """What the implementer was asked at its n-th question."""
    import json

    found = [json.loads(p.read_text())["request"] for p in (root / ".nightmill/calls").glob("*.json")]
    return next(r["messages"][-1]["content"] for r in found if r["label"] == f"implement:money#{number}")


def test_a_patch_is_asked_for_before_a_rewrite_and_green_ends_the_loop(root: Path) -> None:
    build(root, whole(HALF), MEND, whole(WRONG))
    assert told(root) == [("rewrite", "red", True), ("patch", "green", True)]
    assert money(root) == RIGHT and findings(root) == []
    assert "test_t2_label" in prompt(root, 2) and "test_t3_total" not in prompt(root, 2).partition("# Your task")[2]
    assert read_tree(root / "milestones/money").keys() == {"money.py", "till.py"}, "what is delivered holds no tests"


def test_a_refused_patch_is_asked_for_again_with_the_reason_and_the_second_is_answered_by_a_rewrite(root: Path) -> None:
    """The rewrite changes nothing and is taken back like any attempt that does not help."""
    build(root, whole(HALF), patch("return no_such_line", "return 1"), patch("return nor_this_one", "return 1"), whole(HALF), MEND)
    told_of = [(e.asked, e.best) for e in attempts(root)]
    assert told_of == [("rewrite", True), ("patch", False), ("patch", False), ("rewrite", False), ("patch", True)]
    assert [e.outcome for e in attempts(root)][1:3] == ["refused", "refused"] and attempts(root)[3].outcome != "green"
    assert [e.attempt for e in opened(root).run.events if e.kind == "edit_refused" and e.reasons][:2] == [2, 3]
    for number in (3, 4, 5):
        assert "Your last edit was not taken" in prompt(root, number)
    assert money(root) == RIGHT


def test_wrong_answers_that_alternate_end_at_the_limit_with_the_best_kept_and_no_question_asked_twice(root: Path) -> None:
    """The second wins a test and loses another, the third does not build: neither replaces the first."""
    build(root, whole(HALF), whole(OTHER_HALF), whole("break\n" + RIGHT), iterations=3)
    assert told(root) == [("rewrite", "red", True), ("patch", "red", False), ("rewrite", "red", False)]
    assert "passed before and does not now" in attempts(root)[1].reason
    assert money(root) == HALF
    asked = [e for e in opened(root).run.events if e.kind == "call_started" and e.label.startswith("implement:money#")]
    assert len({e.key for e in asked}) == len(asked) == 3


def test_fresh_samples_are_told_of_no_failure_and_the_one_that_passes_most_is_kept(root: Path) -> None:
    build(root, whole(WRONG), patch("return no_such_line", "return 1"), whole(HALF), whole(WRONG), iterations=4, strategy="samples")
    assert [(e.asked, e.outcome) for e in attempts(root)] == [
        ("rewrite", "red"),
        ("rewrite", "refused"),
        ("rewrite", "red"),
        ("rewrite", "red"),
    ]
    assert [e.best for e in attempts(root)][2:] == [True, False] and money(root) == HALF
    assert len({prompt(root, number) for number in (1, 2, 3, 4)}) == 1


HARMFUL = [
    ("acceptance/test_money.py", "def test_t1_net():\n    pass\n", "locked"),
    ("acceptance/conftest.py", "import pytest\n", "locked"),
    ("conftest.py", "import pytest\n", "how tests are collected"),
    ("sitecustomize.py", "import os\n", "how tests are collected"),
    ("till.py", "def total(cents):\n    return 3\n", "belongs to milestone till"),
    ("../escaped.py", "x = 1\n", ""),
]


def test_a_reply_that_writes_what_is_not_its_own_is_refused_as_a_whole(root: Path) -> None:
    build(root, *[whole(RIGHT) + "\n" + whole(text, path) for path, text, _ in HARMFUL], iterations=len(HARMFUL))
    assert told(root) == [("rewrite", "refused", False)] * len(HARMFUL)
    refused = [e for e in opened(root).run.events if e.kind == "edit_refused"]
    assert [path for (path, _, why), e in zip(HARMFUL, refused, strict=True) if why not in " ".join(e.reasons)] == []
    assert money(root) == SCHEMA and (root / "milestones/money/till.py").read_text() == TILL
    assert (root / "acceptance/test_money.py").read_text() == TESTS and not (root / "milestones/escaped.py").exists()


def test_when_the_budget_ends_in_the_middle_the_best_so_far_is_published_and_a_higher_one_goes_on(root: Path) -> None:
    with pytest.raises(OutOfBudget):
        build(root, whole(HALF), MEND, budgets={"calls": 1})
    assert money(root) == HALF
    session = build(root, budgets={"calls": 20})
    assert money(root) == RIGHT
    asked = [e.label for e in session.run.events if e.kind == "call_finished" and not e.replayed]
    assert asked.count("implement:money#1") == asked.count("implement:money#2") == 1


def test_neither_a_call_without_a_usable_reply_nor_a_green_one_is_charged_and_a_helper_file_is_allowed_and_told(root: Path) -> None:
    helper = "def pair(cents: int) -> tuple[int, int]:\n    return divmod(cents, 100)\n"
    text = "from money_pairs import pair\n\n\n" + code(RIGHT_NET, 'return "{}.{:02}".format(*pair(cents))')
    build(root, "<!-- scripted: finish=length -->\n" + whole(RIGHT), whole(helper, "money_pairs.py") + "\n" + whole(text))
    assert [(e.outcome, e.charged) for e in attempts(root)] == [("no verdict", False), ("green", False)]
    assert money(root) == text
    assert findings(root) == ["milestone money wrote a file outside its list"]


def test_what_crashes_in_others_files_alone_is_left_to_integrate_without_burning_attempts(root: Path) -> None:
    (root / "schema/till.py").write_text("def total(cents: list[int]) -> int:\n    return cents.sum\n")
    (root / "acceptance/test_money.py").write_text(TESTS + "\n\ndef test_t4_both():\n    assert net(total([119])) == 100\n")
    build(root, whole(RIGHT), iterations=6)
    assert len(attempts(root)) == 1
    assert any("left to integrate" in e.text and "till.py" in e.text for e in opened(root).run.events if e.kind == "note")
    assert read_tree(root / "milestones/money")["money.py"].decode() == RIGHT
