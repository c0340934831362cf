"""kill -9 at random moments: nothing finished is asked twice, no artifact is torn, and the end is that of an uninterrupted run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from nightmill import demo
from nightmill.run.journal import Journal
from nightmill.run.trees import file_hash
from runs import DOIT, environment, events_of, product, run

SLOW_REPLY = "<!-- scripted: chunk=300 delay=0.02 -->\n"


def prepared(base: Path) -> Path:
    """The demo with replies that take their time, so that kills hit calls too."""
    root = demo.prepare(base, None)
    for reply in (root / "replies").rglob("*.md"):
        text = reply.read_text(encoding="utf-8")
        if not text.startswith("<!-- scripted:") and reply.name != "README.md":
            reply.write_text(SLOW_REPLY + text, encoding="utf-8")
    return root


def kill_after(root: Path, workers: int, seconds: float) -> bool:
    """Starts doit and kills it; False when it had ended before."""
    command = [*DOIT, "-n", str(workers)] if workers > 1 else DOIT
    with subprocess.Popen(
        command, cwd=root, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as child:
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            return True
        assert child.returncode == 0, child.stderr and child.stderr.read().decode()
    return False


def check_whole(root: Path) -> None:
    """Every artifact that lies there is a text that the journal knows as a whole."""
    known = {(e.path, e.sha) for e in Journal(root / ".nightmill" / "journal.jsonl")}
    ours = {e.path for e in Journal(root / ".nightmill" / "journal.jsonl")}
    torn = [path for path in ours if (root / path).is_file() and (path, file_hash(root / path)) not in known]
    assert torn == []


def kill_until_done(root: Path, workers: int, kills: int, seed: int) -> int:
    """Kills up to `kills` times, then lets it finish. Returns how often it was really killed."""
    dice = random.Random(seed)
    done = 0
    for _ in range(kills):
        if not kill_after(root, workers, dice.uniform(0.3, 3.0)):
            break
        done += 1
        check_whole(root)
    last = run(root, *(["-n", str(workers)] if workers > 1 else []))
    assert last.code == 0, last.out + last.err
    return done


def check_calls(root: Path, kills: int, workers: int) -> None:
    events = events_of(root)
    finished = Counter(e.key for e in events if e.kind == "call_finished" and e.outcome == "ok" and not e.replayed)
    started = Counter(e.key for e in events if e.kind == "call_started")
    assert set(finished.values()) == {1}, "a finished call was asked again"
    interrupted = sum(started.values()) - sum(finished.values())
    assert interrupted <= kills * workers


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_killed_again_and_again_ends_as_an_uninterrupted_one(tmp_path: Path, workers: int) -> None:
    whole = prepared(tmp_path / "whole")
    assert run(whole).code == 0
    wanted = int(os.environ.get("NIGHTMILL_KILLS", "20"))
    kills = seed = 0
    while kills < wanted:
        seed += 1
        root = prepared(tmp_path / f"{workers}-{seed}")
        here = kill_until_done(root, workers, min(wanted - kills, 12), seed)
        check_calls(root, here, workers)
        assert product(root) == product(whole)
        assert run(root).events == ()
        kills += here


@pytest.mark.slow
def test_a_signal_stops_a_run_in_order_and_doit_goes_on(tmp_path: Path) -> None:
    root = prepared(tmp_path)
    with subprocess.Popen(
        DOIT, cwd=root, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(1.5)
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 130
    assert events_of(root)[-1].kind == "run_ended"
    asked = {e.key for e in events_of(root) if e.kind == "call_finished" and e.outcome == "ok"}
    again = run(root)
    assert again.code == 0, again.err
    assert not asked & {e.key for e in again.events if e.kind == "call_started"}
