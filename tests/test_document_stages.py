"""The bodies of the document stages: fallbacks, second askings, what becomes a finding. Replies are scripted, parsing is real."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from nightmill.build.acceptance import only_proven, proven_rows
from nightmill.build.milestones import Plan
from nightmill.errors import BadReply, StageFailed
from nightmill.gate.languages import pack
from nightmill.gate.languages.python import PythonPack
from nightmill.gate.proof import Proof
from nightmill.graph.stage import Stage
from nightmill.paths import load_dodo

load_dodo()  # registers `stages`

from stages.analysis import analysis  # noqa: E402
from stages.contract import contract, draft  # noqa: E402
from stages.contract_review import contract_review  # noqa: E402
from stages.plan import plan  # noqa: E402
from stages.proof import proof as proof_stage  # noqa: E402
from stages.reviews import ip_review  # noqa: E402
from stages.schema import schema  # noqa: E402
from stages.test_matrix import test_matrix as matrix_stage  # noqa: E402
from stages.tests import tests as tests_stage  # noqa: E402

SOURCE = {
    "shop/till.py": b"LIMIT = 3\n\ndef net(cents: int) -> int:\n    return cents\n\ndef _half(x): return x\n",
    "tests/test_till.py": b"def helper(): pass\n",
}


class Scripted:
    """A stage's context whose model answers from a list; a reply that breaks a rule is what three broken ones are to the engine."""

    def __init__(self, stage: Stage, replies: list[str] | None = None, proofs: list[Proof] | None = None, **files: Any) -> None:
        self.stage, self.pack = stage, pack("python")
        self.replies, self.proofs, self.files = list(replies or []), list(proofs or []), files
        self.asked: list[SimpleNamespace] = []
        self.proved: list[dict[str, bytes]] = []
        self.notes: list[str] = []
        self.findings: list[tuple[str, str, str, str]] = []
        self.text, self.made = "", {}
        self.brought: dict[str, bytes] = {}
        self.trees: dict[str, dict[str, bytes]] = {}
        self.config = SimpleNamespace(small=lambda role: False)

    def run(self) -> Scripted:
        self.stage.body(self)  # type: ignore[arg-type]
        assert not self.replies
        return self

    def ask(self, *, facts: dict[str, Any] | None = None, sections: dict[str, str] | None = None, **task: Any) -> Any:
        self.asked.append(SimpleNamespace(facts=facts or {}, sections=sections or {}, task=task))
        assert self.stage.reply
        return self.stage.reply.parse(self.replies.pop(0), facts or {})

    def prove(self, acceptance: dict[str, bytes], changed: frozenset[str]) -> Proof:
        self.proved.append(acceptance)
        self.changed = changed
        return self.proofs.pop(0) if len(self.proofs) > 1 else self.proofs[0]

    def read(self, name: str) -> str:
        return self.files[name.removesuffix(".md")]

    def previous(self, kind: str) -> str:
        return self.files.get(kind, "")

    def tree(self, name: str) -> dict[str, bytes]:
        return self.trees[name] if name in self.trees else self.files[name.rstrip("/")]

    def own_tests(self) -> dict[str, bytes]:
        return self.brought

    def written(self, stage: str, target: str) -> dict[str, bytes]:
        return self.trees.get("written", self.tree(target))

    def source(self) -> dict[str, bytes]:
        return SOURCE

    def write(self, text: str) -> None:
        self.text = text

    def write_tree(self, tree: dict[str, bytes]) -> None:
        self.made = tree

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finding(self, source: str, text: str, where: str = "", verdict: str = "") -> None:
        self.findings.append((source, text, where, verdict))


DRAFT = "## Public API\n- `a.py`: `def f()`\n\n## Clauses\nC1: f() is 1\n\n## Exclusions\n- none\n\n## Deviations\n- none\n"


def test_a_first_draft_carries_the_computed_public_api_on_top():
    done = Scripted(draft, ["C1: net(1) is 1"]).run()
    assert "`shop/till.py`: `def net(cents: int) -> int`" in done.text and "`LIMIT = 3`" in done.text
    assert "_half" not in done.text and "helper" not in done.text
    assert done.text.index("net(cents") < done.text.index("C1: net(1) is 1")


@pytest.mark.parametrize("review", ["VERDICT: APPROVED\n", "VERDICT: APPROVED\n- C1: could be shorter\n", "no verdict\n"])
def test_a_draft_with_nothing_to_mend_passes_through_without_a_call(review):
    assert Scripted(draft, contract=DRAFT, contract_review=review).run().text == DRAFT


def test_a_rejected_draft_is_asked_for_again_with_its_findings():
    done = Scripted(draft, ["C1: f() is 2"], contract=DRAFT, contract_review="VERDICT: REJECTED\n- C1: it is 2\n").run()
    assert done.asked[0].task["findings"] == ["C1: it is 2"]
    assert done.asked[0].sections == {"contract": DRAFT}
    assert "C1: f() is 2" in done.text


def test_after_an_approval_the_reviewer_is_not_asked_again():
    assert Scripted(contract_review, contract=DRAFT, contract_review="VERDICT: APPROVED\n").run().text == "VERDICT: APPROVED\n"


def test_a_reviewer_without_a_readable_verdict_blocks_nothing():
    done = Scripted(contract_review, ["it is fine"], contract=DRAFT).run()
    assert done.text == "no verdict" and "no readable verdict" in done.notes[0]


def test_what_the_last_review_still_found_becomes_a_finding():
    done = Scripted(contract, contract=DRAFT, contract_review="VERDICT: REJECTED\n- C1: it is 2\n").run()
    assert done.findings == [("contract_reviewer", "it is 2", "C1", "REJECTED")]
    assert done.text.startswith("# Contract\n") and done.text.endswith(DRAFT)


TWO = "C1: f() is 1\nC2 (changed): g() is 2\n"


def test_a_matrix_that_a_model_cannot_write_at_once_is_asked_for_clause_by_clause():
    done = Scripted(matrix_stage, ["I am lost", "T7 | C1 | f() | 1", "rubbish"], contract=TWO).run()
    assert [asked.task["only"] for asked in done.asked] == ["", "C1", "C2"]
    assert "| T1 | C1 | f() | 1 |" in done.text
    assert [finding[2] for finding in done.findings] == ["C2"]


def test_a_contract_without_a_clause_says_what_to_write():
    with pytest.raises(StageFailed, match=r"contract\.md has no clause"):
        Scripted(matrix_stage, contract="Just prose.").run()


def test_claims_with_a_false_place_are_struck_and_noted():
    text = "- true (shop/till.py:3)\n- past the end (shop/till.py:99)\n- other file (x.py:1)\n- nowhere"
    done = Scripted(analysis, [text]).run()
    assert done.text == "# Analysis\n\n- true (shop/till.py:3)"
    assert len(done.notes) == 3


def test_an_unreadable_analysis_costs_only_itself():
    assert "NONE" in Scripted(analysis, ["well, it depends"]).run().text


def test_a_public_name_that_the_schema_dropped_is_noted():
    done = Scripted(schema, ["shop/till.py\n```python\ndef gross() -> int:\n    raise NotImplementedError\n```\n"]).run()
    assert set(done.made) == {"shop/till.py"}
    assert done.notes == ["public in the old shop/till.py, no more in the schema's: LIMIT, net"]


STUBS = {"a.py": b"def f():\n    raise NotImplementedError\n", "b.py": b"def g():\n    raise NotImplementedError\n"}


def test_without_a_usable_plan_each_file_is_its_own_milestone():
    done = Scripted(plan, ["First a, then b."], schema=STUBS).run()
    assert [m.files for m in Plan.read(done.text).milestones] == [("a.py",), ("b.py",)]
    assert "no usable plan" in done.findings[0][1]


def test_what_is_wrong_with_a_usable_plan_is_a_finding():
    done = Scripted(plan, ["## MILESTONE: all\nRISK: HARD\nDEPENDS_ON: base\nFILES: a.py, b.py\nTASK: do it\n"], schema=STUBS).run()
    assert "all: DEPENDS_ON names base, which is no milestone" in [finding[1] for finding in done.findings]
    assert any("planned as hard" in note for note in done.notes)


def test_a_final_review_reports_true_places_and_strikes_false_ones():
    text = "VERDICT: REJECTED\n- shop/till.py:3: copied\n- new.py:2: copied too\n- gone.py:1: copied\n- C1: unclear\n"
    done = Scripted(ip_review, [text], v2={"new.py": b"a\nb\n"}).run()
    assert [(who, where) for who, _, where, _ in done.findings] == [
        ("ip_counsel", "shop/till.py:3"),
        ("ip_counsel", "new.py:2"),
        ("ip_counsel", "C1"),
    ]
    assert "gone.py:1" in done.notes[0]
    assert done.text.startswith("VERDICT: REJECTED\n")


def test_an_unreadable_final_review_is_a_finding_and_no_failure():
    done = Scripted(ip_review, ["LGTM"], v2={}).run()
    assert done.findings[0][0] == "ip_counsel" and done.findings[0][3] == "none"


# -- acceptance tests -------------------------------------------------------------------------------

MATRIX = "T1 | C1 | f() | 1\nT2 | C2 | g() | 2\nT3 | C1 | f(1) | 2\n"
GOOD, BAD, EMPTY = (f"acceptance/test_a.py::{name}" for name in ("test_t1_good", "test_t2_bad", "test_t3_empty"))
FILE = """\
acceptance/test_a.py
```python
def test_t1_good():
    assert f() == 1


def test_t2_bad():
    assert h()


def test_t3_empty():
    assert 1
```
"""
AGAIN = "acceptance/test_again.py\n```python\ndef test_t2_better():\n    assert g() == 2\n```\n"
FIRST = Proof(proven=(GOOD,), broken=(BAD,), vacuous=(EMPTY,), collected=3, reasons={BAD: "no name h"})
SECOND = Proof(proven=(GOOD, "acceptance/test_again.py::test_t2_better"), collected=2, v1_ran=True)


def prove_twice(replies: list[str], proofs: list[Proof]) -> Scripted:
    return Scripted(tests_stage, replies, proofs, test_matrix=MATRIX, contract=TWO).run()


def test_rows_without_a_deciding_test_are_asked_for_once_more_by_name():
    done = prove_twice([FILE, AGAIN], [FIRST, SECOND])
    assert done.changed == {"T2"}
    assert done.asked[1].task["again"] == ("T2: broken: no name h", f"T3: it passes although nothing is implemented: {EMPTY}")
    assert set(done.made) == {"test_a.py", "test_again.py", "set_aside.md"}
    assert b"test_t2_bad" not in done.made["test_a.py"] and b"test_t3_empty" not in done.made["test_a.py"]
    assert done.made["set_aside.md"].decode() == f"- T3: it passes although nothing is implemented: {EMPTY}\n"


def test_a_useless_second_answer_keeps_what_the_first_one_proved():
    done = prove_twice([FILE, "sorry"], [FIRST])
    assert set(done.made) == {"test_a.py", "set_aside.md"}
    assert done.made["set_aside.md"].count(b"\n") == 2


def test_a_row_that_the_old_program_disputed_is_decided_only_by_a_test_that_agrees_with_it():
    again = "acceptance/test_again.py::test_t2_better"
    first = Proof(proven=(GOOD,), disputed=(BAD,), vacuous=(EMPTY,), collected=3, reasons={BAD: "V1 says 3"})
    blind = prove_twice([FILE, AGAIN], [first, SECOND])
    assert "test_again.py" not in blind.made and b"T2: it disagrees with the old program: V1 says 3" in blind.made["set_aside.md"]
    seen = prove_twice([FILE, AGAIN], [first, SECOND.model_copy(update={"agrees": (again,)})])
    assert "test_again.py" in seen.made and b"T2" not in seen.made["set_aside.md"]


def prove_again(acceptance: dict[str, bytes], proof: Proof) -> Scripted:
    done = Scripted(proof_stage, [], [proof], test_matrix=MATRIX, contract=TWO)
    done.trees = {"acceptance/": acceptance}
    return done.run()


def test_the_proof_names_rows_without_a_test_and_a_persons_test_that_proves_nothing():
    aside = {"set_aside.md": b"- T3: it passes although nothing is implemented\n"}
    mine = "acceptance/test_mine.py::test_t1_mine"
    found = prove_again(aside, Proof(proven=(GOOD,), vacuous=(mine,), collected=2, reasons={mine: "passes on the stubs"}))
    record = json.loads(found.text)
    assert record["proven"] == {"T1": [GOOD]}
    assert record["unproven"] == {"T2": "it has no test", "T3": "it passes although nothing is implemented"}
    assert [(f[0], f[2]) for f in found.findings] == [("test_engineer", "T2"), ("test_engineer", "T3"), ("proof", "T1")]


def test_the_second_answer_cannot_replace_a_proven_test():
    done = prove_twice([FILE, FILE], [FIRST])
    assert b"test_t1_good" in done.made["test_a.py"]
    assert "may not write acceptance/test_a.py" in done.notes[0]


def test_when_nothing_is_proven_the_stage_fails_and_says_what_to_do():
    with pytest.raises(StageFailed, match="no acceptance test is able to decide"):
        prove_twice([FILE, "sorry"], [Proof(broken=(GOOD, BAD, EMPTY), collected=3)])


def test_a_proof_that_could_not_be_made_is_no_verdict_on_the_tests():
    with pytest.raises(StageFailed, match="could not be tried: disk full"):
        prove_twice([FILE], [Proof(trouble="disk full")])


def test_one_disputed_case_takes_the_authority_of_its_whole_test():
    proof = Proof(proven=("a.py::test_t1_x[1]", "a.py::test_t2_y"), disputed=("a.py::test_t1_x[2]",))
    assert proven_rows(proof) == {"T2"}
    assert only_proven(pack("python"), {"a.py": "def test_t1_x(): pass\n", "b.py": "x = 1"}, proof) == {}


def test_a_test_is_cut_out_with_its_decorators_and_nothing_else():
    text = "import x\n\n\n@x.mark(\n    1,\n)\ndef test_t1_a():\n    pass\n\n\n"
    text += "class TestC:\n    def test_t2_b(self):\n        y = 1\n\n\ndef test_t3_c():\n    assert x\n"
    cut = PythonPack().without(text, {"test_t1_a", "TestC::test_t2_b"})
    compile(cut, "cut", "exec")
    assert "test_t1_a" not in cut and "mark" not in cut and "y = 1" not in cut
    assert cut.startswith("import x\n") and cut.endswith("def test_t3_c():\n    assert x\n")


def test_a_test_of_a_class_does_not_go_with_its_namesake():
    text = "def test_t1_a():\n    pass\n\n\nclass TestC:\n    def test_t1_a(self):\n        pass\n"
    assert "class TestC:\n    def test_t1_a" in PythonPack().without(text, {"test_t1_a"})


def test_a_broken_rule_is_never_swallowed_where_the_artifact_is_needed():
    with pytest.raises(BadReply):
        Scripted(draft, ["no clause at all"]).run()
    with pytest.raises(BadReply):
        Scripted(schema, ["no file at all"]).run()
