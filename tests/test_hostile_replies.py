"""A model that answers rubbish, nothing or half a block: the run ends green or honestly failed, never with a traceback or wrongly green."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nightmill import demo
from runs import NIGHTMILL, Ran, product, run

REPLIES = demo.EXAMPLE / "replies"
FALLS_BACK = ("contract_review:1", "analysis", "plan", "production_review", "formal_review", "ip_review")
"""Stages whose work goes on without a usable reply; what was missing becomes a finding."""
MUST_ANSWER = ("contract:1", "test_matrix", "schema", "tests")
HOSTILE = {
    "rubbish": "Sure! As an AI I cannot do that, but here is a poem.\n\nRoses are red.\n",
    "nothing": "",
    "fences": "```\n```\n```python\n```\n",
    "control characters": "\x00\x01\x02 \ue000 \u202e backwards\n",
    "another role": "MERGED\n\nVERDICT: MAYBE\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    "endless line": "x" * 200_000,
}
CHATTER = (
    "<think>\nC1: no. VERDICT: REJECTED\n- x: y\n```python\nraise SystemExit\n</think>\nSure, here you go:\n\n{}\n\nI hope this helps!\n"
)


def reply_files(root: Path, stage: str) -> list[Path]:
    return sorted((root / "replies").glob(f"{stage.replace(':', '-')}.*.md"))


def answer_always(root: Path, stage: str, text: str) -> None:
    """Every try of the stage's own agent gets this reply."""
    for path in reply_files(root, stage):
        path.unlink()
    (root / "replies" / f"{stage.replace(':', '-')}.md").write_text(text, encoding="utf-8")


def asked_again(root: Path, stage: str, text: str, *, everything: bool = False) -> Ran:
    answer_always(root, stage, text)
    assert run(root, "redo", stage, command=NIGHTMILL).code == 0
    return run(root, *([] if everything else [stage]))


def verdict(root: Path) -> str:
    return str(json.loads((root / "summary.json").read_text())["verdict"])


def honest(done: Ran) -> None:
    assert "Traceback" not in done.out + done.err
    assert done.code in (0, 1, 76, 77), done.out + done.err


@pytest.mark.slow
@pytest.mark.parametrize("stage", MUST_ANSWER)
def test_a_stage_that_needs_its_reply_fails_with_the_broken_rule(finished_run: Path, stage: str) -> None:
    done = asked_again(finished_run, stage, HOSTILE["rubbish"])
    honest(done)
    assert done.code == 1
    assert f"failed (exit 1): {stage}" in done.out
    assert stage not in done.made


@pytest.mark.parametrize("stage", FALLS_BACK)
@pytest.mark.slow
def test_a_stage_that_can_do_without_says_what_it_lacked(finished_run: Path, stage: str) -> None:
    done = asked_again(finished_run, stage, HOSTILE["rubbish"])
    honest(done)
    assert (done.code, done.made) == (0, [stage])
    assert [e for e in done.events if e.kind in ("finding", "note") and e.stage == stage]


@pytest.mark.slow
@pytest.mark.parametrize("stage", [*MUST_ANSWER, *FALLS_BACK, "implement:money"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_reply_of_any_kind_makes_a_stage_crash(finished_run: Path, stage: str, kind: str) -> None:
    honest(asked_again(finished_run, stage, HOSTILE[kind]))


def test_half_a_file_is_never_taken_for_a_whole_one(finished_run: Path) -> None:
    for stage in ("schema", "tests"):
        (path,) = reply_files(finished_run, stage)
        text = path.read_text()
        done = asked_again(finished_run, stage, text[: len(text) // 2])
        assert done.code == 1 and "truncated" in done.out
        assert stage not in done.made


@pytest.mark.slow
def test_the_right_replies_in_thoughts_and_chatter_give_the_same_green_run(finished: Path, demo_run: Path) -> None:
    for path in (demo_run / "replies").rglob("*.md"):
        path.write_text(CHATTER.format(path.read_text()))
    done = run(demo_run)
    assert done.code == 0, done.out + done.err
    assert verdict(demo_run) == "green"
    made, wanted = product(demo_run), product(finished)
    assert {path: text for path, text in made.items() if path.startswith("v2/")} == {p: t for p, t in wanted.items() if p.startswith("v2/")}
    assert [made[path] for path in ("contract.md", "gate.md")] == [wanted[path] for path in ("contract.md", "gate.md")]


@pytest.mark.slow
@pytest.mark.parametrize("reply", ["rubbish", "an empty function"])
def test_an_implementer_that_does_not_implement_never_ends_green(finished_run: Path, reply: str) -> None:
    lazy = "tearoom/receipt.py\n```python\ndef make_receipt(text: str) -> str:\n    return ''\n```\n"
    text = HOSTILE["rubbish"] if reply == "rubbish" else lazy
    answer_always(finished_run, "integrate", text)
    (finished_run / "run.yaml").write_text((finished_run / "run.yaml").read_text().replace("max_iterations: 6", "max_iterations: 1"))
    done = asked_again(finished_run, "implement:receipt", text, everything=True)
    assert done.code == 76, done.out + done.err
    assert "v2 is not proven" in done.out
    assert verdict(finished_run) != "green"
    assert (finished_run / "v2").is_dir(), "the best result is kept"


def test_tests_that_prove_nothing_are_not_accepted(finished_run: Path) -> None:
    text = "acceptance/test_all.py\n```python\n" + "".join(f"def test_t{n}_x():\n    assert True\n\n\n" for n in range(1, 27)) + "```\n"
    done = asked_again(finished_run, "tests", text)
    honest(done)
    assert done.code == 1 and "tests" not in done.made


@pytest.mark.slow
def test_a_reply_cannot_write_outside_its_folder(finished_run: Path) -> None:
    for name in ("../evil.py", "/tmp/nightmill-evil.py", "tearoom/../../evil.py"):
        honest(asked_again(finished_run, "schema", f"{name}\n```python\nX = 1\n```\n"))
    assert not (finished_run / "evil.py").exists() and not (finished_run.parent / "evil.py").exists()
    assert not Path("/tmp/nightmill-evil.py").exists()
    assert (finished_run / "mission.md").read_text() == (demo.EXAMPLE / "mission.md").read_text()


def test_a_missing_scripted_reply_is_named_with_the_file_to_write(finished_run: Path) -> None:
    shutil.rmtree(finished_run / "replies")
    (finished_run / "replies").mkdir()
    run(finished_run, "redo", "schema", command=NIGHTMILL)
    done = run(finished_run, "schema")
    assert done.code == 77 and "replies/schema.1.md" in done.out
