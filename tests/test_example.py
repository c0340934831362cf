"""The demo that ships in the package: an old program that works, and scripted replies that lead from it to a green new version."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nightmill.example
from gate_help import gate
from nightmill.build.acceptance import proven_rows
from nightmill.build.editing import Edits
from nightmill.build.judge import Duty, judge
from nightmill.build.milestones import Plan, problems, waves
from nightmill.build.reviewing import exists
from nightmill.calls.prompts import load_skill
from nightmill.calls.replies import ReplyFormat, Review
from nightmill.edits import plan_edits
from nightmill.gate.languages import pack
from nightmill.gate.proof import prove
from nightmill.paths import load_dodo
from nightmill.providers.base import Request
from nightmill.providers.scripted import Scripted
from nightmill.run.trees import Tree, read_tree

load_dodo()  # registers `stages`

from stages.analysis import Analysis, _true_place  # noqa: E402
from stages.contract import Contract  # noqa: E402
from stages.schema import Schema  # noqa: E402
from stages.test_matrix import Matrix  # noqa: E402
from stages.tests import AcceptanceTests  # noqa: E402

EXAMPLE = Path(nightmill.example.__file__).parent
REPLIES = EXAMPLE / "replies"
PYTHON = pack("python")
V1: Tree = {rel: data for rel, data in read_tree(EXAMPLE / "v1").items() if "__pycache__" not in rel}


def reply(label: str) -> str:
    """What the scripted provider answers, its reasoning stripped, as a stage gets it."""
    request = Request(model="scripted", messages=(), temperature=0, seed=1, max_tokens=8192, label=label)
    return Scripted("scripted", REPLIES).complete(request, lambda _: None, lambda: False).text


def read(label: str, form: type[ReplyFormat], **facts):
    return form.parse(reply(label), facts)


CONTRACT = read("contract:2#1", Contract)
MATRIX = read("test_matrix#1", Matrix, clauses=[clause.id for clause in CONTRACT.clauses])
CHANGED = frozenset(row.id for row in MATRIX.rows if row.clause in {clause.id for clause in CONTRACT.clauses if clause.changed})
SCHEMA: Tree = read("schema#1", Schema, pack=PYTHON, source=tuple(V1)).tree
TESTS: Tree = {
    path.removeprefix("acceptance/"): data
    for path, data in read("tests#1", AcceptanceTests, pack=PYTHON, rows=[row.id for row in MATRIX.rows]).tree.items()
}
PLAN = read("plan#1", Plan, stub_files=tuple(PYTHON.stubs(SCHEMA)))
DUTIES = {milestone.name: Duty(milestone.files, milestone.task) for milestone in PLAN.milestones}
REVIEWS = sorted(REPLIES.rglob("*review*.md"))


def built(tree: Tree, *labels: str) -> Tree:
    """`tree` after the edits of these replies, each of which must apply and stay inside its milestone."""
    for label in labels:
        files = DUTIES[label.split(":")[1].split("#")[0]].files
        outcome = plan_edits(tree, read(label, Edits).text, guard=lambda path, files=files: None if path in files else "not its file")
        assert not outcome.refused, outcome.refused
        tree = dict(outcome.tree)
    return tree


FIRST = built(SCHEMA, "implement:money#1")
V2 = built(FIRST, "implement:money#2", "implement:slip#1", "implement:receipt#1")


def test_the_old_program_passes_its_own_tests():
    command = [sys.executable, "-B", "-m", "unittest", "discover", "tests"]
    ran = subprocess.run(command, cwd=EXAMPLE / "v1", capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Ran 8 tests" in ran.stderr


def test_every_test_is_red_on_the_stubs_and_none_disagrees_with_the_old_program():
    proof = prove(gate(), SCHEMA, TESTS, V1, CHANGED)
    assert (proof.vacuous, proof.broken, proof.disputed) == ((), (), ()), proof.reasons
    assert proof.collected == len(proof.proven) > 90
    assert proof.v1_ran
    assert proven_rows(proof) == {row.id for row in MATRIX.rows}


def test_one_clause_changes_and_the_old_program_fails_it():
    assert [clause.id for clause in CONTRACT.clauses if clause.changed] == ["C13"]
    ran = {test.id: test.outcome for test in gate().test(V1, TESTS).tests}
    failed = {id for id, outcome in ran.items() if outcome == "failed"}
    assert failed == {"acceptance/test_cli.py::test_t20_every_message_of_a_bad_slip_names_its_file"}


def test_the_first_answer_for_money_fails_on_the_halves_alone_and_is_patched():
    before = judge(gate().run(SCHEMA, TESTS), PYTHON.stubs(SCHEMA), DUTIES["money"], frozenset())
    first = judge(gate().run(FIRST, TESTS), PYTHON.stubs(FIRST), DUTIES["money"], before.passed)
    assert {re.sub(r"\[.*", "", test.id) for test in first.failed} == {"acceptance/test_money.py::test_t1_half_up_takes_halves_up"}
    assert first.better_than(before)
    assert "SEARCH" in reply("implement:money#2")
    patched = built(FIRST, "implement:money#2")
    second = judge(gate().run(patched, TESTS), PYTHON.stubs(patched), DUTIES["money"], first.passed)
    assert second.green, second.reason


def test_slip_is_green_while_the_others_are_stubs():
    tree = built(SCHEMA, "implement:slip#1")
    found = judge(gate().run(tree, TESTS), PYTHON.stubs(tree), DUTIES["slip"], frozenset())
    assert found.green, found.reason
    assert len(found.passed) > 40


def test_the_new_version_passes_every_test():
    assert not PYTHON.stubs(V2)
    record = gate().run(V2, TESTS)
    assert record.verdict == "green", record.reason
    assert len(record.passed) > 90


def test_the_plan_has_a_wave_of_two_and_one_that_joins_them():
    assert waves(PLAN) == (("money", "slip"), ("receipt",))
    assert problems(PLAN) == ()
    assert {milestone.risk for milestone in PLAN.milestones} == {"EASY"}


def test_the_contract_is_rejected_once_for_what_the_second_draft_mends():
    first, review = read("contract:1#1", Contract), read("contract_review:1#1", Review)
    assert [finding.where for finding in review.findings] == ["C7", "missing"]
    texts = [{clause.id: clause.text for clause in contract.clauses} for contract in (first, CONTRACT)]
    assert {id for id in texts[1] if texts[0].get(id) != texts[1][id]} == {"C7", "C16"}
    assert read("contract_review:2#1", Review).approved


def test_every_claim_of_the_analysis_names_lines_that_exist():
    lengths = {path: len(data.decode().splitlines()) for path, data in V1.items()}
    claims = read("analysis#1", Analysis).claims
    assert claims
    assert all(claim.places and all(_true_place(place, lengths) for place in claim.places) for claim in claims)


@pytest.mark.parametrize("path", REVIEWS, ids=lambda path: path.relative_to(REPLIES).as_posix())
def test_every_scripted_review_parses_and_speaks_of_what_exists(path):
    stem, number, _ = path.relative_to(REPLIES).as_posix().rsplit(".", 2)
    persona = stem.rpartition("/")[2] if "/" in stem else "contract_reviewer"
    review = read(f"{stem.replace('-', ':', 1)}#{number}", Review, verdicts=load_skill(persona).verdicts)
    assert review.approved == (not review.findings)
    assert all(exists(finding.where, V2) for finding in review.findings)


def test_one_reviewer_of_the_code_rejects_and_its_finding_is_true():
    rejected = [path for path in REVIEWS if "REJECTED" in path.read_text(encoding="utf-8") and not path.name.startswith("contract")]
    assert [path.relative_to(REPLIES).as_posix() for path in rejected] == ["implement-receipt/maintenance_reviewer.1.md"]
    lines = V2["tearoom/receipt.py"].decode().split("\n")
    assert [n for n, line in enumerate(lines, 1) if ":<26}" in line and ":>9}" in line] == [45, 47, 48]
    assert [n for n, line in enumerate(lines, 1) if ":<20}" in line and ":>9}" in line] == [41, 43]


def test_every_reviewer_has_a_reply_for_every_attempt():
    attempts = {path.relative_to(REPLIES).as_posix() for path in REPLIES.glob("implement-*.md")}
    for attempt in attempts:
        stage, number, _ = attempt.rsplit(".", 2)
        for persona in ("security_reviewer", "maintenance_reviewer"):
            assert (REPLIES / stage / f"{persona}.{number}.md").is_file()


def test_the_replies_say_that_they_were_written_by_hand():
    assert "Written by hand" in (REPLIES / "README.md").read_text(encoding="utf-8")


def test_what_python_leaves_behind_is_ignored_by_the_old_programs_own_rules():
    assert "__pycache__/" in (EXAMPLE / "v1" / ".gitignore").read_text(encoding="utf-8").splitlines()
