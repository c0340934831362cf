"""Two at once, signals, and a person who edits while the machine works: nothing is lost, nobody is overwritten."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fake_server import FakeServer, Say
from nightmill.run.events import Event
from runs import DOIT, NIGHTMILL, environment, events_of, run


def slow_reply(root: Path, stage: str, seconds: float) -> None:
    path = root / "replies" / f"{stage.replace(':', '-')}.1.md"
    path.write_text(f"<!-- scripted: stall={seconds} -->\n{path.read_text()}")


@contextmanager
def working(root: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [*DOIT, *arguments],
        cwd=root,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def await_event(root: Path, found: Callable[[Event], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not any(found(e) for e in events_of(root)):
        assert time.monotonic() < end, "never happened"
        time.sleep(0.02)


def calling(stage: str) -> Callable[[Event], bool]:
    return lambda e: e.kind == "call_started" and e.stage == stage


def running(stage: str) -> Callable[[Event], bool]:
    return lambda e: e.kind == "stage_started" and e.stage == stage


# -- two at once -------------------------------------------------------------------------------


def test_whoever_comes_second_is_told_who_works_and_changes_nothing(demo_run: Path) -> None:
    slow_reply(demo_run, "contract:1", 60)
    with working(demo_run) as first:
        await_event(demo_run, calling("contract:1"))
        for command, verb in ((DOIT, "run"), (DOIT, "forget"), (NIGHTMILL, "redo"), (NIGHTMILL, "keep"), (NIGHTMILL, "merge")):
            second = run(demo_run, verb, *([] if verb == "run" else ["intake"]), command=command)
            assert second.code == 75
            assert f"nightmill (pid {first.pid}, since " in second.err and len(second.err.splitlines()) == 1
        for command, verb in ((DOIT, "list"), (NIGHTMILL, "status"), (NIGHTMILL, "why")):
            assert run(demo_run, verb, command=command).code == 0
        first.send_signal(signal.SIGTERM)
        assert first.wait(20) == 130


def test_no_verb_of_doit_runs_a_stage_beside_the_lock(demo_run: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("doit strace needs strace")
    run(demo_run, "strace", "intake")
    assert not (demo_run / "source.md").exists()


# -- signals -----------------------------------------------------------------------------------


def stopped_in_order(root: Path, child: subprocess.Popen[str], number: signal.Signals) -> None:
    began = time.monotonic()
    child.send_signal(number)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 130, out + err
    assert "Traceback" not in out + err and "stopped" in out
    assert time.monotonic() - began < 10
    assert events_of(root)[-1].kind == "run_ended"
    assert not any(e.kind == "stage_finished" and e.status == "failed" for e in events_of(root)), "nobody is charged for a stop"


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_stops_a_call(demo_run: Path, workers: str, number: signal.Signals) -> None:
    slow_reply(demo_run, "contract:1", 60)
    with working(demo_run, "-n", workers) as child:
        await_event(demo_run, calling("contract:1"))
        stopped_in_order(demo_run, child, number)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.slow
def test_a_signal_stops_a_proof_and_the_stage_did_not_fail(finished_run: Path, workers: str) -> None:
    before = len(events_of(finished_run))
    run(finished_run, "forget", "tests")
    shutil.rmtree(finished_run / ".nightmill/gates")  # what the tests did on the stubs is remembered
    with working(finished_run, "-n", workers) as child:
        end = time.monotonic() + 60
        while not any(running("tests")(e) for e in events_of(finished_run)[before:]):
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.3)
        stopped_in_order(finished_run, child, signal.SIGTERM)
    assert run(finished_run, "tests").code == 0


def test_a_signal_ends_the_wait_for_a_loading_server(demo_run: Path) -> None:
    with FakeServer([Say("never")], loading=10**6) as server:
        (demo_run / "run.yaml").write_text(
            f'source: v1\nproviders: {{local: {{url: "{server.url}"}}}}\nmodels: {{default: {{provider: local, model: fake-model}}}}\n'
        )
        with working(demo_run) as child:
            await_event(demo_run, running("contract:1"))
            time.sleep(0.5)
            stopped_in_order(demo_run, child, signal.SIGHUP)


def test_a_second_signal_ends_at_once_and_the_lock_is_free(demo_run: Path) -> None:
    slow_reply(demo_run, "contract:1", 60)
    with working(demo_run) as child:
        await_event(demo_run, calling("contract:1"))
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 130
    assert run(demo_run, "intake").code == 0


# -- edits while a stage runs ------------------------------------------------------------------


@pytest.mark.slow
def test_a_file_written_while_its_stage_makes_it_stays_and_the_new_text_lies_beside_it(finished_run: Path) -> None:
    slow_reply(finished_run, "analysis", 3)
    assert run(finished_run, "redo", "analysis", command=NIGHTMILL).code == 0
    before = len(events_of(finished_run))
    with working(finished_run, "analysis") as child:
        while not any(calling("analysis")(e) for e in events_of(finished_run)[before:]):
            time.sleep(0.02)
        (finished_run / "analysis.md").write_text("- mine (tearoom/money.py:1)\n")
        out, err = child.communicate(timeout=30)
    assert child.returncode == 75, out + err
    assert "analysis.md.proposed" in out and "nightmill keep analysis" in out
    assert (finished_run / "analysis.md").read_text() == "- mine (tearoom/money.py:1)\n"
    assert (finished_run / "analysis.md.proposed").is_file()
    assert run(finished_run, "keep", "analysis", command=NIGHTMILL).code == 0
    assert run(finished_run).code == 0
    assert (finished_run / "analysis.md").read_text() == "- mine (tearoom/money.py:1)\n"


@pytest.mark.slow
def test_an_input_edited_while_a_stage_runs_is_read_again(demo_run: Path) -> None:
    slow_reply(demo_run, "contract:1", 1.5)
    with working(demo_run, "contract:1") as child:
        await_event(demo_run, calling("contract:1"))
        with (demo_run / "mission.md").open("a") as mission:
            mission.write("\nOne more wish.\n")
        out, err = child.communicate(timeout=30)
    assert child.returncode == 0, out + err
    assert len([e for e in events_of(demo_run) if calling("contract:1")(e)]) == 2
    assert run(demo_run, "why", "contract:1", command=NIGHTMILL).out == "contract:1: fresh\n"


def test_merge_leaves_a_conflict_for_the_person_to_settle(finished_run: Path) -> None:
    text = (finished_run / "analysis.md").read_text()
    first = next(line for line in text.splitlines() if line.startswith("- "))
    (finished_run / "analysis.md").write_text(text.replace(first, "- mine (tearoom/money.py:1)"))
    reply = finished_run / "replies/analysis.1.md"
    reply.write_text("- something else altogether (tearoom/money.py:1)\n")
    (finished_run / "mission.md").write_text((finished_run / "mission.md").read_text() + "\nmore\n")
    (finished_run / "contract.md").write_text((finished_run / "contract.md").read_text() + "\nby hand\n")
    done = run(finished_run, "merge", "analysis", command=NIGHTMILL)
    assert done.code == 75 and "analysis.md.proposed" in done.err
    assert "- mine" in (finished_run / "analysis.md").read_text()
    assert {"- mine (tearoom/money.py:1)", "- something else altogether (tearoom/money.py:1)"} <= set(
        (finished_run / "analysis.md.proposed").read_text().splitlines()
    )


# -- plans written by hand ---------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "First the money, then the rest.\n", "\x00\x01"])
@pytest.mark.slow
def test_a_plan_without_milestones_is_told_with_the_remedy(finished_run: Path, text: str) -> None:
    (finished_run / "plan.md").write_text(text)
    done = run(finished_run, "integrate")
    assert done.code == 3 and "plan.md has no milestone" in done.out and "nightmill redo plan" in done.out
    assert run(finished_run, "redo", "plan", command=NIGHTMILL).code == 0
    assert run(finished_run, "plan").code == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("DEPENDS_ON: none", "DEPENDS_ON: nobody", "DEPENDS_ON names nobody, which is no milestone"),
        ("DEPENDS_ON: none", "DEPENDS_ON: receipt", "these milestones wait for each other"),
        ("FILES: tearoom/money.py", "FILES: tearoom/money.py, ../evil.py", "`../evil.py` in FILES is not one path"),
    ],
)
@pytest.mark.slow
def test_what_is_wrong_with_a_plan_written_by_hand_is_found_once(finished_run: Path, old: str, new: str, said: str) -> None:
    path = finished_run / "plan.md"
    path.write_text(path.read_text().replace(old, new, 1))
    for _ in range(2):
        assert run(finished_run, "plan").code == 0
    told = [e.text for e in events_of(finished_run) if e.kind == "finding" and said in e.text]
    assert len(told) == 1


def test_a_milestone_taken_out_of_the_plan_leaves_its_work_where_it_is(finished_run: Path) -> None:
    path = finished_run / "plan.md"
    head, _, _ = path.read_text().partition("## MILESTONE: receipt")
    path.write_text(head)
    status = run(finished_run, "status", command=NIGHTMILL).out
    assert "left over  milestones/receipt, waves/2" in status
    assert "implement:receipt" not in run(finished_run, "list").out
    run(finished_run, "plan")
    assert (finished_run / "milestones/receipt").is_dir()


# -- names on the command line -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["contract.md", "./contract.md", "v2/", "implement", "implement:*", "contract*", "merge:1"])
def test_stages_groups_patterns_and_targets_can_be_chosen(finished_run: Path, name: str) -> None:
    done = run(finished_run, name)
    assert (done.code, done.started) == (0, []), done.out + done.err


@pytest.mark.parametrize("name", ["implement:nobody", "nothing*", "contracts.md", "/etc/passwd"])
def test_a_name_of_nothing_is_wrong_use(finished_run: Path, name: str) -> None:
    done = run(finished_run, name)
    assert done.code == 3 and f"no stage or file {name}" in done.out + done.err
    assert done.started == []


@pytest.mark.parametrize("arguments", [["-n", "-1"], ["-n", "many"], ["-k"], ["--bogus"], ["-d", "/tmp"]])
def test_a_wrong_option_is_one_line(finished_run: Path, arguments: list[str]) -> None:
    done = run(finished_run, *arguments)
    assert done.code == 3 and len(done.err.splitlines()) == 1 and done.err.startswith("nightmill: ")


def test_clean_removes_nothing(finished_run: Path) -> None:
    before = sorted(p for p in finished_run.rglob("*") if p.is_file())
    assert run(finished_run, "clean").code == 0
    assert sorted(p for p in finished_run.rglob("*") if p.is_file()) == before


def test_leftovers_of_a_killed_run_are_swept_and_a_persons_files_are_not(finished_run: Path) -> None:
    ours = [finished_run / f".summary.json.{'0a' * 6}.tmp", finished_run / "v2" / f".x.py.{'0a' * 6}.old.tmp"]
    theirs = [finished_run / "v1" / ".notes.tmp", finished_run / "draft.tmp"]
    for path in (*ours, *theirs):
        path.write_text("x")
    run(finished_run)
    assert not any(path.exists() for path in ours) and all(path.exists() for path in theirs)


def test_many_workers_end_as_one(demo_run: Path) -> None:
    assert run(demo_run, "-n", "99", "contract").code == 0
    assert run(demo_run, "-n", "0", "contract").started == []


def test_a_run_works_wherever_it_lies(finished_run: Path, tmp_path: Path) -> None:
    for name in ("with space é", "-dash", "n" * 200):
        moved = tmp_path / name
        finished_run.rename(moved)
        assert run(moved).events == ()
        finished_run = moved
