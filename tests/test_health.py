"""How backends have been doing: a fold over events, by a clock that tests move and that may jump."""

from __future__ import annotations

import threading
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from health_help import T0, Clock, ended, refused, started, vitals
from nightmill.calls.health import BACKOFF_CAP, EFFECTS, LATENCIES, Health
from nightmill.providers.base import Kind
from nightmill.run.events import Event, WindowProbed

kinds = st.sampled_from(["ok", *get_args(Kind)])
names = st.sampled_from(["a", "b", "c"])
moments = st.floats(-1e5, 1e5).map(lambda offset: T0 + offset)


@st.composite
def stories(draw: st.DrawFn) -> list[Event]:
    """Events of three backends in any order of time."""
    events: list[Event] = []
    for number in range(draw(st.integers(0, 30))):
        at, who, key = draw(moments), draw(names), f"k{draw(st.integers(0, 5))}"
        events.append(
            draw(
                st.sampled_from(
                    [
                        started(at, who, key=key, window=draw(st.sampled_from([None, 4096, 8192]))),
                        ended(at, draw(kinds), who, key=key, seconds=float(number), replayed=draw(st.booleans())),
                        refused(at, key),
                        WindowProbed(at=at, provider=who, model="m", window=1024),
                    ]
                )
            )
        )
    return events


def test_a_backend_that_was_never_asked_is_healthy_and_has_no_latency() -> None:
    fresh = vitals(Health())
    assert (fresh.error_rate, fresh.backoff, fresh.quality, fresh.latency_s, fresh.calls, fresh.turn) == (0, 0, 1, None, 0, 0)


def test_every_kind_of_failure_has_an_effect_in_the_table() -> None:
    assert set(EFFECTS) == set(get_args(Kind))


def test_one_fresh_failure_reads_as_a_fifth() -> None:
    assert vitals(Health([ended(T0, "dropped")], Clock())).error_rate == pytest.approx(0.2)


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(0, 5))
def test_fewer_than_five_samples_are_filled_up_with_successes(bad: int, good: int) -> None:
    health = Health([*[ended(T0, "idle")] * bad, *[ended(T0)] * good], Clock())
    assert vitals(health).error_rate == pytest.approx(bad / max(5, bad + good))


def test_a_sample_of_the_error_rate_counts_half_after_thirty_seconds() -> None:
    health = Health([ended(T0, "dropped")], clock := Clock())
    clock.time += 30
    assert vitals(health).error_rate == pytest.approx(0.1)


def test_old_failures_give_way_to_young_successes() -> None:
    health = Health([ended(T0, "dropped")] * 20, clock := Clock())
    assert vitals(health).error_rate == 1
    for _ in range(20):
        clock.time += 3
        health.add(ended(clock.time))
    assert vitals(health).error_rate < 0.4


def test_a_rate_limit_doubles_the_backoff_and_adds_one_up_to_the_cap() -> None:
    clock, seen = Clock(), []
    health = Health(now=clock)
    for _ in range(9):
        health.add(ended(T0, "rate_limited"))
        seen.append(vitals(health).backoff)
    assert seen == [1, 3, 7, 15, 31, 63, 64, 64, 64]


@settings(deadline=None)
@given(st.integers(1, 200), st.floats(0, 0.5))
def test_a_burst_of_rate_limits_of_any_size_is_forgotten_within_about_a_minute(size: int, apart: float) -> None:
    health = Health((ended(T0 + n * apart, "rate_limited") for n in range(size)), clock := Clock())
    clock.time = T0 + (size - 1) * apart + 61
    assert vitals(health).backoff < 1
    assert vitals(health).error_rate == 0


def test_backoff_is_halved_by_ten_seconds_and_by_a_success() -> None:
    health = Health([ended(T0, "rate_limited")] * 10, clock := Clock())
    clock.time += 10
    assert vitals(health).backoff == pytest.approx(BACKOFF_CAP / 2)
    health.add(ended(clock.time))
    assert vitals(health).backoff == pytest.approx(BACKOFF_CAP / 4)


@pytest.mark.parametrize("kind", sorted(kind for kind, effect in EFFECTS.items() if not effect.failed))
def test_what_does_not_say_that_the_backend_is_broken_leaves_its_error_rate_alone(kind: str) -> None:
    assert vitals(Health([ended(T0, kind)], Clock())).error_rate == 0


def test_a_cut_off_reply_or_a_prompt_that_is_too_large_costs_neither_errors_nor_quality_nor_backoff() -> None:
    found = vitals(Health([ended(T0, "length"), ended(T0, "too_large")], Clock()))
    assert (found.error_rate, found.quality, found.backoff, found.calls) == (0, 1, 0, 2)


def test_quality_is_the_share_of_replies_that_kept_their_format_with_five_assumed() -> None:
    events: list[Event] = [ended(T0, key=f"k{n}") for n in range(5)]
    assert vitals(Health([*events, refused(T0, "k1"), refused(T0, "k3")], Clock())).quality == pytest.approx(8 / 10)
    assert vitals(Health([ended(T0, "loop")], Clock())).quality == pytest.approx(5 / 6)


def test_a_reply_counts_as_refused_once_and_against_the_backend_that_gave_it() -> None:
    health = Health([ended(T0, who="a"), refused(T0), refused(T0), ended(T0, who="b", key="other")], Clock())
    assert vitals(health, "a").quality == pytest.approx(5 / 6)
    assert vitals(health, "b").quality == 1


def test_replayed_calls_count_for_nothing() -> None:
    known: list[Event] = [started(T0), ended(T0, role="reviewer"), refused(T0)]
    again: list[Event] = [ended(T0 + 9, replayed=True, role="reviewer"), refused(T0 + 9), ended(T0 + 9, "dropped", replayed=True)]
    before, after = Health(known, Clock()), Health([*known, *again], Clock())
    assert vitals(after) == vitals(before)
    assert after.calls("reviewer") == 1
    accepted = Health([ended(T0), ended(T0 + 9, replayed=True), refused(T0 + 9)], Clock())
    assert vitals(accepted).quality == 1, "what a replay breaks is no fault of the backend"
    assert vitals(Health(again, Clock())).calls == 0


def test_latency_is_the_median_of_the_last_successes() -> None:
    slow, fast = [ended(T0, seconds=100.0)] * 200, [ended(T0, seconds=2.0)] * (LATENCIES // 2 + 1)
    assert vitals(Health([*slow, ended(T0, "idle", seconds=900.0)], Clock())).latency_s == 100
    assert vitals(Health([*slow, *fast], Clock())).latency_s == 2


def test_a_call_counts_for_the_model_that_was_asked_not_for_the_name_that_answered() -> None:
    health = Health([ended(T0, model="other", named="m")], Clock())
    assert vitals(health).calls == 1
    health = Health([started(T0, model="default"), ended(T0, model="qwen.gguf")], Clock())
    assert health.of("a", "default").calls == 1
    assert health.of("a", "qwen.gguf").calls == 0


def test_the_window_is_the_last_one_that_was_used_or_probed() -> None:
    health = Health([started(T0, window=8192)], Clock())
    assert vitals(health).window == 8192
    health.add(WindowProbed(at=T0, provider="a", model="m", window=4096))
    health.add(started(T0))
    assert vitals(health).window == 4096


def test_the_last_trouble_is_told_with_kind_and_detail() -> None:
    trouble = vitals(Health([ended(T0, "dropped", detail="one"), ended(T0 + 1, "idle", detail="two"), ended(T0 + 2)], Clock())).trouble
    assert trouble is not None
    assert (trouble.kind, trouble.detail, trouble.at) == ("idle", "two", T0 + 1)


@settings(deadline=None)
@given(stories(), st.integers(0, 30), moments)
def test_a_fold_in_pieces_equals_a_fold_at_once(events: list[Event], cut: int, now: float) -> None:
    pieces = Health(events[:cut], Clock(now))
    for event in events[cut:]:
        pieces.of("a", "m")
        pieces.add(event)
    once = Health(events, Clock(now))
    assert [vitals(pieces, who) for who in "abc"] == [vitals(once, who) for who in "abc"]


@settings(deadline=None)
@given(stories(), st.lists(moments, max_size=5))
def test_whatever_the_clock_does_every_figure_stays_in_its_range(events: list[Event], nows: list[float]) -> None:
    health = Health(events, clock := Clock())
    for clock.time in nows:
        for who in "abc":
            found = vitals(health, who)
            assert 0 <= found.error_rate <= 1
            assert 0 <= found.backoff <= BACKOFF_CAP
            assert 0 <= found.quality <= 1


def test_a_clock_that_was_set_back_an_hour_does_not_bench_a_backend_for_that_hour() -> None:
    health = Health([ended(T0, "rate_limited")] * 9, clock := Clock())
    clock.time = T0 - 3600
    assert vitals(health).backoff == BACKOFF_CAP
    health.add(ended(clock.time, who="b"))
    clock.time += 61
    assert vitals(health).backoff < 1


def test_events_may_come_from_several_threads() -> None:
    health = Health(now=Clock())
    adding = [threading.Thread(target=lambda: [health.add(ended(T0)) for _ in range(300)]) for _ in range(4)]
    for thread in adding:
        thread.start()
    for thread in adding:
        thread.join()
    assert vitals(health).calls == 1200
