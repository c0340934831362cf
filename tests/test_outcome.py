"""What happens after something went wrong: one row for every class of outcome."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill import errors
from nightmill.calls.outcome import (
    ERRORS,
    EXITS,
    LEAST_WISH_S,
    LOAD_DEADLINE_S,
    LONGEST_WISH_S,
    TABLE,
    GiveUp,
    Wait,
    after,
    charged,
    classify,
    next_step,
)
from nightmill.errors import EXIT_WORDS, ConfigError, NightmillError, NoProvider, NoUsableReply, Waiting
from nightmill.gate.records import NOT_THE_CODE, GateRecord, StepRecord
from nightmill.providers.base import Kind, NoVerdict
from nightmill.run.events import (
    AttemptFinished,
    EditRefused,
    Event,
    Finding,
    GateRan,
    Note,
    ReplyRefused,
    RunEnded,
    RunStarted,
    StageFinished,
)
from run_story import attempt, call, record

KINDS = st.sampled_from(get_args(Kind))
WISHES = st.none() | st.floats(0, 1e6)


def run(kind: Kind, wish: float | None = None) -> tuple[list[Wait], GiveUp]:
    """All steps of a call that fails the same way for ever."""
    steps: list[Wait] = []
    while True:
        step = next_step(kind, len(steps) + 1, wish)
        if isinstance(step, GiveUp):
            return steps, step
        steps.append(step)
        assert len(steps) < 1000


def test_every_kind_of_call_without_a_verdict_has_a_row_and_charges_nobody() -> None:
    assert set(get_args(Kind)) <= set(TABLE)
    assert not any(policy.charges for policy in TABLE.values() if policy.of != "verdict")


@pytest.mark.parametrize("name", TABLE)
def test_every_row_says_whom_it_charges_and_what_a_person_can_do(name: str) -> None:
    row = TABLE[name]
    assert bool(row.nobody) or row.charges
    assert row.remedy and "\n" not in row.remedy and not row.remedy.endswith(".")
    assert row.exit_code in (*EXIT_WORDS, None)
    assert (row.exit_code is None) == (row.then is None and row.of != "terminal")


@given(KINDS, WISHES)
def test_every_kind_ends_and_its_error_is_one_line_with_the_remedy(kind: Kind, wish: float | None) -> None:
    _, end = run(kind, wish)
    assert isinstance(end.error, TABLE[kind].then)
    assert TABLE[kind].remedy in str(end.error) and "\n" not in str(end.error)


@given(KINDS)
def test_waits_never_shrink_and_stay_under_their_cap(kind: Kind) -> None:
    steps, _ = run(kind)
    seconds = [step.seconds for step in steps]
    grown = seconds[:-1] if kind == "loading" else seconds  # its last wait is cut at the deadline
    assert grown == sorted(grown)
    assert all(0 <= wait <= TABLE[kind].cap_s for wait in seconds)


@given(KINDS, st.integers(1, 10), st.floats(LEAST_WISH_S, LONGEST_WISH_S))
def test_a_wish_of_the_server_is_kept(kind: Kind, tries: int, wish: float) -> None:
    step = next_step(kind, tries, wish, waited_s=0)
    own = TABLE[kind].wait_s(tries) if tries > 1 else 0
    if kind == "loading":
        assert isinstance(step, Wait) and step.seconds == min(max(wish, own, 1), LOAD_DEADLINE_S)
    elif isinstance(step, Wait):
        assert step.seconds == max(wish, own), "kept once, it was too short; then our own waits are its least"


@pytest.mark.parametrize("wish", [0, 0.5])
def test_a_limit_whose_hour_of_return_is_now_or_past_does_not_use_up_its_tries_at_once(wish: float) -> None:
    steps = [next_step("rate_limited", n, wish) for n in range(1, TABLE["rate_limited"].tries)]
    assert sum(step.seconds for step in steps if isinstance(step, Wait)) > 60


@given(st.integers(1, 2000), st.floats(0, 2 * LOAD_DEADLINE_S), WISHES)
def test_loading_waits_up_to_its_deadline_and_not_beyond(tries: int, waited: float, wish: float | None) -> None:
    step = next_step("loading", tries, wish, waited_s=waited)
    if waited < LOAD_DEADLINE_S:
        assert isinstance(step, Wait) and 0 < step.seconds <= LOAD_DEADLINE_S - waited
    else:
        assert isinstance(step, GiveUp) and isinstance(step.error, Waiting)


def test_loading_waits_about_ten_minutes_in_all() -> None:
    steps, end = run("loading")
    assert sum(step.seconds for step in steps) == pytest.approx(LOAD_DEADLINE_S)
    assert end.error.exit_code == 75
    assert isinstance(next_step("loading", 3, load_deadline_s=2), GiveUp)


@pytest.mark.parametrize(
    ("kind", "tries", "code"),
    [
        ("unreachable", 6, 77),
        ("unauthorized", 1, 77),
        ("no_model", 1, 77),
        ("bad_request", 1, 77),
        ("rate_limited", 8, 77),
        ("server_error", 5, 77),
        ("dropped", 4, 77),
        ("stream_error", 5, 77),
        ("idle", 2, 77),
        ("length", 2, 77),
        ("reasoning_only", 3, 77),
        ("refusal", 3, 77),
        ("no_quota", 1, 77),
        ("html", 4, 77),
        ("bad_utf8", 3, 77),
        ("too_large", 1, 78),
        ("truncated", 1, 78),
    ],
)
def test_each_kind_has_its_number_of_tries_and_exit_code(kind: Kind, tries: int, code: int) -> None:
    steps, end = run(kind)
    assert (len(steps) + 1, end.error.exit_code) == (tries, code)


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("unauthorized", "api_key_env"),
        ("no_quota", "provider"),
        ("no_model", "model"),
        ("unreachable", "url"),
        ("too_large", "context"),
        ("truncated", "context:"),
        ("truncated", "num_ctx"),
        ("reasoning_only", "reasoning_tokens"),
        ("idle", "idle_s"),
    ],
)
def test_the_remedy_names_the_setting(kind: Kind, setting: str) -> None:
    assert f"`{setting}`" in str(run(kind)[1].error)


def test_a_call_that_would_fail_the_same_way_is_asked_differently() -> None:
    assert next_step("length", 1) == Wait(0, "max_tokens")
    assert next_step("loop", 1) == next_step("empty", 2) == next_step("refusal", 1) == Wait(0, "seed", rotate=True)
    assert next_step("dropped", 1) == Wait(1, "nothing", rotate=True)


def test_what_began_again_starts_over_at_once_and_nobody_waits() -> None:
    assert next_step("restarted", 1) == Wait(0, "start over")


@pytest.mark.parametrize("kind", ["no_quota", "unauthorized", "no_model", "too_large", "truncated", "bad_request"])
def test_what_waiting_cannot_mend_is_given_up_at_once_and_left_to_another_backend(kind: Kind) -> None:
    step = next_step(kind, 1)
    assert isinstance(step, GiveUp) and step.rotate


def test_a_reply_that_was_cut_off_is_asked_for_again_here_before_another_model_is() -> None:
    first, last = next_step("length", 1), next_step("length", 2)
    assert isinstance(first, Wait) and not first.rotate
    assert isinstance(last, GiveUp) and last.rotate and isinstance(last.error, NoUsableReply)


def test_a_restart_of_half_a_minute_is_outlived_and_a_wrong_address_told_within_one() -> None:
    assert 30 <= sum(step.seconds for step in run("unreachable")[0]) <= 60


def test_a_server_that_wants_to_be_left_alone_for_long_is_given_up_for_now() -> None:
    step = next_step("rate_limited", 1, 3600)
    assert isinstance(step, GiveUp) and "3600 s" in str(step.error)


def test_the_error_tells_who_what_how_often_and_what_to_do() -> None:
    step = after(NoVerdict("unreachable", "nothing listens at\n127.0.0.1:8080."), 6, provider="local")
    assert isinstance(step, GiveUp) and isinstance(step.error, NoProvider)
    assert str(step.error) == "provider local: nothing listens at 127.0.0.1:8080 (6 tries): start the server or correct `url`"
    assert isinstance(next_step("too_large", 1), GiveUp)
    assert isinstance(run("too_large")[1].error, ConfigError)


def subclasses(kind: type[NightmillError]) -> Iterator[type[NightmillError]]:
    yield kind
    for sub in kind.__subclasses__():
        yield from subclasses(sub)


@pytest.mark.parametrize("kind", [k for k in subclasses(NightmillError) if k.__module__ == errors.__name__], ids=lambda k: k.__name__)
def test_every_error_of_ours_has_a_row_with_its_exit_code(kind: type[NightmillError]) -> None:
    assert TABLE[ERRORS[kind.__name__]].exit_code == kind.exit_code


def test_every_exit_code_has_a_row_that_parks_with_it() -> None:
    assert {0, *EXITS} == set(EXIT_WORDS)
    assert all(TABLE[name].exit_code == code for code, name in EXITS.items())


@given(KINDS)
def test_a_call_without_a_verdict_belongs_to_the_row_of_its_kind(kind: Kind) -> None:
    found = classify(call(0, "plan", "a", result=kind)[1])
    assert found and (found.name, found.policy, found.policy.of) == (kind, TABLE[kind], "no verdict")
    assert found.nobody and not found.policy.charges


def test_a_kind_of_a_later_version_is_still_nobodys_fault() -> None:
    found = classify(call(0, "plan", "a", result="tired")[1])
    assert found and found.policy.of == "no verdict" and not found.policy.charges


def ended(status: str, error: str = "", reason: str = "because") -> StageFinished:
    return StageFinished.model_validate({"stage": "plan", "status": status, "error": error, "reason": reason})


def gate(verdict: str, *steps: StepRecord, attempt: int = 1) -> GateRan:
    seen = GateRecord.model_validate({"verdict": verdict, "reason": "r", "steps": steps, "tree": "ab"})
    return GateRan(stage="implement:a", attempt=attempt, record=seen)


BROKEN_SANDBOX = StepRecord(name="build", status="not_run", detail=f"{NOT_THE_CODE}: no space left")


@pytest.mark.parametrize(
    ("event", "name", "whom"),
    [
        (ReplyRefused(stage="plan", label="plan#1", key="a", rule="no file"), "unparseable", True),
        (EditRefused(stage="implement:a", attempt=1, reasons=("two places",)), "edit_refused", True),
        (GateRan(stage="verify", attempt=0, record=record("red")), "tests_failed", True),
        (gate("red", StepRecord(name="build", status="failed")), "build_failed", True),
        (gate("incomplete"), "incomplete", True),
        (gate("not_run"), "not_run", False),
        (gate("not_run", BROKEN_SANDBOX), "trouble", False),
        (attempt(0, "implement:a", 1, "red", 1, charged=True), "tests_failed", True),
        (attempt(0, "implement:a", 1, "refused", 0, charged=True), "edit_refused", True),
        (attempt(0, "implement:a", 1, "unparseable", 0, charged=True), "unparseable", True),
        (attempt(0, "implement:a", 1, "no verdict", 0), "no_usable_reply", False),
        (attempt(0, "implement:a", 1, "red", 0, charged=True).model_copy(update={"owed": 0}), "build_failed", True),
        (Finding(stage="ip_review", source="ip_counsel", verdict="REJECTED", text="x"), "rejected", False),
        (ended("held"), "held", False),
        (ended("waiting", "Waiting"), "waiting", False),
        (ended("stopped", "Stopped"), "stopped", False),
        (ended("failed", "OutOfBudget"), "out_of_budget", False),
        (ended("failed", "NoProvider"), "no_provider", False),
        (ended("failed", "SandboxMissing"), "configuration", False),
        (ended("failed", "MachineError"), "trouble", False),
        (ended("failed", "StageFailed"), "failed", False),
        (ended("failed"), "failed", False),
        (ended("failed", reason="bug: TypeError: no"), "bug", False),
        (RunEnded(exit=76, word="out of budget"), "out_of_budget", False),
        (RunEnded(exit=130, word="stopped"), "stopped", False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_event_that_tells_of_trouble_belongs_to_a_row(event: Event, name: str, whom: bool) -> None:
    found = classify(event)
    assert found and (found.name, found.policy.charges) == (name, whom)
    assert bool(found.nobody) != whom


@pytest.mark.parametrize(
    "event",
    [
        call(0, "plan", "a")[0],
        call(0, "plan", "a")[1],
        ended("made", reason=""),
        ended("kept"),
        attempt(0, "implement:a", 1, "green", 2),
        GateRan(stage="verify", attempt=0, record=record()),
        Finding(stage="ip_review", source="ip_counsel", verdict="APPROVED", text="x"),
        RunEnded(exit=0, word="done"),
        RunStarted(pid=1, version="0", command="doit"),
        Note(text="x"),
    ],
    ids=lambda event: event.kind,
)
def test_what_went_well_belongs_to_no_row(event: Event) -> None:
    assert classify(event) is None


@pytest.mark.parametrize(
    ("word", "whom"),
    [
        ("green", False),
        ("red", True),
        ("incomplete", True),
        ("refused", True),
        ("unparseable", True),
        ("no verdict", False),
        ("not_run", False),
    ],
)
def test_an_attempt_is_charged_where_its_own_work_was_judged(word: str, whom: bool) -> None:
    assert charged(word) is whom
    row = classify(AttemptFinished(stage="implement:a", attempt=1, asked="patch", differs="", outcome=word, charged=whom, owed=2))
    assert whom == bool(row and row.policy.charges)


def test_the_tries_of_a_refused_reply_are_those_that_asking_makes() -> None:
    from nightmill.calls.ask import TRIES

    assert TABLE["unparseable"].tries == TRIES


def test_rows_with_a_limit_in_the_settings_hold_its_default() -> None:
    from nightmill.config import Build

    fields = {f"build.{name}": field.default for name, field in Build.model_fields.items()}
    rows = {row.limit: row.tries for row in TABLE.values() if row.limit and row.of == "verdict"}
    assert rows and all(fields[name] == tries for name, tries in rows.items())


def test_no_remedy_names_a_setting_that_does_not_exist() -> None:
    from nightmill.config import ModelConfig, OpenAIProvider

    known = {*ModelConfig.model_fields, *OpenAIProvider.model_fields, "num_ctx"}
    named = {word.rstrip(":") for row in TABLE.values() for word in re.findall(r"`([^`]+)`", row.remedy)}
    assert named <= known
