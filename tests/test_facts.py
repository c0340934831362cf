"""What a stage is made from, whose text lies there, and what a run makes of both: real stages of a few lines in a real run directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nightmill.errors import BadReply, OutOfBudget, StageFailed, Waiting
from nightmill.graph.context import Ctx, UndeclaredFile
from nightmill.graph.execute import execute
from nightmill.graph.facts import check, facts_of, template_closure
from nightmill.graph.session import Session
from nightmill.graph.stage import Stage
from nightmill.paths import skills_dir, templates_dir
from nightmill.run.events import Finding
from nightmill.run.trees import sha
from small_runs import configure, make, opened, scratch, small_run


def copied(ctx: Ctx) -> None:
    """Makes a file from a file."""
    ctx.write(f"made from {sha(ctx.read('mission.md'))}")


def spread(ctx: Ctx) -> None:
    """Makes a directory from a file."""
    ctx.write_tree({"one.py": b"# one of " + ctx.read("a.md").encode(), "sub/two.py": b"# two of " + ctx.read("a.md").encode()})


def joined(ctx: Ctx) -> None:
    """Makes a file from a directory."""
    ctx.write("".join(f"{rel} {sha(data)}\n" for rel, data in sorted(ctx.tree("b/").items())))


A = make("a", copied, ("mission.md",), ("a.md",))
B = make("b", spread, ("a.md",), ("b/",))
C = make("c", joined, ("b/",), ("c.md",))
STAGES = (A, B, C)


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as folder:
        yield small_run(folder / "run")


def run_all(session: Session, stages: tuple[Stage, ...] = STAGES) -> list[str]:
    """What doit does: in order, each stage that is not settled; returns the held ones. What stands behind one is not run."""
    held: list[str] = []
    blocked: set[str] = set()
    for stage in stages:
        if blocked & set(stage.needs):
            blocked |= set(stage.makes)
            continue
        if check(session, stage).up_to_date and session.run.stamps.get(stage.name):
            continue
        try:
            execute(session, stage)
        except Waiting:
            held.append(stage.name)
            blocked |= set(stage.makes)
    return held


def states(session: Session) -> list[str]:
    return [check(session, stage).state for stage in STAGES]


def test_a_run_makes_what_is_stale_in_order_and_then_everything_is_fresh(root: Path) -> None:
    assert states(opened(root)) == ["stale", "stale", "stale"]
    assert run_all(opened(root)) == []
    assert states(opened(root)) == ["fresh", "fresh", "fresh"]


def test_an_edited_input_makes_stale_what_it_reaches_one_step_at_a_time(root: Path) -> None:
    run_all(opened(root))
    (root / "mission.md").write_text("Change everything.\n")
    session = opened(root)
    assert states(session) == ["stale", "fresh", "fresh"]
    assert check(session, A).why[0].startswith("input mission.md: ")
    execute(session, A)
    assert states(session) == ["fresh", "stale", "fresh"]


def test_an_input_that_is_made_anew_with_the_same_text_stops_the_spread(root: Path) -> None:
    run_all(opened(root))
    session = opened(root)
    session.run.stamps.forget("a")
    assert states(session) == ["stale", "fresh", "fresh"]
    run_all(session)
    assert [e.stage for e in session.run.events if e.kind == "stage_started"] == ["a", "b", "c", "a"]


def test_a_persons_text_is_kept_while_its_inputs_stand_and_held_when_they_change(root: Path) -> None:
    run_all(opened(root))
    (root / "a.md").write_text("mine\n")
    assert states(opened(root)) == ["kept", "stale", "fresh"]
    assert run_all(opened(root)) == []
    assert (root / "b/one.py").read_text() == "# one of mine\n"
    (root / "mission.md").write_text("Change everything.\n")
    assert states(opened(root))[0] == "held"
    with pytest.raises(Waiting, match=r"a is held .*nightmill keep a"):
        execute(opened(root), A)
    assert (root / "a.md").read_text() == "mine\n"


@pytest.mark.parametrize("change", ["edit", "add", "delete"])
def test_a_directory_is_a_persons_as_soon_as_one_file_of_it_is(root: Path, change: str) -> None:
    run_all(opened(root))
    if change == "edit":
        (root / "b/sub/two.py").write_text("mine")
    elif change == "add":
        (root / "b/three.py").write_text("mine")
    else:
        (root / "b/one.py").unlink()
    assert states(opened(root)) == ["fresh", "kept", "stale"]
    (root / "a.md").write_text("mine\n")
    assert states(opened(root))[1] == "held"


def test_what_a_person_deleted_whole_is_made_again(root: Path) -> None:
    run_all(opened(root))
    (root / "c.md").unlink()
    assert check(opened(root), C).why == ("not as it was made: c.md",)
    assert run_all(opened(root)) == [] and (root / "c.md").is_file()


def test_a_text_that_was_there_before_the_first_run_is_kept_and_later_held(root: Path) -> None:
    (root / "a.md").write_text("mine\n")
    assert run_all(opened(root)) == []
    assert (root / "a.md").read_text() == "mine\n"
    assert states(opened(root)) == ["kept", "fresh", "fresh"]
    (root / "mission.md").write_text("Change everything.\n")
    assert states(opened(root))[0] == "held"


def test_a_text_that_was_edited_while_its_stage_ran_is_kept_and_the_new_one_proposed(root: Path) -> None:
    def slow(ctx: Ctx) -> None:
        """Somebody writes meanwhile."""
        (root / "a.md").write_text("mine\n")
        ctx.write("ours")

    with pytest.raises(Waiting, match=r"a\.md\.proposed"):
        execute(opened(root), make("a", slow, ("mission.md",), ("a.md",)))
    assert ((root / "a.md").read_text(), (root / "a.md.proposed").read_text()) == ("mine\n", "ours\n")


def test_a_stage_runs_again_when_its_input_is_edited_meanwhile_and_keeps_the_first_result_as_an_object(root: Path) -> None:
    seen: list[str] = []

    def slow(ctx: Ctx) -> None:
        """The mission changes once."""
        seen.append(ctx.read("mission.md"))
        if len(seen) == 1:
            (root / "mission.md").write_text("Changed meanwhile.\n")
        ctx.write(f"from {seen[-1]}")

    session = opened(root)
    execute(session, make("a", slow, ("mission.md",), ("a.md",)))
    assert seen == ["Keep everything.\n", "Changed meanwhile.\n"]
    assert (root / "a.md").read_text() == "from Changed meanwhile.\n"
    assert session.run.objects.get(sha("from Keep everything.\n")) == b"from Keep everything.\n"


def test_an_input_that_never_stands_still_is_waited_for_not_followed_for_ever(root: Path) -> None:
    def slow(ctx: Ctx) -> None:
        """The mission changes every time."""
        (root / "mission.md").write_text(ctx.read("mission.md") + "more\n")
        ctx.write("text")

    with pytest.raises(Waiting, match="edited 3 times while it ran"):
        execute(opened(root), make("a", slow, ("mission.md",), ("a.md",)))


def test_what_a_stage_had_when_its_budget_ended_is_kept_and_the_stage_stays_stale(root: Path) -> None:
    def poor(ctx: Ctx) -> None:
        """Writes, then runs out."""
        ctx.write("the best so far")
        raise OutOfBudget("no more calls")

    stage = make("a", poor, ("mission.md",), ("a.md",))
    with pytest.raises(OutOfBudget):
        execute(opened(root), stage)
    assert (root / "a.md").read_text() == "the best so far\n"
    assert check(opened(root), stage).state == "stale"


def test_three_refused_replies_are_a_failed_stage_that_names_the_rule(root: Path) -> None:
    def refused(ctx: Ctx) -> None:
        """The model never learns."""
        raise BadReply("Write one row per clause.")

    with pytest.raises(StageFailed, match=r"^the model's reply was refused three times: Write one row per clause\."):
        execute(opened(root), make("a", refused, ("mission.md",), ("a.md",)))


def test_a_stage_sees_and_writes_only_what_its_header_names(root: Path) -> None:
    (root / "secret.md").write_text("x")
    tries: list[Callable[[Ctx], object]] = [
        lambda ctx: ctx.read("secret.md"),
        lambda ctx: ctx.tree("v1/"),
        lambda ctx: ctx.source(),
        lambda ctx: ctx.write("x", "mission.md"),
        lambda ctx: ctx.write_tree({"x": b""}, "v1/"),
        lambda ctx: ctx.option("contract.rounds"),
    ]
    for attempt in tries:
        with pytest.raises(UndeclaredFile, match=r"stage a .*add it to"):
            attempt(Ctx(opened(root), make("a", copied, ("mission.md",), ("a.md",))))


def test_a_need_that_is_not_there_is_told_before_anything_runs(root: Path) -> None:
    with pytest.raises(StageFailed, match=r"b needs a\.md, which is not there"):
        execute(opened(root), B)
    assert list(opened(root).run.events) == []


# -- every kind of fact ------------------------------------------------------------------------


def everything(root: Path) -> Stage:
    (root / "own.py").write_text("# the stage's code\n")
    for rel, text in {"tree/one.py": "1", "opt.md": "o", "source.lock": ""}.items():
        (root / rel).parent.mkdir(exist_ok=True)
        (root / rel).write_text(text)
    return make(
        *("all", copied, ("mission.md", "tree/", "source/"), ("out.md",)),
        optional=("opt.md", "absent.md"),
        file=root / "own.py",
        skill="target_implementer",
        template="implement.md.j2",
        role="implementer",
        reviewers=("security_reviewer",),
        templates=("milestone_review.md.j2",),
        config=("build.max_iterations",),
        slice="TASK: all",
        outside=True,
        evidence=True,
    )


def written(rel: str, text: str = "changed") -> Callable[[Path, Stage], Stage]:
    def change(root: Path, stage: Stage) -> Stage:
        (root / rel).parent.mkdir(parents=True, exist_ok=True)
        (root / rel).write_text(text)
        return stage

    return change


def bound(**changes: object) -> Callable[[Path, Stage], Stage]:
    return lambda root, stage: stage.bind(**changes)


def configured(**config: object) -> Callable[[Path, Stage], Stage]:
    def change(root: Path, stage: Stage) -> Stage:
        configure(root, **config)
        return stage

    return change


def remarked(root: Path, stage: Stage) -> Stage:
    opened(root).run.events.emit(Finding(stage="other", source="somebody", text="remark"))
    return stage


MODEL = {"provider": "scripted", "model": "m", "max_tokens": 1000}
CHANGES = [
    pytest.param(written("mission.md"), ["input mission.md"], id="a needed file"),
    pytest.param(written("tree/two.py"), ["input tree/"], id="a file added to a needed directory"),
    pytest.param(
        lambda root, stage: ((root / "tree/one.py").rename(root / "tree/moved.py"), stage)[1], ["input tree/"], id="a renamed file"
    ),
    pytest.param(written("source.lock", ""), [], id="a file written with the same text"),
    pytest.param(written("source.lock", "x  y"), ["input source/"], id="the snapshot"),
    pytest.param(written("opt.md"), ["input opt.md"], id="an optional file"),
    pytest.param(written("absent.md"), ["input absent.md"], id="an optional file that appears"),
    pytest.param(written("own.py"), ["code own.py"], id="the stage's code"),
    pytest.param(written("v1/main.py"), ["source"], id="the source tree"),
    pytest.param(written("v1/.env"), [], id="a file that is no source"),
    pytest.param(bound(slice="TASK: other"), ["slice"], id="its slice of the plan"),
    pytest.param(bound(skill="merge_agent"), ["skill merge_agent", "skill target_implementer"], id="the persona"),
    pytest.param(bound(reviewers=()), ["model reviewer", "skill security_reviewer"], id="the reviewers"),
    pytest.param(bound(template="patch.md.j2"), ["template implement.md.j2", "template patch.md.j2"], id="the template"),
    pytest.param(configured(build={"max_iterations": 9}), ["option build.max_iterations"], id="an option it reads"),
    pytest.param(configured(build={"review": "last"}), [], id="an option it does not read"),
    pytest.param(
        configured(models={"default": MODEL | {"temperature": 0.3}}), ["model implementer", "model reviewer"], id="the temperature"
    ),
    pytest.param(
        configured(models={"default": MODEL | {"temperature": 0.2}, "reviewer": MODEL | {"model": "other"}}),
        ["model reviewer"],
        id="the model of one role",
    ),
    pytest.param(
        configured(providers={"scripted": {"kind": "scripted", "replies": "./replies"}}),
        [],
        id="where the provider stands",
    ),
    pytest.param(written(".nightmill/takes/all", "1"), ["take"], id="a redo"),
    pytest.param(remarked, ["evidence"], id="what other stages found"),
]


@pytest.mark.parametrize(("change", "differing"), CHANGES)
def test_exactly_the_facts_that_changed_differ(root: Path, change: Callable[[Path, Stage], Stage], differing: list[str]) -> None:
    stage = everything(root)
    before = facts_of(opened(root), stage)
    stage = change(root, stage)
    after = facts_of(opened(root), stage)
    assert sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)) == sorted(differing)


def test_skills_and_templates_count_by_content_with_all_partials(root: Path) -> None:
    facts = facts_of(opened(root), everything(root))
    assert facts["skill target_implementer"] == sha((skills_dir() / "target_implementer.md").read_bytes())
    closure = template_closure("implement.md.j2")
    for name in ("implement.md.j2", "_base.md.j2", "_rules.md.j2", "_state.md.j2"):
        assert closure.count((templates_dir() / name).read_text()) == 1
    assert facts["template implement.md.j2"] == sha(closure)


def test_facts_name_no_absolute_path_so_that_a_copied_run_agrees(root: Path) -> None:
    before = facts_of(opened(root), everything(root))
    other = root.rename(root.with_name("elsewhere"))
    after = facts_of(opened(other), everything(other))
    assert before == after
    assert str(root.parent) not in repr(after)
