"""The console against a pipe, a pty and streams that vanish."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.board import Board
from nightmill.console import Console, StageLine, terminal_safe
from nightmill.lines import one_line, seconds, stopwatch
from nightmill.run.events import CallStarted, EditRefused, Finding, Note, RunEnded, StageFinished, StageStarted
from run_story import attempt, call, story

TOOLS = Path(__file__).parent.parent / "tools"
TERMINAL = {"TERM": "xterm-256color"}
escapes = ["\x1b[31m", "\x1b]0;title\x07", "\x1b", "\x9b2J", "\r", "\x00", "\u202e", "[bold]", "\x1bP"]
nasty = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(escapes)))


def plain(*events: object, quiet: bool = False, stages: tuple[StageLine, ...] = ()) -> str:
    stream = io.StringIO()
    console = Console(stream, quiet=quiet, environ={})
    if stages:
        console.plan(stages)
    for event in events:
        console.on_event(event)  # type: ignore[arg-type]
    console.close()
    return stream.getvalue()


@given(nasty)
def test_safe_text_holds_no_control_character_and_is_stable(parts: list[str]) -> None:
    safe = terminal_safe("".join(parts))
    assert not any((ord(c) < 32 and c not in "\t\n") or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in safe)
    assert terminal_safe(safe) == safe
    safe.encode()


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"])))
def test_harmless_text_passes_unchanged(text: str) -> None:
    assert terminal_safe(text) == text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("\x1b[1;31merror\x1b[0m[E0308]", "error[E0308]"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1b]52;c;never closed\nnext", "a52;c;never closed\nnext"),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
        ("\ud800", "\ufffd"),
        ("\x1b(Bx\x1b7y", "xy"),
    ],
)
def test_escapes_go_and_the_words_stay(text: str, safe: str) -> None:
    assert terminal_safe(text) == safe


@given(nasty)
def test_no_model_text_brings_an_escape_or_a_second_line_to_the_plain_stream(parts: list[str]) -> None:
    text = "".join(parts)
    out = plain(
        StageStarted(stage="plan", why=text),
        EditRefused(stage="plan", attempt=1, reasons=(text,)),
        StageFinished(stage="plan", status="failed", reason=text),
    )
    assert "\x1b" not in out
    assert "\r" not in out
    assert out.count("\n") == len(out.splitlines()) == 3


def test_a_story_is_told_in_one_line_an_event() -> None:
    out = plain(*story())
    assert "contract:1" in out and "started: never made" in out and "made in 5.0 s" in out
    assert "made in 2.0 s, 1 finding" in out
    assert "no answer from coder-7b (idle)" in out
    assert "reply refused: The reply holds no file." in out
    assert "attempt 1 (rewrite): red" in out
    assert "edit refused (attempt 2): SEARCH block 1 matches two places in ledger.py" in out
    assert "held: reviews/ip.md was edited by hand" in out
    assert "waiting (exit 75): ip_review is held" in out
    assert "left out to fit the window: analysis" in out


def test_a_run_with_nothing_to_do_says_so_and_never_imports_rich() -> None:
    code = f"""
import sys; sys.path.insert(0, {str(TOOLS)!r})
from nightmill.console import Console, StageLine
from nightmill.run.events import RunEnded, RunStarted
c = Console(sys.stdout, tty=True, environ={TERMINAL!r})
c.on_event(RunStarted(pid=1, version="0", command="doit"))
c.plan([StageLine("intake", "", "fresh")])
c.on_event(RunEnded(exit=0, word="done"))
c.close()
assert not any(m.split(".")[0] == "rich" for m in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("nothing to do: 1 stage fresh\n")
    assert "\x1b" not in done.stdout


def test_quiet_is_silent_on_success() -> None:
    assert plain(*story()[:-2], RunEnded(exit=0, word="done"), quiet=True) == ""


def test_quiet_prints_one_summary_that_names_what_waits() -> None:
    out = plain(*story(), quiet=True)
    assert out.splitlines()[0].endswith("waiting (exit 75): ip_review is held")
    assert "held: reviews/ip.md was edited by hand and v2/ changed: nightmill keep ip_review" in out
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {}, {"TERM": ""}])
def test_a_dumb_terminal_gets_plain_lines(environ: dict[str, str]) -> None:
    stream = io.StringIO()
    console = Console(stream, tty=True, environ=environ)
    for event in story():
        console.on_event(event)
    console.close()
    assert "\x1b" not in stream.getvalue()
    assert "started: never made" in stream.getvalue()


def test_a_stream_that_cannot_say_the_characters_gets_question_marks() -> None:
    raw = io.BytesIO()
    console = Console(io.TextIOWrapper(raw, encoding="ascii", write_through=True), tty=True, environ=TERMINAL)
    console.say("größer · 1")
    assert raw.getvalue().endswith(b"gr??er ? 1\n")


def on_pty(environ: dict[str, str], *, size: tuple[int, int] = (100, 30), pieces: int = 10) -> str:
    """What a terminal receives while two stages run, one call streaming in each."""
    master, slave = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    received: list[bytes] = []

    def drain() -> None:
        try:
            while data := os.read(master, 65536):
                received.append(data)
        except OSError:  # the other end closed
            return

    reader = threading.Thread(target=drain)
    reader.start()
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        console = Console(stream, environ=environ)
        console.plan([StageLine(name, "a doc", "stale", "") for name in ("contract", "plan", "ip_review")])
        for stage in ("contract", "plan"):
            console.on_event(StageStarted(stage=stage, why="mission.md changed"))
            console.on_event(call(time.time(), stage, "1")[0])
        for _ in range(pieces):
            console.tokens("contract", "contract#1", "tok ")
            time.sleep(0.04)
        console.on_event(Note(stage="plan", text="[bold red]\x1b[2Jmodel text[/]"))
        console.on_event(StageFinished(stage="contract", status="made", seconds=1.5))
        console.on_event(StageFinished(stage="plan", status="failed", reason="no milestone named"))
        console.on_event(RunEnded(exit=1, word="failed", reason="plan: no milestone named"))
        console.close()
    reader.join()
    os.close(master)
    return b"".join(received).decode()


def test_a_terminal_shows_stages_and_the_running_call_and_keeps_what_finished() -> None:
    out = on_pty(TERMINAL, pieces=35)
    assert "coder-7b · reading 1,000 tokens" in out
    assert re.search(r"~\d+ tokens · \d+\.\d tokens/s", out)
    assert "stale: a doc" in out
    assert "made in 1.5 s" in out
    assert "[bold red]model text[/]" in out  # markup of a model is text
    assert "\x1b[2J" not in out
    ending = out[out.rindex("\x1b[2K") :]
    assert "failed (exit 1): plan: no milestone named" in ending
    assert "\x1b[?25l" not in ending  # the cursor is visible when we leave


def test_no_color_keeps_the_display_and_drops_the_colours() -> None:
    coloured, out = on_pty(TERMINAL), on_pty({**TERMINAL, "NO_COLOR": "1"})
    assert "\x1b[32m" in coloured
    assert "made in 1.5 s" in out
    assert not any(f"\x1b[{style}m" in out for style in ("31", "32", "33", "36", "1;31", "1;36"))


def test_the_display_fits_a_small_terminal() -> None:
    frames = on_pty(TERMINAL, size=(40, 6)).split("\x1b[2m───")
    assert any("and 1 running, 1 stale" in frame for frame in frames)
    assert all(frame.count("\n") <= 5 for frame in frames[:-1])


def test_a_reader_that_goes_away_does_not_end_the_run() -> None:
    read, write = os.pipe()
    stream = os.fdopen(write, "w")
    console = Console(stream)
    console.say("heard")
    os.close(read)
    for event in story():
        console.on_event(event)
    console.close()
    stream.close()  # nothing is left that could fail


@pytest.mark.parametrize("tty", [True, False])
def test_a_closed_stream_does_not_end_the_run(tty: bool) -> None:
    stream = io.StringIO()
    console = Console(stream, tty=tty, environ=TERMINAL)
    stream.close()
    for event in story():
        console.on_event(event)
    console.close()
    console.close()


def test_a_hung_up_terminal_does_not_end_the_run() -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        console = Console(stream, environ=TERMINAL)
        console.on_event(StageStarted(stage="plan"))
        os.close(master)
        for event in story():
            console.on_event(event)
        console.close()


def test_lines_of_many_threads_do_not_mix() -> None:
    stream = io.StringIO()
    console = Console(stream, environ={})

    def work(name: str) -> None:
        for i in range(50):
            console.on_event(StageStarted(stage=name, why=f"{name}-{i}"))
            console.on_event(CallStarted(stage=name, label="x", key="k", provider="p", model="m", prompt_tokens=1))
            console.tokens(name, "x", "piece")
            console.on_event(StageFinished(stage=name, status="made"))

    threads = [threading.Thread(target=work, args=(f"s{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 600
    assert sorted(line.split()[-1] for line in lines if "started" in line) == sorted(f"s{i}-{j}" for i in range(6) for j in range(50))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_silent_stream_is_said_to_be_silent_and_a_large_piece_counts_as_many_tokens() -> None:
    board = Board(clock=(clock := Clock()))
    board.apply(StageStarted(stage="plan"))
    board.apply(call(0, "plan", "1")[0])
    board.tokens("plan", "plan#1", "x" * 400)
    clock.now += 10
    text = board.view(20).rows[1].text
    assert text == "coder-7b · ~100 tokens · 9.9 tokens/s · silent for 10 s"
    assert board.view(20).rows[1].elapsed == 10


def test_tokens_of_an_unknown_call_are_passed_over_and_a_finished_stage_has_no_calls() -> None:
    board = Board()
    board.tokens("plan", "plan#1", "x")
    board.apply(StageStarted(stage="plan"))
    board.apply(call(0, "plan", "1")[0])
    board.apply(StageFinished(stage="plan", status="stopped"))
    assert [row.state for row in board.view(20).rows] == ["stale"]


def test_replayed_calls_cost_nothing_on_the_board() -> None:
    board = Board()
    for event in [*call(0, "plan", "1"), *call(0, "plan", "2", replayed=True)]:
        board.apply(event)
    assert (board.spent.calls, board.spent.tokens) == (1, 1200)


def test_a_new_plan_keeps_what_this_run_made_and_what_runs() -> None:
    board = Board()
    board.plan([StageLine("plan", "", "stale"), StageLine("gone", "", "stale")])
    board.apply(StageStarted(stage="plan"))
    board.plan([StageLine("plan", "", "stale"), StageLine("new", "", "stale")])
    assert [(row.name, row.state) for row in board.view(9).rows] == [("plan", "running"), ("new", "stale")]
    board.apply(attempt(0, "plan", 1, "red", 1))
    assert board.view(9).rows[0].text == "attempt 1 red, 1 of 2 tests pass"
    board.apply(StageFinished(stage="plan", status="made"))
    board.plan([StageLine("plan", "", "fresh"), StageLine("new", "", "stale")])
    assert board.view(9).rows[0].state == "made"


@given(st.lists(st.sampled_from(["fresh", "stale", "running", "held", "failed", "made"]), max_size=40), st.integers(1, 30))
def test_what_matters_stays_in_view_and_the_rest_is_counted(states: list[str], rows: int) -> None:
    board = Board()
    board.plan([StageLine(f"s{i}", "", state) for i, state in enumerate(states)])  # type: ignore[arg-type]
    view = board.view(rows)
    hidden = sum(int(part.split()[0]) for part in view.hidden.split(", ")) if view.hidden else 0
    assert len(view.rows) + hidden == len(states)
    assert len(view.rows) + bool(hidden) <= max(rows, 2)
    names = [int(row.name[1:]) for row in view.rows]
    assert names == sorted(names)
    if states.count("running") < rows:
        assert sum(row.state == "running" for row in view.rows) == states.count("running")


def test_findings_are_counted_afresh_for_each_execution() -> None:
    remark = Finding(stage="ip", source="ip_counsel", text="copied")
    end = StageFinished(stage="ip", status="made")
    out = plain(StageStarted(stage="ip"), remark, remark, end, StageStarted(stage="ip"), remark, end)
    assert [line.rpartition(", ")[2] for line in out.splitlines() if "made" in line] == ["2 findings", "1 finding"]


def test_durations_read_well() -> None:
    assert [seconds(s) for s in (0.04, 9.96, 59.4, 59.6, 249, 3750)] == ["0.0 s", "10.0 s", "59 s", "1:00", "4:09", "1:02:30"]
    assert [stopwatch(s) for s in (0.9, 61, 3600)] == ["0:00", "1:01", "1:00:00"]
    assert one_line("a\n  b\tc", 4) == "a b…"
