"""`nightmill explain`: class, evidence, who was charged, what came next, what to do, for any event of a run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.errors import UsageError
from nightmill.explain import FINE, explain, explanation, listing
from nightmill.run.events import (
    CallFinished,
    CallStarted,
    Event,
    EventLog,
    GateRan,
    Note,
    ReplyRefused,
    RunEnded,
    RunStarted,
    StageFinished,
    StageStarted,
)
from nightmill.trouble import Entry, Log, numbered, troubles
from run_story import BEGAN, attempt, call, outcome, record, story

AGENTS = {"implement:ledger": "target_implementer", "contract:1": "mission_architect"}


def log_of(events: Sequence[Event]) -> Log:
    return Log(tuple(Entry(n, event) for n, event in enumerate(events, 1)))


def told(name: str | None = None, events: Sequence[Event] | None = None) -> dict[str, str]:
    """Heading → its lines joined; `head` is the first line."""
    lines = explanation(log_of(story() if events is None else events), name, AGENTS).splitlines()
    parts = {"head": lines[0]}
    heading = ""
    for line in lines[1:]:
        heading = line[:10].strip() or heading
        parts[heading] = f"{parts[heading]}\n{line[10:]}" if heading in parts else line[10:]
    return parts


def number(kind: type, nth: int = 0, events: Sequence[Event] | None = None) -> str:
    """`#12`: the line of the nth event of a kind."""
    return "#" + str([n for n, e in enumerate(story() if events is None else events, 1) if isinstance(e, kind)][nth])


def started(at: float = BEGAN, pid: int = 2**22 + 1) -> RunStarted:
    return RunStarted(at=at, pid=pid, version="0.1.0", command="doit")


def ended(stage: str, status: str, reason: str, error: str = "", at: float = BEGAN + 50) -> StageFinished:
    return StageFinished.model_validate({"at": at, "stage": stage, "status": status, "reason": reason, "error": error})


def dead_server() -> list[Event]:
    """Two tries at a server that is not there, then the run parks."""
    names = {"stage": "plan", "label": "plan#1", "key": "abcdef0123", "provider": "local", "model": "coder-7b"}
    sizes = {"prompt_tokens": 3000, "max_tokens": 1000, "window": 4096, "left_out": ("analysis", "tests")}
    events: list[Event] = [started(), StageStarted(at=BEGAN, stage="plan")]
    for n, step in enumerate(("asked again in 1 s", "given up for this question")):
        events += [
            CallStarted.model_validate({"at": BEGAN + n, **names, **sizes}),
            CallFinished.model_validate(
                {"at": BEGAN + n, **names, "outcome": "unreachable", "detail": "nothing listens at 127.0.0.1:8080", "next": step}
            ),
            Note(at=BEGAN + n, stage="plan", text=step),
        ]
    reason = "provider local: nothing listens at 127.0.0.1:8080 (2 tries): start the server or correct `url`"
    return [
        *events,
        ended("plan", "failed", reason, "NoProvider"),
        RunEnded(at=BEGAN + 51, exit=77, word="no provider", reason=f"plan: {reason}"),
    ]


def test_a_dead_server_is_told_with_its_evidence_and_charges_nobody() -> None:
    parts = told(events=dead_server())
    assert parts["head"].startswith("#7 ") and "plan#1: local/coder-7b: unreachable" in parts["head"]
    assert parts["class"] == "no verdict: unreachable"
    assert parts["evidence"].split("\n") == [
        "plan#1 asked local for coder-7b",
        "nothing listens at 127.0.0.1:8080",
        "try 2 of 6 of this question there",
        "prompt of 3,000 tokens + 1,000 for the answer = 4,000; the window holds 4,096",
        "left out of the prompt to fit: analysis, tests",
    ]
    assert parts["charged"] == "nobody: no reply came that could be judged"
    assert parts["next"].split("\n")[0] == "given up for this question"
    assert "#9 plan: failed: provider local" in parts["next"].split("\n")[1]
    assert [line.split()[0] for line in parts["led to"].split("\n")] == ["#9", "#10"]
    assert parts["to do"] == "start the server or correct `url`"


def test_what_was_answered_later_leaves_nothing_to_do() -> None:
    events = [*dead_server()[:-2], *call(BEGAN + 9, "plan", "1")]
    events[-1] = events[-1].model_copy(update={"label": "plan#1"})
    assert told("#4", events)["to do"].startswith("nothing: settled by #10 plan#1")
    assert told("#4", events)["next"].split("\n")[0] == "asked again in 1 s"


def test_the_providers_own_advice_comes_before_the_tables() -> None:
    events = dead_server()
    events[6] = events[6].model_copy(update={"remedy": "start it with systemctl start llama"})
    assert told("#7", events)["to do"] == "start it with systemctl start llama"


def test_another_model_than_the_named_one_is_evidence() -> None:
    events = dead_server()
    events[6] = events[6].model_copy(update={"named": "coder-70b", "prompt_tokens": 2048, "cached_tokens": 0, "outcome": "truncated"})
    evidence = told("#7", events)["evidence"]
    assert "plan#1 asked local for coder-70b; coder-7b answered" in evidence
    assert "tokens by the server's count: 2,048 prompt, 0 cached" in evidence
    assert "num_ctx" in told("#7", events)["to do"]


def test_a_red_attempt_is_told_with_what_its_gate_saw_and_charges_the_agent_that_wrote_it() -> None:
    events = story()
    red = number(type(attempt(0, "x", 1, "red", 1)), 0)
    parts = told(red, events)
    assert parts["class"] == "verdict: tests failed"
    for words in ("1 of 2 tests that count here pass", "failed acceptance/test_total.py::test_t2_half_up: assert 1.0 == 1.01"):
        assert words in parts["evidence"]
    assert "ledger.py:2: 1.0 is not 1.01" in parts["evidence"] and "bubblewrap" in parts["evidence"]
    assert parts["charged"] == "target_implementer (coder-7b)"
    assert "attempt 2 (patch) refused" in parts["next"]
    assert parts["to do"].startswith("nothing: settled by") and "verify: gate green" in parts["to do"]


def test_the_author_of_an_attempt_is_not_its_reviewer() -> None:
    review = call(BEGAN + 5, "implement:ledger", "r")[1].model_copy(
        update={"label": "implement:ledger/security_reviewer#1", "model": "big"}
    )
    events = [started(), *call(BEGAN, "implement:ledger", "w"), review, attempt(BEGAN + 9, "implement:ledger", 1, "red", 1, charged=True)]
    assert told("#5", events)["charged"] == "target_implementer (coder-7b)"


def test_a_refused_edit_is_told_with_its_reasons() -> None:
    parts = told("implement:ledger")
    assert parts["class"] == "verdict: edit refused"
    assert "SEARCH block 1 matches two places in ledger.py" in parts["evidence"]


def test_a_broken_rule_is_told_with_the_rule_and_where_the_reply_lies() -> None:
    parts = told(number(ReplyRefused))
    assert parts["class"] == "verdict: unparseable"
    assert parts["evidence"].split("\n")[1:] == ["broke the rule: The reply holds no file.", "reply in .nightmill/calls/d.json"]
    assert parts["charged"] == "target_implementer (coder-7b)"


def test_a_reviewer_who_breaks_a_rule_is_charged_under_its_own_name() -> None:
    label = "implement:ledger/security_reviewer#1"
    asked = [e.model_copy(update={"label": label}) for e in call(BEGAN, "implement:ledger", "abcdef")]
    events = [*asked, ReplyRefused(stage="implement:ledger", label=label, key="abcdef", rule="no verdict")]
    assert told("abcdef", events)["charged"] == "security_reviewer (coder-7b)"


def test_a_reply_that_is_replayed_and_refused_again_is_charged_once() -> None:
    refused = ReplyRefused(stage="implement:ledger", label="implement:ledger#a", key="a", rule="no file")
    events = [started(), *call(0, "implement:ledger", "a"), refused, started(pid=1), *call(9, "implement:ledger", "a", replayed=True)]
    assert told("#7", [*events, refused])["class"] == FINE
    assert told("#8", [*events, refused])["charged"] == "nobody: this reply was replayed, and charged at #4"
    assert told("#4", [*events, refused])["charged"] == "target_implementer (coder-7b)"
    never = [*events[:3], *events[4:], refused]
    assert told("#7", never)["charged"] == "target_implementer (coder-7b)", "killed before it was judged"


def test_a_rejection_blocks_nothing_and_charges_nobody() -> None:
    parts = told("contract_review:1", story()[:9])
    assert parts["class"] == "verdict: rejected"
    assert parts["charged"] == "nobody: a reviewer comments and decides nothing"
    assert "deviations.md" in parts["next"]


def test_a_held_stage_says_how_to_settle_it() -> None:
    parts = told("ip_review")
    assert parts["class"] == "no verdict: held" and "a person's edit" in parts["charged"]
    assert "nightmill keep ip_review" in parts["to do"]
    assert told() == parts, "it is what the run ended with"


def test_a_red_gate_on_the_whole_is_not_charged_again() -> None:
    red = record("red", outcome("test_t1", "failed"), reason="1 of 1 tests fails")
    events = [
        started(),
        StageStarted(stage="verify"),
        GateRan(at=BEGAN, stage="verify", attempt=0, record=red),
        ended("verify", "failed", "v2 is not proven", "OutOfBudget"),
        RunEnded(at=BEGAN + 60, exit=76, word="out of budget"),
    ]
    parts = told(events=events)
    assert parts["head"].startswith("#3 ") and parts["class"] == "verdict: tests failed"
    assert parts["charged"].startswith("nobody: this gate judges the whole")
    assert [line.split()[0] for line in parts["led to"].split("\n")] == ["#4", "#5"]


def test_the_gate_on_what_an_attempt_starts_from_is_no_problem_however_red() -> None:
    red = GateRan(at=BEGAN, stage="implement:ledger", attempt=0, record=record("red", outcome("test_t1", "failed")))
    assert told(events=[started(), red, RunEnded(exit=0, word="done")]) == {"head": FINE}


def test_a_killed_process_is_told_by_the_call_it_left_behind() -> None:
    events = story()
    cut = number(CallStarted, 2)
    assert f"{cut} " in listing(log_of(events), AGENTS)
    parts = told(cut, events)
    assert parts["class"] == "no verdict: killed"
    assert "the process ended there without a word" in parts["evidence"]
    assert "killed" in parts["evidence"] and ".partial" in parts["evidence"]


@pytest.mark.parametrize(("alive", "problems"), [(True, 0), (False, 1)])
def test_a_process_that_still_works_is_no_problem(alive: bool, problems: int) -> None:
    events = [started(), StageStarted(at=BEGAN, stage="plan"), call(BEGAN, "plan", "abcdef")[0]]
    found = troubles(log_of(events), lambda pid: alive)
    assert len(found) == problems


def test_a_run_killed_between_two_stages_is_told_too() -> None:
    events = [started(), started(BEGAN + 9, pid=1), RunEnded(at=BEGAN + 10, exit=0, word="done")]
    parts = told(events=events)
    assert parts["head"].startswith("#1 ") and parts["class"] == "no verdict: killed"
    assert parts["to do"].startswith("nothing: settled by #3")


def test_nothing_went_wrong_is_said_in_one_line() -> None:
    assert explanation(Log(()), None, {}) == listing(Log(()), {}) == FINE
    assert told("contract:1") == {"head": f"{FINE} in contract:1"}


def test_an_event_with_which_nothing_is_wrong_is_told_as_it_is() -> None:
    parts = told("contract:1#a")
    assert parts["class"] == FINE and "reply in .nightmill/calls/a.json" in parts["evidence"]
    assert "charged" not in parts


def test_an_event_is_named_by_line_key_label_or_stage() -> None:
    events = dead_server()
    for name in ("7", "#7", "abcdef", "abcdef0123", "plan#1", "plan"):
        wanted = "#9 " if name == "plan" else "#7 "
        assert told(name, events)["head"].startswith(wanted), name
    assert told("implement", story())["head"] == told("implement:ledger", story())["head"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("#999", "ends with #10"),
        ("999", "ends with #10"),
        ("0", "ends with #10"),
        ("plam", "did you mean plan"),
        ("plan#2", "did you mean plan#1"),
        ("facade", "no call whose key begins with facade"),
        ("what ever\n", "explain --all"),
    ],
)
def test_a_name_that_means_no_event_is_wrong_use_with_what_comes_near(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        told(name, dead_server())
    assert hint in str(error.value) and "\n" not in str(error.value)


def test_a_key_that_two_calls_begin_with_is_asked_for_more_digits() -> None:
    events = [*call(0, "plan", "abcdef01"), *call(9, "plan", "abcdef02")]
    with pytest.raises(UsageError, match="give more digits of abcdef01, abcdef02"):
        told("abcdef", events)


def test_all_problems_are_listed_in_one_line_each_with_their_number() -> None:
    log = log_of(story())
    lines = listing(log, AGENTS).splitlines()
    assert [int(line.split()[0][1:]) for line in lines] == [t.entry.number for t in troubles(log)]
    assert [line for line in lines if "(charged: target_implementer (coder-7b))" in line] and len(lines) == 9


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_part_of_a_run_can_be_explained_and_every_problem_leads_somewhere(data: st.DataObject) -> None:
    """A run may be cut anywhere: whatever lies there has a text, and each problem says who was charged and what to do."""
    whole = [*story(), *dead_server()]
    events = whole[: data.draw(st.integers(1, len(whole)))]
    chosen = str(data.draw(st.integers(1, len(events))))
    log = log_of(events)
    text = explanation(log, chosen, AGENTS)
    assert text.startswith(f"#{chosen} ")
    if int(chosen) in {t.entry.number for t in troubles(log)}:
        assert {"class", "charged", "to do"} <= {line[:10].strip() for line in text.splitlines()}


@given(st.text(max_size=30))
def test_no_word_whatever_is_a_bug(name: str) -> None:
    try:
        told(name)
    except UsageError as error:
        assert len(str(error).splitlines()) == 1


def test_lines_that_cannot_be_read_are_passed_over_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    for event in dead_server():
        log.emit(event)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*whole[:2], b'{"kind": "of a later version"}\n', b"\n", *whole[2:]]) + whole[0][:20])
    read = numbered(path)
    assert read.torn == 2 and [e.number for e in read.entries] == [1, 2, *range(5, 13)]
    assert "could not be read: 2" in explanation(read, None, {})
    assert numbered(tmp_path / "none") == Log(())


def test_nothing_of_a_model_reaches_the_terminal_as_it_is() -> None:
    evil = "\x1b[31mred\x1b[0m\r\nsecond line"
    events = [*call(0, "plan", "abcdef"), ReplyRefused(stage="plan", label="plan#abcdef", key="abcdef", rule=evil)]
    text = explanation(log_of(events), None, {}) + listing(log_of(events), {})
    assert "\x1b" not in text and "\r" not in text and "red second line" in text


def test_the_command_reads_a_real_run_and_changes_nothing(
    finished_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(finished_run / "v2")
    events = (finished_run / ".nightmill" / "events.jsonl").read_bytes()
    assert explain(argparse.Namespace(event=None, all=True)) == 0
    shown = capsys.readouterr().out
    assert "verdict: tests failed" in shown and "(charged: target_implementer (scripted))" in shown
    assert explain(argparse.Namespace(event="implement:money", all=False)) == 0
    assert "nothing: settled by" in capsys.readouterr().out
    assert (finished_run / ".nightmill" / "events.jsonl").read_bytes() == events
