"""Reviews and whole files, however a model wraps them; the readers of plain text blocks under all reply classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.calls import plain
from nightmill.calls.replies import Finding, Review, WholeFiles
from nightmill.errors import BadReply

REJECTION = "VERDICT: REJECTED\n- C3: no order is given\n- missing: empty input\n- shop/till.py:12: rounds twice\n"


def test_a_plain_rejection_gives_its_findings_with_their_places():
    review = Review.parse(REJECTION, {})
    assert (review.verdict, review.approved) == ("REJECTED", False)
    assert review.findings == (
        Finding("no order is given", "C3"),
        Finding("empty input", "missing"),
        Finding("rounds twice", "shop/till.py:12"),
    )


def test_a_review_is_read_back_equal_from_its_file():
    review = Review.parse(REJECTION, {})
    assert Review.read(review.text) == review


@pytest.mark.parametrize(
    "text",
    [
        "VERDICT: APPROVED",
        "**VERDICT:** APPROVED",
        "**VERDICT: APPROVED**",
        "Verdict: `approved`.",
        "Let me look at it.\n\nAll is well.\n\nFinal verdict: **Approved**\n\nHave a nice day!",
        "```\nVERDICT: APPROVED\n```",
        "> VERDICT: APPROVED",
        "- VERDICT: APPROVED",
        "## Verdict\n\nAPPROVED",
        "## VERDICT: APPROVED",
        "VERDICT:\nAPPROVED\n",
        "VERDICT：APPROVED\r\n",
        "VERDICT: APPROVED or VERDICT: REJECTED, so:\nVERDICT: APPROVED",
    ],
)
def test_an_approval_is_found_in_any_decoration(text):
    review = Review.parse(text, {})
    assert review.approved
    assert not review.findings


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The contract looks good to me.",
        "APPROVED",
        "VERDICT: NOT APPROVED",
        "VERDICT: APPROVED or REJECTED",
        "VERDICT: MAYBE",
        "I would approve it. VERDICT: unclear",
        "T1 | C1 | fee(1) | 150",
        "## MILESTONE: a\nFILES: a.py\nTASK: t",
        "shop/price.py\n```python\nx = 1\n```",
    ],
)
def test_a_missing_verdict_is_no_rejection_but_a_broken_rule(text):
    with pytest.raises(BadReply, match=r"no verdict.*`VERDICT: APPROVED` or `VERDICT: REJECTED`"):
        Review.parse(text, {})


def test_two_different_verdicts_are_refused():
    with pytest.raises(BadReply, match="two different verdicts"):
        Review.parse("VERDICT: REJECTED\n- C1: x is wrong\n\nOn second thoughts:\nVERDICT: APPROVED", {})


@pytest.mark.parametrize("body", ["", "It is all wrong.", "- none", "- No issues found."])
def test_a_rejection_that_names_no_problem_is_refused(body):
    with pytest.raises(BadReply, match="named no problem"):
        Review.parse(f"VERDICT: REJECTED\n{body}", {})


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("- **C3**: no order", Finding("no order", "C3")),
        ("* `shop/till.py:12` - rounds twice", Finding("rounds twice", "shop/till.py:12")),
        ("1. C3: no order", Finding("no order", "C3")),
        ("- **C3:** no order", Finding("no order", "C3")),
        ("- C3, C4: contradict each other", Finding("contradict each other", "C3, C4")),
        ("- [C3] — no order", Finding("no order", "C3")),
        ("- the sum is rounded too early", Finding("the sum is rounded too early")),
        ("- shop\\till.py:12-20: twice", Finding("twice", "shop/till.py:12-20")),
        ("- C3: no order,\n  and no limit", Finding("no order, and no limit", "C3")),
        ("- C3: no order\n  - nor a limit", Finding("no order nor a limit", "C3")),
        ("| C3 | no order |", Finding("no order", "C3")),
    ],
)
def test_a_finding_keeps_its_place_in_any_decoration(line, finding):
    assert Review.parse(f"VERDICT: REJECTED\n{line}\n\nThat is all.", {}).findings == (finding,)


def test_the_verdict_words_are_the_roles_own():
    facts = {"verdicts": ("SOUND", "UNSOUND")}
    assert "VERDICT: SOUND" in Review.format(facts) and "APPROVED" not in Review.format(facts)
    assert Review.parse("VERDICT: SOUND", facts).approved
    assert not Review.parse("VERDICT: UNSOUND\n- C1: a hole", facts).approved
    with pytest.raises(BadReply, match="`VERDICT: SOUND` or `VERDICT: UNSOUND`"):
        Review.parse("VERDICT: APPROVED", facts)


def test_findings_copied_from_the_example_do_not_count():
    example = "Example\n\nVERDICT: REJECTED\n- loans/cli.py:44: the title goes into a shell string\n"
    with pytest.raises(BadReply, match="named no problem"):
        Review.parse("VERDICT: REJECTED\n- **loans/cli.py:44**: The title goes into a shell string.\n", {"example": example})


def test_the_formats_own_example_does_not_count_either():
    with pytest.raises(BadReply, match="named no problem"):
        Review.parse(Review.FORMAT.partition("Example:")[2], {})


def test_a_persons_review_without_a_verdict_is_read_without_failing():
    assert Review.read("just some words\n- C1: hm") == Review("", (Finding("hm", "C1"),))


def test_whole_files_are_taken_with_their_paths():
    reply = WholeFiles.parse("Here you are:\n\n**a/b.py**\n```python\nx = 1\n```\n", {})
    assert reply.files == {"a/b.py": "x = 1\n"}
    assert reply.tree == {"a/b.py": b"x = 1\n"}


@pytest.mark.parametrize("text", ["", "VERDICT: APPROVED", "C1: a clause", "```python\nx = 1\n```"])
def test_a_reply_without_a_file_is_refused(text):
    with pytest.raises(BadReply, match=r".{20}"):
        WholeFiles.parse(text, {})


def test_a_file_outside_the_allowed_paths_is_refused_by_name():
    with pytest.raises(BadReply, match=r"may not write b\.py\. Write only: a\.py"):
        WholeFiles.parse("b.py\n```\nx = 1\n```\n", {"paths": ("a.py",)})


ROUGH = st.lists(
    st.sampled_from(
        [
            "VERDICT: ",
            "APPROVED",
            "REJECTED",
            "- C1: x",
            "\n",
            "\n\n",
            "**",
            "`",
            "```",
            "## ",
            "| a | b |",
            "C1",
            "a.py:3",
            " ",
            "\r\n",
            "T1 | ",
            "é",
        ]
    ),
    max_size=30,
).map("".join)


@given(st.one_of(ROUGH, st.text()))
def test_a_review_parses_or_says_what_to_mend(text):
    try:
        review = Review.parse(text, {})
    except BadReply as rule:
        assert len(str(rule)) > 20
    else:
        assert Review.read(review.text).verdict == review.verdict
        assert len(Review.read(review.text).findings) == len(review.findings)


@given(st.one_of(ROUGH, st.text()))
def test_whole_files_parse_or_say_what_to_mend(text):
    try:
        assert WholeFiles.parse(text, {}).files
    except BadReply as rule:
        assert len(str(rule)) > 20


@given(
    st.lists(
        st.text(alphabet=st.characters(blacklist_characters="`\\\n\r", blacklist_categories=("Cs",)), min_size=1).filter(str.strip),
        min_size=2,
        max_size=5,
    )
)
def test_cells_with_escaped_pipes_are_read_back(cells):
    row = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    assert plain.cells(row) == [cell.strip() for cell in cells]


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ("T1 | C1 | f(`a|b`) | 2", ["T1", "C1", "f(`a|b`)", "2"]),
        ("| a || b |", ["a", "", "b"]),
        ("no pipe", []),
        ("| alone |", []),
        ("", []),
    ],
)
def test_a_pipe_in_backticks_belongs_to_its_cell(row, cells):
    assert plain.cells(row) == cells


def test_sections_end_at_other_headings_and_repeat_nothing():
    parts = plain.sections("top\n## Exclusions\n- a\n### Other\nx\n**Deviations:**\n- b\nExclusions: c\n", ("Exclusions", "Deviations"))
    assert parts == {"": ["top", "### Other", "x"], "Exclusions": ["- a", "c", ""], "Deviations": ["- b"]}


def test_chatter_below_a_list_is_not_part_of_it():
    assert plain.items(["Intro", "- a", "goes on", "", "  still a", "", "Hope this helps!", "- b"]) == ["a goes on still a", "b"]
