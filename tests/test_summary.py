"""What the events of several invocations add up to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.clauses import natural
from nightmill.gate.records import TestOutcome
from nightmill.lines import StageLine
from nightmill.run.events import CallFinished, Event, EventLog, Finding, GateRan, RunEnded, RunStarted, StageFinished, StageStarted
from nightmill.status import status_lines
from nightmill.summary import Summary, summarize
from run_story import CONTRACT, MATRIX, PROOF, attempt, call, outcome, record, story

PROVED = {"proven": {"T1": ["acceptance/test_total.py::test_t1_a"]}}


def told(**more: object) -> Summary:
    return summarize(story(), contract=CONTRACT, matrix=MATRIX, proof=PROOF, **more)  # type: ignore[arg-type]


def open_points(summary: Summary) -> dict[str, str]:
    return {u.what: u.why for u in summary.unproven}


def test_replayed_and_cut_off_calls_cost_nothing() -> None:
    calls = told().calls
    assert (calls.asked, calls.replayed, calls.unfinished) == (6, 1, 1)
    assert calls.unanswered == {"idle": 1}
    assert (calls.tokens.prompt, calls.tokens.cached, calls.tokens.completion) == (6000, 3600, 1200)


def test_seconds_and_tokens_are_kept_per_model() -> None:
    one, two = call(0, "plan", "1"), call(9, "plan", "2")
    slow = two[1].model_copy(update={"model": "large-70b", "seconds": 90.0, "prompt_tokens": None})
    models = summarize([*one, two[0], slow]).models
    assert [(m.model, m.calls, m.seconds) for m in models] == [("large-70b", 1, 90.0), ("coder-7b", 1, 4.0)]
    assert models[0].tokens.uncounted == 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9999), st.integers(0, 9999)), max_size=30))
def test_totals_are_the_sums_over_models_and_over_asked_calls(rows: list[tuple[bool, int, int]]) -> None:
    events = [
        CallFinished(
            stage=f"s{i % 3}", label=f"l{i}", key=f"k{i}", provider="p", model=f"m{i % 4}", outcome="ok", replayed=r, prompt_tokens=p,
            completion_tokens=c, seconds=1,
        )
        for i, (r, p, c) in enumerate(rows)
    ]  # fmt: skip
    summary = summarize(events)
    assert summary.calls.tokens.prompt == sum(p for r, p, _ in rows if not r) == sum(m.tokens.prompt for m in summary.models)
    assert summary.calls.tokens.completion == sum(c for r, _, c in rows if not r)
    assert summary.calls.asked + summary.calls.replayed == len(rows)


def answered(model: str, prompt: int | None, cached: int | None, evaluated: int | None = None, **more: object) -> CallFinished:
    names = {"stage": "plan", "label": "plan#1", "key": "a", "provider": "local", "model": model, "outcome": "ok"}
    counts = {"prompt_tokens": prompt, "cached_tokens": cached, "evaluated_tokens": evaluated, "completion_tokens": 1}
    return CallFinished.model_validate({**names, **counts, **more})


@given(st.lists(st.tuples(st.none() | st.integers(0, 9999), st.none() | st.integers(0, 9999), st.none() | st.integers(0, 9999))))
def test_reuse_is_a_share_of_the_tokens_for_which_a_server_told_it(counts: list[tuple[int | None, int | None, int | None]]) -> None:
    summary = summarize([answered(f"m{n % 3}", *row) for n, row in enumerate(counts)])
    told = [p for p, c, e in counts if p is not None and (c is not None or e is not None)]
    tokens = summary.calls.tokens
    assert tokens.told == sum(told) == tokens.cached + tokens.evaluated <= tokens.prompt
    assert (summary.calls.reuse is None) == (tokens.told == 0)
    assert all(m.reuse is None or 0 <= m.reuse <= 1 for m in summary.models)


def test_reuse_is_shown_for_the_whole_and_for_each_model() -> None:
    summary = summarize([answered("big", 1000, 900), answered("big", 1000, None, 500), answered("mute", 4000, None)])
    assert summary.calls.reuse == 0.7
    assert {m.model: m.reuse for m in summary.models} == {"big": 0.7, "mute": None}
    assert '"reuse":0.7' in summary.model_dump_json()
    lines = status_lines(summary, [])
    assert "reuse      70% of 2,000 prompt tokens came from the cache, 600 were evaluated (local/big 70%, local/mute not told)" in lines


def test_reuse_that_no_server_told_is_said_to_be_so() -> None:
    assert "reuse      not told: no server said what its prompt cache held" in status_lines(summarize([answered("mute", 10, None)]), [])
    lines = status_lines(summarize([answered("cold", 10, 0)]), [])
    assert "reuse      0% of 10 prompt tokens came from the cache, 10 were evaluated" in lines


def test_a_model_that_answered_for_another_is_named_with_it() -> None:
    summary = summarize([answered("small", 1, None, named="large-70b"), answered("small", 1, None)])
    assert [(m.model, m.asked_for) for m in summary.models] == [("small", ("large-70b",))]
    assert "answered   local: asked for large-70b, small answered" in status_lines(summary, [])
    assert not [line for line in status_lines(told(), []) if line.startswith("answered")]


def test_an_attempt_is_its_authors_whoever_reviewed_it() -> None:
    names = {"label": "implement:a/security_reviewer#1", "model": "reviewer-70b"}
    review = call(1, "implement:a", "2")[1].model_copy(update=names)
    summary = summarize([*call(0, "implement:a", "1"), review, attempt(9, "implement:a", 1, "red", 1, charged=True)])
    assert [(a.model, a.charged) for a in summary.attempts] == [("coder-7b", True)]
    assert [c.model for c in summary.charged] == ["coder-7b"]


def test_invocations_accumulate_and_the_last_one_gives_the_exit_word() -> None:
    summary = told()
    assert [(i.command, i.exit, i.word) for i in summary.invocations] == [("doit", None, "unfinished"), ("doit -n 2", 75, "waiting")]
    assert (summary.exit, summary.word, summary.reason) == (75, "waiting", "ip_review is held")
    assert told(exit_code=0).word == "done"
    killed = summary.invocations[0].stages[1]
    assert (killed.stage, killed.status, [c.outcome for c in killed.calls]) == ("contract_review:1", "unfinished", ["ok", "unfinished"])


def test_attempts_name_the_model_and_who_was_charged() -> None:
    summary = told()
    assert [(a.attempt, a.model, a.outcome, a.charged, a.best) for a in summary.attempts] == [
        (1, "coder-7b", "red", True, True),
        (2, "coder-7b", "refused", True, False),
    ]
    assert [(c.what, c.why) for c in summary.charged] == [
        ("attempt 1: red", "1 of 2 tests fails: test_t2_half_up"),
        ("attempt 2: refused", "SEARCH block 1 matches two places in ledger.py"),
        ("reply refused", "The reply holds no file."),
    ]


def test_a_resumed_run_charges_and_finds_everything_once() -> None:
    events = story()[:-1]
    again = [e.model_copy(update={"at": e.at + 9000}) for e in events if getattr(e, "stage", "") == "implement:ledger"]
    resumed = [*events, RunStarted(pid=3, version="0", command="doit"), *again]
    assert summarize(resumed).charged == summarize(events).charged
    assert len(summarize(resumed).attempts) == 2
    assert len(told().findings) == 1


def test_clauses_lead_to_tests_and_to_what_the_last_gate_saw() -> None:
    table = {c.id: c for c in told().clauses}
    assert list(table) == ["C1", "C2", "C10"]
    assert (table["C1"].outcome, table["C1"].rows[0].tests) == ("proven", ("acceptance/test_total.py::test_t1_empty",))
    assert (table["C2"].outcome, table["C2"].why) == ("not proven", "T3: it passes although nothing is implemented")
    assert (table["C10"].outcome, table["C10"].why) == ("not proven", "no row of the test matrix covers it")


@pytest.mark.parametrize(
    ("tests", "proof", "expected"),
    [
        ([outcome("test_t1_a"), outcome("test_t1_b", "failed")], PROVED, "T1 fails"),
        ([outcome("test_t1_a", "error")], PROVED, "T1 fails"),
        ([outcome("test_t1_a", "skipped")], PROVED, "T1 was skipped"),
        ([outcome("test_t1_a", "xfailed")], PROVED, "T1 was skipped"),
        ([outcome("test_t1_a", "xpassed")], PROVED, "T1 fails"),
        ([outcome("test_t1_b")], PROVED, "T1 was not run"),
        ([outcome("test_t11_a")], PROVED, "T1 was not run"),
        ([], {"unproven": {"T1": "it has no test"}}, "T1: it has no test"),
        ([outcome("test_t1_a")], {"unproven": {"T1": "it disagrees with the old program"}}, "T1: it disagrees with the old program"),
        ([outcome("test_t1_a")], {"proven": ["T1"], "unproven": {"T1": 3}}, "T1: it was not put to the proof"),
        ([outcome("test_t1_a")], {"proven": {"T1": [1]}}, "T1 was not run"),
        ([outcome("test_t1_a")], None, "T1: it was not put to the proof"),
    ],
)
def test_a_clause_is_not_proven_unless_all_its_tests_pass_and_were_proved(
    tests: list[TestOutcome], proof: dict[str, object] | None, expected: str
) -> None:
    summary = summarize(
        [GateRan(stage="verify", attempt=0, record=record("green", *tests))], contract={"C1": "x"}, matrix={"T1": "C1"}, proof=proof
    )
    assert open_points(summary)["C1"] == expected


def test_everything_open_is_listed_with_its_reason() -> None:
    assert open_points(told()) == {
        "gate step lint": "not run: ruff is not installed",
        "C2": "T3: it passes although nothing is implemented",
        "C10": "no row of the test matrix covers it",
        "ip_review": "held: reviews/ip.md was edited by hand and v2/ changed: nightmill keep ip_review",
        "contract_review:1": "was asked without analysis, which did not fit",
    }


def test_a_run_without_a_gate_proves_nothing() -> None:
    summary = summarize([StageStarted(stage="plan"), attempt(0, "implement:a", 1, "red", 1), attempt(1, "implement:a", 2, "red", 0)])
    assert summary.verdict == "not_run"
    assert open_points(summary) == {
        "V2 as a whole": "the quality gate never ran on it",
        "contract": "no clauses are known, so nothing ties the tests to the mission",
        "implement:a": "no attempt of 2 is green; the best passes 1 of 2 tests",
    }


def test_a_milestones_green_gate_is_not_the_verdict_on_the_whole() -> None:
    assert summarize([GateRan(stage="implement:a", attempt=1, record=record())]).verdict == "not_run"


@pytest.mark.parametrize("state", ["stale", "held", "blocked", "waiting"])
def test_a_gate_that_judged_an_earlier_v2_no_longer_counts(state: str) -> None:
    summary = told(states={"verify": state})
    assert summary.verdict == "not_run"
    assert f"verify is {state}: its last gate (green) judged an earlier V2" == open_points(summary)["V2 as a whole"]
    assert all(c.outcome == "not proven" for c in summary.clauses)


def test_a_stage_that_failed_after_a_green_gate_is_not_green() -> None:
    events: list[Event] = [
        GateRan(stage="verify", attempt=0, record=record()),
        StageFinished(stage="verify", status="failed", reason="locked tests changed"),
    ]
    summary = summarize(events)
    assert (summary.verdict, summary.verdict_why) == ("not_run", "verify failed after its gate: locked tests changed")


def test_running_outside_the_sandbox_and_without_v1_is_said() -> None:
    events = [GateRan(stage="verify", attempt=0, record=record(protections=("UNSANDBOXED",)))]
    points = open_points(summarize(events, proof={"v1_ran": False}))
    assert "outside the sandbox" in points["isolation"]
    assert "never compared" in points["equivalence to V1"]


def test_states_win_over_events_and_fresh_stages_remember_how_they_came_about() -> None:
    summary = told(states={"contract:1": "fresh", "ip_review": "fresh", "implement:ledger": "stale", "plan": "fresh"})
    assert summary.stages == {"contract:1": "made", "ip_review": "fresh", "implement:ledger": "stale", "plan": "fresh"}
    assert summary.having("made", "fresh") == ["contract:1", "ip_review", "plan"]


def test_findings_of_an_earlier_execution_are_gone_when_the_stage_ran_again() -> None:
    old, new = (Finding(stage="ip", source="ip_counsel", text=text) for text in ("old", "new"))
    assert [f.text for f in summarize([StageStarted(stage="ip"), old, StageStarted(stage="ip"), new]).findings] == ["new"]


def test_no_events_make_an_honest_empty_summary() -> None:
    summary = summarize([])
    assert (summary.exit, summary.word, summary.verdict, summary.calls.asked) == (None, "unfinished", "not_run", 0)
    assert status_lines(summary, []) == ["no run yet: doit starts one"]


def test_a_summary_survives_json_and_the_event_file(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    for event in story():
        log.emit(event)
    summary = summarize(log, contract=CONTRACT, matrix=MATRIX, proof=PROOF)
    assert summary.model_copy(update={"counted": told().counted}) == told(), "only the clock that does not jump is not in the story"
    assert Summary.model_validate_json(summary.model_dump_json()) == summary


def test_status_names_every_stage_and_ends_with_verdict_cost_and_open_points() -> None:
    stages = [
        StageLine("contract", "what V2 must do", "kept", "edited by a person: contract.md"),
        StageLine("plan", "milestones", "stale", "schema/ \x1b[31mchanged"),
        StageLine("ip", "", "held", "nightmill keep ip"),
    ]
    kept = summarize([*story(), StageFinished(stage="contract", status="kept"), RunEnded(exit=0, word="done")], {"contract": "kept"})
    assert status_lines(kept, stages)[:4] == [
        "contract  kept     edited by a person: contract.md",
        "plan      stale    schema/ changed",
        "ip        held     nightmill keep ip",
        "",
    ]
    assert status_lines(told(), [])[0:3] == [
        "last run   waiting (exit 75): ip_review is held",
        "v2         green: all steps passed",
        "spent      6 calls and 1 replayed, 6,000 prompt tokens, 1,200 completion tokens",
    ]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.text(max_size=5))
def test_natural_order_counts_numbers_and_compares_any_text(a: int, b: int, text: str) -> None:
    assert (natural(f"C{a}") < natural(f"C{b}")) == (a < b)
    assert (natural(f"{text}") < natural("C1")) != (natural("C1") <= natural(f"{text}"))
