"""The reply classes of the document stages: what they tolerate, which rule they name, and that every stub parses."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightmill.build.milestones import Plan
from nightmill.calls.numbered import Clause, Row
from nightmill.errors import BadReply
from nightmill.gate.languages import pack
from nightmill.graph.stage import Stage
from nightmill.paths import load_dodo

load_dodo()  # registers `stages`

from stages import analysis, contract, contract_review, plan, reviews, schema, test_matrix, tests  # noqa: E402
from stages.analysis import Analysis, Place  # noqa: E402
from stages.contract import Contract  # noqa: E402
from stages.schema import Schema  # noqa: E402
from stages.test_matrix import Matrix  # noqa: E402
from stages.tests import AcceptanceTests  # noqa: E402

PYTHON = pack("python")
FACTS: dict[str, Any] = {
    "pack": PYTHON,
    "source": ("shop/till.py",),
    "rows": ("T1", "T2"),
    "clauses": ("C1", "C2"),
    "stub_files": ("main.py",),
}
STAGES = [
    member
    for module in (contract, contract_review, test_matrix, analysis, schema, tests, plan, reviews)
    for member in vars(module).values()
    if isinstance(member, Stage)
]
ASKING = [stage for stage in STAGES if stage.reply]


@pytest.mark.parametrize("stage", ASKING, ids=lambda stage: stage.name)
def test_the_stub_of_every_stage_parses_with_its_own_reply_class(stage):
    assert stage.reply and stage.reply.parse(stage.stub, FACTS | {"clauses": ("C1",)})


@pytest.mark.parametrize("stage", ASKING, ids=lambda stage: stage.name)
def test_no_stage_takes_another_roles_reply_for_its_own(stage):
    for other in ASKING:
        if other.reply is not stage.reply and not (issubclass(other.reply, Schema) and stage.reply is AcceptanceTests):
            with pytest.raises(BadReply, match=r".{20}"):
                stage.reply.parse(other.stub, FACTS)


@pytest.mark.parametrize("stage", ASKING, ids=lambda stage: stage.name)
@pytest.mark.parametrize(
    "text", ["", "\n\n", "I am sorry, but I cannot help with that.", "{}", "```\n```", "<html><body>502</body></html>"]
)
def test_an_empty_or_foreign_reply_is_refused_with_a_rule(stage, text):
    with pytest.raises(BadReply, match=r".{20}"):
        stage.reply.parse(text, FACTS)


PIECES = (
    "C1: ~C2 (changed): ~T1 | C1 | a | b~| T2 | C2 | a |~- ~x (shop/till.py:3)~NONE~## Clauses\n~## Exclusions\n~**~`~\n~\n\n"
    "~```python\n~```\n~main.py\n~acceptance/test_a.py\n~def test_t1_x():\n    assert 1\n~def f():\n  raise NotImplementedError\n~é~|~\r\n"
)
ROUGH = st.lists(st.sampled_from(PIECES.split("~")), max_size=25).map("".join)


@pytest.mark.parametrize("stage", ASKING, ids=lambda stage: stage.name)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(text=st.one_of(ROUGH, st.text()))
def test_any_text_parses_or_says_what_to_mend(stage, text):
    try:
        assert stage.reply.parse(text, FACTS)
    except BadReply as rule:
        assert len(str(rule)) > 20


# -- contract ---------------------------------------------------------------------------------------

CHATTY = """\
Of course! Here is the contract.

```markdown
## Clauses

### Totals
**C1**: net(cents) rounds half up;
net(5) is 1.
- **C2 (changed):** all errors at once, in order:
  - amounts
  - names

* C3 [kept]: the empty list gives 0

### Output
C04. The last line ends with a newline.

## Exclusions
1. No colours.
- none

**Deviations**

- net(-1) is -1; kept.
```

I hope this helps! C5 would be next.
"""


def test_a_contract_is_read_through_fences_headings_bold_and_chatter():
    read = Contract.parse(CHATTY, {})
    assert read.clauses == (
        Clause("C1", "net(cents) rounds half up;\nnet(5) is 1."),
        Clause("C2", "all errors at once, in order:\n- amounts\n- names", True),
        Clause("C3", "the empty list gives 0"),
        Clause("C4", "The last line ends with a newline."),
    )
    assert read.exclusions == ("No colours.",)
    assert read.deviations == ("net(-1) is -1; kept.",)


def test_a_contract_is_read_back_equal_from_its_file():
    made = Contract.parse(CHATTY, {})
    assert Contract.read("# Contract\n\n## Public API\n- `a.py`: `def f(C1: int)`\n\n" + made.text) == made


def test_a_clause_number_used_twice_is_refused():
    with pytest.raises(BadReply, match="C1 stands more than once"):
        Contract.parse("C1: one\nC2: two\nC1: three", {})


def test_clauses_copied_from_the_prompts_example_do_not_count():
    with pytest.raises(BadReply, match="no clause"):
        Contract.parse(Contract.FORMAT.partition("Example of clauses:")[2], {})


@pytest.mark.parametrize(
    "line", ["C1: text", "C1 - text", "**C1.** text", "| C1 | text |", "- `C1`: text", "#### C1: text", "C1) text", "c1: text"]
)
def test_a_clause_is_found_in_any_decoration(line):
    assert Contract.parse(line, {}).clauses == (Clause("C1", "text"),)


@given(
    st.lists(
        st.text(alphabet=st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=30), min_size=1, max_size=4
    )
)
def test_a_contract_in_canonical_form_is_stable(texts):
    once = Contract.read("\n".join(f"C{n}: {text}" for n, text in enumerate(texts, 1)))
    assert Contract.read(once.text).clauses == once.clauses


# -- test matrix ------------------------------------------------------------------------------------


def test_rows_are_read_from_tables_bullets_and_bare_lines():
    table = "Here:\n| id | clause | input | expected |\n|---|:--:|---|---|\n| **T1** | C1 | `f(0)` | 0 |\n"
    text = table + "- T2 | C2 | a \\| b | x |\nT3 | C1 | g() | 1\nDone."
    assert Matrix.parse(text, FACTS).rows == (Row("T1", "C1", "f(0)", "0"), Row("T2", "C2", "a | b", "x"), Row("T3", "C1", "g()", "1"))


def test_a_matrix_is_read_back_equal_from_its_file():
    made = Matrix((Row("T1", "C1", "a | b", "x"), Row("T2", "C2", "f()", "'|'")))
    assert Matrix.read(made.text) == made


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("T1 | C1 | f() | 1", "No row tests C2"),
        ("T1 | C1 | f() | 1\nT1 | C2 | f() | 1", "T1 stands more than once"),
        ("T1 | C1 | f() | 1\nT2 | C9 | f() | 1", r"no clause C9\. Use only these clauses: C1, C2"),
        ("T1 | C1 |  | 1\nT2 | C2 | f() | 1", "T1 has an empty cell"),
        ("T1 | C1 | f()", "no row"),
    ],
)
def test_a_broken_row_is_named(text, rule):
    with pytest.raises(BadReply, match=rule):
        Matrix.parse(text, FACTS)


# -- analysis ---------------------------------------------------------------------------------------


def test_a_claim_that_is_written_again_and_again_is_one_claim():
    assert len(Analysis.parse("- Sorted once (a.py:3)\n- Sorted once (a.py:3)\n- Sorted once (a.py:3)\n", {}).claims) == 1


def test_claims_keep_all_their_places():
    claims = Analysis.parse("- **Sorted** once (a/b.py:3-5), relied on in (`c.py:7`)\n- no place\n\nThat's it.", {}).claims
    assert [claim.places for claim in claims] == [(Place("a/b.py", 3, 5), Place("c.py", 7, 7)), ()]


@pytest.mark.parametrize("text", ["NONE", "**NONE**", "None of it matters.\nNONE.", "```\nNONE\n```"])
def test_none_is_an_answer(text):
    assert Analysis.parse(text, {}).claims == ()


@pytest.mark.parametrize(
    ("place", "true"),
    [
        (Place("shop/till.py", 1, 1), True),
        (Place("shop/till.py", 8, 10), True),
        (Place("shop/till.py", 8, 11), False),
        (Place("shop/till.py", 5, 4), False),
        (Place("shop/till.py", 0, 0), False),
        (Place("till.py", 2, 2), True),
        (Place("cli.py", 2, 2), False),
        (Place("ill.py", 2, 2), False),
    ],
)
def test_a_place_is_true_when_its_lines_exist_in_one_file(place, true):
    assert analysis._true_place(place, {"shop/till.py": 10, "a/cli.py": 9, "b/cli.py": 9}) is true


# -- schema -----------------------------------------------------------------------------------------


def block(path: str, text: str) -> str:
    return f"{path}\n```python\n{text}\n```\n"


STUBS = """\
from typing import Protocol

LIMIT = 3

class Clock(Protocol):
    def now(self) -> int: ...

def f(x: int) -> int:
    '''Doc.'''
    raise NotImplementedError"""


def test_a_schema_of_stubs_is_taken():
    assert set(Schema.parse(block("shop/till.py", STUBS), FACTS).files) == {"shop/till.py"}


@pytest.mark.parametrize(
    ("path", "text", "rule"),
    [
        ("a.py", "def f():\n    return 1\n", r"replace the body by `raise NotImplementedError` in a\.py: f"),
        ("a.py", "class A:\n    def g(self):\n        pass\n", r"a\.py: A\.g"),
        ("a.py", "def f(:\n", r"a\.py:1: "),
        ("a.py", "X = 1\n", "no function to implement"),
        ("schema/a.py", STUBS, r"write a\.py instead of schema/a\.py"),
        ("conftest.py", STUBS, r"conftest\.py: "),
    ],
)
def test_a_schema_that_is_no_skeleton_is_refused_with_what_to_change(path, text, rule):
    with pytest.raises(BadReply, match=rule):
        Schema.parse(block(path, text), FACTS)


# -- acceptance tests -------------------------------------------------------------------------------


def test_tests_named_after_their_rows_are_taken():
    function = "import pytest\n\n@pytest.mark.parametrize('x', [1])\ndef test_t1_a(x):\n    assert x\n\n"
    text = function + "class TestMore:\n    def test_t02_b(self):\n        assert 1"
    assert AcceptanceTests.parse(block("acceptance/test_a.py", text), FACTS)


@pytest.mark.parametrize(
    ("path", "text", "rule"),
    [
        (
            "acceptance/test_a.py",
            "def test_rounding():\n    assert 1",
            "test_rounding: a test's name starts with the number of its row, such as test_t1_name",
        ),
        ("acceptance/test_a.py", "def test_t9_x():\n    assert 1", "T9 is not asked for: write tests for T1"),
        ("acceptance/test_a.py", "x = 1", "no test function"),
        ("acceptance/test_a.py", "def test_t1_x(:\n", r"acceptance/test_a\.py:1: "),
        ("tests/test_a.py", "def test_t1_x():\n    assert 1", r"tests/test_a\.py is not of the form"),
        ("acceptance/conftest.py", "def test_t1_x():\n    assert 1", r"conftest\.py is not of the form"),
    ],
)
def test_tests_that_no_row_can_claim_are_refused(path, text, rule):
    with pytest.raises(BadReply, match=rule):
        AcceptanceTests.parse(block(path, text), FACTS)


def test_the_plan_of_last_resort_lists_every_file_with_stubs():
    made = Plan.read("\n".join(plan._by_file(file, ("f", "C.g")) for file in ("shop/till.py", "shop/cli.py")))
    assert not made.faults
    assert [m.files for m in made.milestones] == [("shop/till.py",), ("shop/cli.py",)]


@pytest.mark.parametrize("piece", ["#", "*", " ", "> ", "`", "|", "-", "- ", "**a", "C1, ", "VERDICT: ", "a.", "- x\n", "C1: x\n"])
def test_a_reply_of_one_piece_over_and_over_costs_no_more_than_its_length(piece):
    started = time.monotonic()
    for stage in ASKING:
        with contextlib.suppress(BadReply):
            stage.reply.parse(piece * 20_000, FACTS)
    assert time.monotonic() - started < 10
