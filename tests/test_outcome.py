"""What happens after a call without a verdict."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.calls.outcome import LOAD_DEADLINE_S, LONGEST_WISH_S, TABLE, GiveUp, Wait, after, next_step
from nightmill.errors import ConfigError, NoProvider, Waiting
from nightmill.providers.base import Kind, NoVerdict

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


def test_every_kind_has_a_policy_and_none_charges_anybody() -> None:
    assert set(TABLE) == set(get_args(Kind))
    assert not any(policy.charges for policy in TABLE.values())


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


@given(KINDS, st.integers(1, 10), st.floats(0, LONGEST_WISH_S))
def test_a_wish_of_the_server_is_kept(kind: Kind, tries: int, wish: float) -> None:
    step = next_step(kind, tries, wish, waited_s=0)
    if kind == "loading":
        assert isinstance(step, Wait) and step.seconds == min(max(wish, 1), LOAD_DEADLINE_S)
    elif isinstance(step, Wait):
        assert step.seconds == wish


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
        ("idle", 2, 77),
        ("length", 2, 77),
        ("too_large", 1, 78),
    ],
)
def test_each_kind_has_its_number_of_tries_and_exit_code(kind: Kind, tries: int, code: int) -> None:
    steps, end = run(kind)
    assert (len(steps) + 1, end.error.exit_code) == (tries, code)


@pytest.mark.parametrize(
    ("kind", "setting"),
    [("unauthorized", "api_key_env"), ("no_model", "model"), ("unreachable", "url"), ("too_large", "context"), ("idle", "idle_s")],
)
def test_the_remedy_names_the_setting(kind: Kind, setting: str) -> None:
    assert f"`{setting}`" in str(run(kind)[1].error)


def test_a_call_that_would_fail_the_same_way_is_asked_differently() -> None:
    assert next_step("length", 1) == Wait(0, "max_tokens")
    assert next_step("loop", 1) == next_step("empty", 2) == Wait(0, "seed")
    assert next_step("dropped", 1) == Wait(1, "nothing")


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
