"""From a pipeline as dodo.py writes it to the stages and doit tasks of one run: rounds, milestones and waves as the plan stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.errors import ConfigError
from nightmill.graph.pipeline import LAST_WAVE, Rounds, Waves, expand, steps_of
from nightmill.graph.session import Session
from nightmill.graph.stage import Stage
from nightmill.graph.tasks import tasks
from nightmill.paths import load_dodo
from small_runs import configure, make, opened, scratch, small_run


def body(ctx: object) -> None:
    """Never run here."""


PIPELINE = (
    make("intake", body, (), ("source.lock",)),
    Rounds(make("draft", body, ("mission.md",)), make("review", body, ("mission.md",)), then=make("contract", body, (), ("contract.md",))),
    make("schema", body, ("contract.md", "source/"), ("schema/",)),
    make("plan", body, ("schema/",), ("plan.md",), plans=True),
    Waves(make("implement", body, ("contract.md",), ("milestones/NAME/",)), make("merge", body, ("contract.md",), ("waves/N/",))),
    make("integrate", body, ("contract.md", LAST_WAVE), ("v2/", "gate.md")),
    make("report", body, (), ("report.html",), closing=True),
)


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as folder:
        yield small_run(folder / "run")


def plan(root: Path, *milestones: tuple[str, str, str], task: str = "do it") -> None:
    """(name, DEPENDS_ON, FILES) each."""
    blocks = [f"## MILESTONE: {n}\nRISK: EASY\nDEPENDS_ON: {on}\nFILES: {files}\nTASK: {task} in {n}\n" for n, on, files in milestones]
    (root / "plan.md").write_text("\n".join(blocks))


def stages(root: Path) -> dict[str, Stage]:
    return {s.name: s for s in expand(PIPELINE, opened(root))}


def depends(root: Path, session: Session | None = None) -> dict[str, list[str]]:
    session = session or opened(root)
    return {t["basename"]: t["task_dep"] for t in tasks(session, expand(PIPELINE, session))}


# -- rounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4])
def test_rounds_are_unrolled_as_often_as_run_yaml_says(root: Path, count: int) -> None:
    configure(root, contract={"rounds": count})
    names = [name for name in stages(root) if name.startswith(("contract", "review"))]
    assert names == [n for k in range(1, count + 1) for n in (f"contract:{k}", f"review:{k}")] + ["contract"]


def test_a_draft_sees_the_last_draft_and_its_review_and_nothing_older(root: Path) -> None:
    configure(root, contract={"rounds": 3})
    found = stages(root)
    assert found["contract:1"].needs == ("mission.md",)
    assert found["review:1"].needs == ("mission.md", "drafts/contract.1.md")
    assert found["contract:3"].needs == ("mission.md", "drafts/contract.2.md", "drafts/review.2.md")
    assert found["contract"].needs == ("drafts/contract.3.md", "drafts/review.3.md")
    assert [found[n].subject for n in ("contract:1", "review:3")] == ["1", "3"]


# -- waves -------------------------------------------------------------------------------------


def test_without_a_plan_no_milestone_is_known_and_what_follows_waits_for_the_plan(root: Path) -> None:
    assert not [name for name in stages(root) if ":" in name and name.startswith(("implement", "merge"))]
    assert stages(root)["integrate"].needs == ("contract.md", "plan.md")
    assert depends(root)["integrate"] == ["contract", "plan"]


@pytest.mark.parametrize("text", ["", "I will write the plan later.\n", "\x00\xff"])
def test_a_plan_without_a_milestone_is_no_plan(root: Path, text: str) -> None:
    (root / "plan.md").write_bytes(text.encode("latin-1"))
    assert stages(root)["integrate"].needs == ("contract.md", "plan.md")


def test_milestones_of_a_wave_share_the_tree_of_the_wave_before(root: Path) -> None:
    plan(root, ("a", "none", "a.py"), ("b", "none", "b.py"), ("c", "a, b", "c.py"))
    found = stages(root)
    assert found["implement:a"].needs == found["implement:b"].needs == ("contract.md", "schema/")
    assert found["merge:1"].needs == ("contract.md", "schema/", "milestones/a/", "milestones/b/")
    assert found["implement:c"].needs == ("contract.md", "waves/1/")
    assert found["merge:2"].needs == ("contract.md", "waves/1/", "milestones/c/")
    assert [found[n].makes for n in ("implement:c", "merge:2")] == [("milestones/c/",), ("waves/2/",)]
    assert found["implement:c"].subject == "c"


def test_the_last_wave_is_the_last_one_whatever_its_number(root: Path) -> None:
    for count in (1, 2, 5):
        plan(root, *[(f"m{k}", f"m{k - 1}" if k > 1 else "none", f"m{k}.py") for k in range(1, count + 1)])
        assert stages(root)["integrate"].needs == ("contract.md", f"waves/{count}/")


def test_a_plan_that_changes_changes_the_graph_the_next_time_it_is_looked_at(root: Path) -> None:
    plan(root, ("a", "none", "a.py"))
    before = set(stages(root))
    plan(root, ("a", "none", "a.py"), ("new", "a", "new.py"))
    assert set(stages(root)) - before == {"implement:new", "merge:2"}
    plan(root, ("new", "none", "new.py"))
    assert "implement:a" not in stages(root) and "merge:2" not in stages(root)


def test_a_plan_with_a_cycle_is_built_one_at_a_time(root: Path) -> None:
    plan(root, ("a", "b", "a.py"), ("b", "a", "b.py"))
    assert [n for n in stages(root) if n.startswith(("implement", "merge"))] == ["implement:a", "merge:1", "implement:b", "merge:2"]


# -- slices ------------------------------------------------------------------------------------


def slices(root: Path) -> dict[str, str]:
    return {name: s.slice for name, s in stages(root).items() if s.slice}


def edited(root: Path, old: str, new: str) -> set[str]:
    """Names of the stages whose slice changed."""
    before = slices(root)
    text = (root / "plan.md").read_text()
    assert old in text
    (root / "plan.md").write_text(text.replace(old, new))
    after = slices(root)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_an_edited_task_changes_the_slice_of_its_milestone_alone(root: Path) -> None:
    plan(root, ("a", "none", "a.py"), ("b", "none", "b.py"), ("c", "a", "c.py"))
    assert edited(root, "do it in b", "do it well in b") == {"implement:b"}
    assert edited(root, "FILES: c.py", "FILES: c.py, d.py") == {"implement:c"}


def test_an_edited_task_reaches_those_who_share_a_file_because_it_says_whose_function_is_whose(root: Path) -> None:
    plan(root, ("a", "none", "both.py"), ("b", "none", "both.py, b.py"), ("c", "none", "c.py"))
    assert edited(root, "do it in a", "implement net in a") == {"implement:a", "implement:b"}


def test_words_around_the_milestones_change_no_slice(root: Path) -> None:
    plan(root, ("a", "none", "a.py"), ("b", "none", "b.py"))
    assert edited(root, "## MILESTONE: a", "# The plan\n\nSome words.\n\n## MILESTONE: a") == set()


def test_a_milestone_that_joins_a_wave_changes_that_waves_merge_and_no_other_milestone(root: Path) -> None:
    plan(root, ("a", "none", "a.py"), ("b", "a", "b.py"))
    new = "## MILESTONE: n\nRISK: EASY\nDEPENDS_ON: none\nFILES: n.py\nTASK: new\n\n## MILESTONE: b"
    assert edited(root, "## MILESTONE: b", new) == {"implement:n", "merge:1"}


# -- tasks -------------------------------------------------------------------------------------


def test_a_task_depends_on_the_stages_that_make_what_it_needs(root: Path) -> None:
    plan(root, ("a", "none", "a.py"), ("b", "none", "b.py"), ("c", "a, b", "c.py"))
    found = depends(root)
    assert found["contract:1"] == []
    assert found["contract:2"] == ["contract:1", "review:1"]
    assert found["schema"] == ["contract", "intake"], "source/ is made by intake"
    assert found["implement:c"] == ["contract", "merge:1"]
    assert found["merge:2"] == ["contract", "merge:1", "implement:c"]
    assert found["integrate"] == ["contract", "merge:2"]


def test_a_group_stands_for_all_its_milestones_unless_a_stage_has_that_name(root: Path) -> None:
    plan(root, ("a", "none", "a.py"), ("b", "none", "b.py"))
    found = depends(root)
    assert found["implement"] == ["implement:a", "implement:b"]
    assert found["review"] == ["review:1", "review:2"]
    assert found["contract"] == ["contract:2", "review:2"], "the stage itself, not the group of its rounds"


def test_a_task_tells_doit_its_help_its_files_and_its_roles(root: Path) -> None:
    session = opened(root)
    found = {t["basename"]: t for t in tasks(session, expand(PIPELINE, session))}
    assert found["integrate"]["targets"] == ["v2", "gate.md"]
    assert found["integrate"]["doc"] == "Never run here."
    real = {t["basename"]: t for t in tasks(session, expand(load_dodo().PIPELINES["rewrite"], session))}
    assert real["contract:1"]["meta"] == {"needs": ["mission.md", "source/"], "roles": ["architect"]}


PLANS = st.lists(
    st.tuples(
        st.sampled_from("abcde"), st.sampled_from(["none", "a", "b, c", "e", "zz", ""]), st.sampled_from(["a.py", "b.py, a.py", "c.py"])
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(milestones=PLANS)
def test_whatever_the_plan_no_task_depends_on_itself_or_on_a_later_one_and_no_file_has_two_makers(
    milestones: list[tuple[str, str, str]],
) -> None:
    with scratch() as folder:
        root = small_run(folder / "run")
        plan(root, *milestones)
        session = opened(root)
        for pipeline in (PIPELINE, load_dodo().PIPELINES["rewrite"]):
            made = expand(pipeline, session)
            targets = [target for s in made for target in s.makes]
            assert sorted(set(targets)) == sorted(targets)
            done: set[str] = set()
            for task in tasks(session, made):
                if task["actions"]:
                    assert set(task["task_dep"]) <= done, task["basename"]
                    done.add(task["basename"])
            assert len(done) == len(made)
            assert not any(LAST_WAVE in s.needs for s in made)


def test_every_declared_stage_of_a_pipeline_is_listed_before_any_run_is_known() -> None:
    assert [s.name for s in steps_of(PIPELINE)] == [
        *("intake", "draft", "review", "contract", "schema", "plan", "implement", "merge", "integrate", "report")
    ]


def test_an_unknown_pipeline_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"there is no pipeline `rewrit`; known: .*rewrite"):
        load_dodo().pipeline_of("rewrit")
