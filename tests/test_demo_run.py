"""The bundled mission from end to end through the real command, and what happens when a person edits something and runs doit again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runs import NIGHTMILL, Ran, events_of, product, run

DOWNSTREAM_OF_CONTRACT = {
    *("contract", "test_matrix", "analysis", "schema", "tests", "plan", "integrate"),
    *("production_review", "formal_review", "ip_review"),
}


def edit(path: Path, change: Callable[[str], str]) -> None:
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))


def implementations(stages: list[str]) -> set[str]:
    return {s for s in stages if s.startswith("implement:")}


def test_the_demo_ends_green_after_one_patch_with_one_rejection_noted(finished: Path) -> None:
    events = events_of(finished)
    gate = [e for e in events if e.kind == "gate_ran" and e.stage == "verify"][-1]
    assert gate.record.verdict == "green"
    outcomes = {}
    for e in events:
        if e.kind == "attempt_finished":
            outcomes.setdefault(e.stage, []).append((e.asked, e.outcome))
    assert sorted(len(attempts) for attempts in outcomes.values()) == [1, 1, 2]
    assert [("rewrite", "red"), ("patch", "green")] in outcomes.values()
    assert "REJECTED" in (finished / "deviations.md").read_text()
    assert len({e.stage for e in events if e.kind == "stage_started" and e.stage.startswith("merge:")}) == 2


def test_a_second_doit_starts_nothing_and_says_nothing(finished_run: Path) -> None:
    done = run(finished_run)
    assert (done.code, done.events, done.out, done.err) == (0, (), "", "")


def test_losing_doits_database_costs_no_call(finished_run: Path) -> None:
    (finished_run / ".nightmill" / "doit.db").unlink()
    assert run(finished_run).events == ()


def test_forgetting_everything_replays_every_call_and_ends_the_same(finished_run: Path) -> None:
    before = product(finished_run)
    assert run(finished_run, "forget").code == 0
    done = run(finished_run)
    assert (done.code, done.asked) == (0, [])
    assert "integrate" in done.made
    assert product(finished_run) == before


def check_kept(root: Path, path: str, done: Ran) -> None:
    assert "edited by hand" in (root / path).read_text()
    assert done.code == 0, done.err


def test_an_edited_contract_is_kept_and_what_depends_on_it_is_made_again(finished_run: Path) -> None:
    edit(finished_run / "contract.md", lambda t: t.replace("## Exclusions", "## Exclusions\n- edited by hand"))
    why = run(finished_run, "why", command=NIGHTMILL)
    assert "contract: kept" in why.out
    done = run(finished_run)
    check_kept(finished_run, "contract.md", done)
    assert "contract" not in done.started and "contract:2" not in done.started
    assert {"test_matrix", "analysis", "schema", "tests", "plan", "integrate"} <= set(done.made)


def test_one_edited_task_of_the_plan_remakes_that_milestone_alone(finished_run: Path) -> None:
    milestones = sorted(p.name for p in (finished_run / "milestones").iterdir())
    plan = (finished_run / "plan.md").read_text()
    name = next(m for m in milestones if f"MILESTONE: {m}" in plan)
    head, _, tail = plan.partition(f"MILESTONE: {name}")
    (finished_run / "plan.md").write_text(f"{head}MILESTONE: {name}{tail.replace('TASK: ', 'TASK: (edited by hand) ', 1)}")
    done = run(finished_run)
    check_kept(finished_run, "plan.md", done)
    assert implementations(done.started) == {f"implement:{name}"}
    assert not {"contract", "schema", "tests", "plan", "integrate"} & set(done.started)


def test_an_edited_skill_remakes_the_stages_that_use_it(finished_run: Path, pipeline_copy: Path) -> None:
    edit(pipeline_copy / "skills" / "inductive_reasoner.md", lambda t: t + "\nOne more sentence.\n")
    assert "analysis: stale" in run(finished_run, "why", command=pipeline_command(pipeline_copy)).out
    done = run(finished_run, "run", command=pipeline_command(pipeline_copy))
    assert done.started[:1] == ["analysis"]
    assert not {"contract", "test_matrix", "production_review"} & set(done.started)


def test_an_edited_partial_remakes_exactly_the_asking_stages(finished_run: Path, pipeline_copy: Path) -> None:
    edit(pipeline_copy / "templates" / "_rules.md.j2", lambda t: t + "- One more rule.\n")
    why = run(finished_run, "why", command=pipeline_command(pipeline_copy)).out
    stale = {line.split(": stale")[0] for line in why.splitlines() if line.endswith(": stale")}
    assert not {"intake", "baseline", "contract", "deviations", "report"} & stale
    assert {"contract:1", "contract_review:1", "analysis", "tests", "plan", "merge:1", "integrate", "ip_review"} <= stale


def test_another_model_for_a_role_remakes_the_stages_of_that_role(finished_run: Path) -> None:
    reviewer = "  reviewer: {provider: scripted, model: another}\n\nbudgets:"
    edit(finished_run / "run.yaml", lambda t: t.replace("\nbudgets:", reviewer, 1))
    why = run(finished_run, "why", command=NIGHTMILL).out
    stale = {line.split(": stale")[0] for line in why.splitlines() if line.endswith(": stale")}
    assert {"contract_review:1", "contract_review:2", "production_review", "formal_review", "ip_review"} <= stale
    assert not {"contract:1", "test_matrix", "schema", "tests", "plan", "integrate"} & stale
    assert run(finished_run).code == 0


@pytest.mark.slow
def test_an_edited_acceptance_test_is_kept_and_gates_again(finished_run: Path) -> None:
    path = next((finished_run / "acceptance").glob("test_*.py"))
    edit(path, lambda t: t + "\n# edited by hand\n")
    done = run(finished_run)
    check_kept(finished_run, path.relative_to(finished_run).as_posix(), done)
    assert implementations(done.started) == {f"implement:{p.name}" for p in (finished_run / "milestones").iterdir()}
    assert "integrate" in done.started and not {"contract", "schema", "tests", "plan"} & set(done.started)


@pytest.mark.slow
def test_a_hand_edit_of_v2_is_judged_by_the_tests_like_anything_else(finished_run: Path) -> None:
    path = next((finished_run / "v2").rglob("money.py"))
    edit(path, lambda t: t + "\n# edited by hand\n")
    check_kept(finished_run, path.relative_to(finished_run).as_posix(), run(finished_run))
    for broken in ("\ndef broken(:\n", "\nraise SystemExit\n"):
        edit(path, lambda t, broken=broken: t.partition("# edited by hand")[0] + "# edited by hand" + broken)
        done = run(finished_run)
        assert done.code == 76 and "v2 is not proven" in done.out + done.err
        assert "Verdict: green" not in (finished_run / "gate.md").read_text()
        assert "edited by hand" in path.read_text()


@pytest.mark.slow
def test_no_text_of_a_person_stands_for_what_commands_measured(finished_run: Path) -> None:
    path = next((finished_run / "v2").rglob("money.py"))
    edit(path, lambda t: t + "\nraise SystemExit\n")
    assert run(finished_run).code == 76
    edit(finished_run / "gate.md", lambda t: "Verdict: green\n" + t)
    held = run(finished_run)
    assert held.code == 75 and "nightmill redo verify" in held.out + held.err
    assert run(finished_run, "keep", "verify", command=NIGHTMILL).code == 3
    assert run(finished_run, "redo", "verify", command=NIGHTMILL).code == 0
    assert run(finished_run).code == 76


def test_an_edit_whose_inputs_change_is_held_until_the_person_decides(finished_run: Path) -> None:
    edit(finished_run / "test_matrix.md", lambda t: t + "\nedited by hand\n")
    assert run(finished_run).code == 0
    edit(finished_run / "contract.md", lambda t: t + "\nedited by hand\n")
    held = run(finished_run)
    assert held.code == 75
    assert "edited by hand" in (finished_run / "test_matrix.md").read_text()
    assert "analysis" in held.made, "other branches go on"
    kept = run(finished_run, "keep", "test_matrix", command=NIGHTMILL)
    assert kept.code == 0, kept.err
    check_kept(finished_run, "test_matrix.md", run(finished_run))


def test_redo_sets_the_text_aside_and_asks_afresh(finished_run: Path) -> None:
    edit(finished_run / "analysis.md", lambda t: t + "\nedited by hand\n")
    done = run(finished_run, "redo", "analysis", command=NIGHTMILL)
    assert done.code == 0 and "objects" in done.out
    again = run(finished_run)
    assert "analysis#1" in again.asked
    assert "edited by hand" not in (finished_run / "analysis.md").read_text()


@pytest.mark.slow
def test_merge_joins_the_edit_and_the_remade_text(finished_run: Path) -> None:
    edit(finished_run / "analysis.md", lambda t: t + "\nedited by hand\n")
    edit(finished_run / "contract.md", lambda t: t + "\nedited by hand\n")
    done = run(finished_run, "merge", "analysis", command=NIGHTMILL)
    assert done.code == 0, done.err
    assert "edited by hand" in (finished_run / "analysis.md").read_text()
    check_kept(finished_run, "analysis.md", run(finished_run))


def test_nothing_to_keep_is_wrong_use(finished_run: Path) -> None:
    done = run(finished_run, "keep", "analysis", command=NIGHTMILL)
    assert done.code == 3 and "nothing to keep" in done.err
    assert run(finished_run, "keep", "analisys", command=NIGHTMILL).code == 3


def test_doits_own_verbs_work_from_a_subfolder(finished_run: Path) -> None:
    listed = run(finished_run / "v2", "list", command=NIGHTMILL)
    assert "integrate" in listed.out and listed.code == 0
    info = run(finished_run, "info", "contract")
    assert "up-to-date" in info.out
    assert run(finished_run, "list").out == listed.out


def test_info_tells_why(finished_run: Path) -> None:
    edit(finished_run / "mission.md", lambda t: t + "\nOne more wish.\n")
    info = run(finished_run, "info", "contract:1")
    assert "input mission.md" in info.out and "→" in info.out


def test_one_stage_can_be_chosen_and_a_wrong_name_is_refused(finished_run: Path) -> None:
    edit(finished_run / "mission.md", lambda t: t + "\nOne more wish.\n")
    done = run(finished_run, "contract")
    assert done.code == 0 and "analysis" not in done.started and "contract:1" in done.started
    wrong = run(finished_run, "contrakt")
    assert wrong.code == 3 and "contrakt" in wrong.err


@pytest.fixture
def pipeline_copy(tmp_path: Path) -> Path:
    """A checkout of one's own whose skills and templates a test may edit."""
    root = Path(__file__).parent.parent
    copy = tmp_path / "checkout"
    for name in ("tools", "stages", "skills", "templates"):
        shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "dodo.py", copy / "dodo.py")
    return copy


def pipeline_command(checkout: Path) -> list[str]:
    import sys

    start = f"import sys; sys.path.insert(0, {str(checkout / 'tools')!r}); from nightmill.cli import main; sys.exit(main())"
    return [sys.executable, "-c", start]
