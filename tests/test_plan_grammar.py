"""The plan: what its grammar tolerates, which problems it names, how it becomes waves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.build.milestones import SLUG, Plan, dependencies, problems, slug, waves
from nightmill.errors import BadReply


def plan_of(*milestones: tuple[str, str | None]) -> Plan:
    """(name, DEPENDS_ON or None for no such line) → a plan whose milestone x writes x.py."""
    return Plan.read(
        "\n".join(
            f"## MILESTONE: {name}\nRISK: EASY\n" + ("" if on is None else f"DEPENDS_ON: {on}\n") + f"FILES: {name}.py\nTASK: do {name}\n"
            for name, on in milestones
        )
    )


def test_the_canonical_form_is_read_back_equal():
    plan = plan_of(("a", "none"), ("b", None), ("c", "a, b"))
    assert Plan.read(plan.text) == plan
    assert not problems(plan)


def test_an_absent_line_means_the_milestone_before_and_none_means_independent():
    plan = plan_of(("a", None), ("b", None), ("c", "none"))
    assert [m.depends_on for m in plan.milestones] == [None, None, ()]
    assert dependencies(plan) == {"a": (), "b": ("a",), "c": ()}
    assert waves(plan) == (("a", "c"), ("b",))


def test_an_empty_depends_on_is_no_claim_of_independence():
    plan = plan_of(("a", "none"), ("b", ""))
    assert plan.milestones[1].depends_on is None
    assert waves(plan) == (("a",), ("b",))


@pytest.mark.parametrize("none", ["none", "None.", "NONE", "`none`", "(none)", "n/a", "[none]", "**none**"])
def test_every_spelling_of_none_is_a_claim_of_independence(none):
    assert plan_of(("a", "none"), ("b", none)).milestones[1].depends_on == ()


def test_waves_are_kahns_layers():
    plan = plan_of(("a", "none"), ("b", "none"), ("c", "a"), ("d", "b, c"), ("e", "b"))
    assert waves(plan) == (("a", "b"), ("c", "e"), ("d",))


def test_a_milestone_may_depend_on_a_later_one():
    assert waves(plan_of(("a", "b"), ("b", "none"))) == (("b",), ("a",))


def test_an_unknown_name_is_reported_and_the_plan_is_built_one_at_a_time():
    plan = plan_of(("a", "none"), ("b", "none"), ("c", "parser"))
    assert waves(plan) == (("a",), ("b",), ("c",))
    assert "c: DEPENDS_ON names parser, which is no milestone" in problems(plan)


def test_a_cycle_is_reported_by_its_names_and_built_one_at_a_time():
    plan = plan_of(("start", "none"), ("a", "c"), ("b", "a"), ("c", "b"), ("after", "c"))
    assert waves(plan) == (("start",), ("a",), ("b",), ("c",), ("after",))
    assert "a → c → b → a: these milestones wait for each other" in problems(plan)


def test_a_milestone_that_waits_for_itself_is_a_cycle():
    assert "a → a: these milestones wait for each other" in problems(plan_of(("a", "a")))


def test_repeated_names_are_reported_and_stay_distinct():
    plan = plan_of(("Parse It", "none"), ("parse-it", "none"))
    assert [m.name for m in plan.milestones] == ["parse-it", "parse-it-2"]
    assert any("two milestones have this name" in p for p in problems(plan))


def test_a_file_in_two_milestones_is_reported():
    plan = Plan.read("## MILESTONE: a\nFILES: x.py\nTASK: t\n## MILESTONE: b\nFILES: x.py, y.py\nTASK: t\n")
    assert problems(plan) == ("x.py: in the FILES of a and b",)


MESSY = """\
Sure! Here is the plan:

```markdown
**MILESTONE 1: Money Rules**
- **Risk:** easy
- **Depends on:** None
- **Files:**
  - `shop/money.py`
  - ./shop/round.py (new)
- **Task:** Implement `net` and
  `gross`.

  1. Round half up.
     Files: are not read here.

### Milestone: till
* risk: Medium
* depends_on: [Money Rules]
* files: shop\\till.py,
         shop/cli.py
* task: The rest.
```
Let me know if you want changes!
"""


def test_bold_bullets_case_numbering_fences_and_chatter_are_tolerated():
    first, second = Plan.read(MESSY).milestones
    assert (first.name, first.title, first.risk, first.depends_on) == ("money-rules", "Money Rules", "EASY", ())
    assert first.files == ("shop/money.py", "shop/round.py")
    assert first.task.startswith("Implement `net` and\n  `gross`.") and "Files: are not read here." in first.task
    assert (second.risk, second.depends_on, second.files) == ("HARD", ("money-rules",), ("shop/till.py", "shop/cli.py"))
    assert waves(Plan.read(MESSY)) == (("money-rules",), ("till",))


@pytest.mark.parametrize("path", ["/etc/passwd", "../x.py", "a/../../x.py", "~/x.py", "C:\\x.py", "a b.py", "src/"])
def test_a_path_outside_the_project_is_left_out_and_named(path):
    plan = Plan.read(f"## MILESTONE: a\nFILES: good.py, {path}\nTASK: t\n")
    assert plan.milestones[0].files == ("good.py",)
    assert any(f"`{path.replace(chr(92), '/')}`" in p for p in problems(plan))


def test_a_reply_must_list_every_file_with_stubs():
    text = plan_of(("a", "none")).text
    assert Plan.parse(text, {"stub_files": ("a.py",)}).milestones[0].files == ("a.py",)
    with pytest.raises(BadReply, match=r"b/c\.py has stubs but is in no FILES line"):
        Plan.parse(text, {"stub_files": ("a.py", "b/c.py")})


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "no milestone"),
        ("I would first do the parser, then the rest.", "no milestone"),
        ("VERDICT: APPROVED", "no milestone"),
        ("## MILESTONE: a\nRISK: EASY\nTASK: t", "no FILES"),
        ("## MILESTONE: a\nRISK: EASY\nFILES: a.py", "no TASK"),
        ("## MILESTONE: a\nFILES: a.py\nTASK: t\n## MILESTONE: A\nFILES: b.py\nTASK: t", "two milestones"),
    ],
)
def test_a_reply_that_a_build_cannot_start_from_is_refused_with_its_rule(text, rule):
    with pytest.raises(BadReply, match=rule):
        Plan.parse(text, {})


def test_a_slice_holds_its_own_milestone_only():
    before, after = plan_of(("a", "none"), ("b", "a")), plan_of(("a", "none"), ("b", "a"))
    edited = Plan.read(after.text.replace("do b", "do b well"))
    assert edited.milestones[0].slice == before.milestones[0].slice
    assert edited.milestones[1].slice != before.milestones[1].slice


def test_a_name_without_ascii_letters_gets_a_name_of_its_own():
    assert slug("解析") != slug("检查")
    assert slug("Über die Brücke") == "uber-die-brucke"


@given(st.text(max_size=200))
def test_every_slug_is_one_safe_path_component(title):
    name = slug(title)
    assert 0 < len(name) <= SLUG
    assert not name.startswith("-") and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")


WORDS = st.sampled_from(
    ["a", "b", "c", "none", "a, b", "", "- a", "x/y.py", "../z", "EASY", "HARD", "**", "`", "text", "Files: q.py", "RISK", "é", ","]
)
LABELS = st.sampled_from(
    ["## MILESTONE: ", "MILESTONE 2: ", "RISK: ", "DEPENDS_ON: ", "FILES: ", "TASK: ", "**Task:** ", "- ", "", "  ", "```", "# "]
)
PLANS = st.lists(st.tuples(LABELS, WORDS), max_size=25).map(lambda parts: "\n".join(label + word for label, word in parts))


@given(st.one_of(PLANS, st.text()))
def test_no_text_whatever_crashes_or_hangs_a_plan(text):
    plan = Plan.read(text)
    names = [m.name for m in plan.milestones]
    assert len(set(names)) == len(names)
    assert sorted(name for wave in waves(plan) for name in wave) == sorted(names)
    assert all(isinstance(problem, str) and problem for problem in problems(plan))
    built: set[str] = set()
    for wave in waves(plan):
        assert all(built.issuperset(dependencies(plan)[name]) for name in wave)
        built.update(wave)


@given(st.one_of(PLANS, st.text()))
def test_the_canonical_form_is_stable(text):
    plan = Plan.read(text)
    again = Plan.read(plan.text)
    assert again.text == plan.text
    assert waves(again) == waves(plan)


@given(st.one_of(PLANS, st.text()))
def test_a_reply_parses_or_says_what_to_mend(text):
    try:
        Plan.parse(text, {"stub_files": ("x.py",)})
    except BadReply as rule:
        assert len(str(rule)) > 20
