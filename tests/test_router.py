"""Who is asked first: the score of DESIGN 7 by a simulated clock."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from health_help import T0, Clock, ended, model
from nightmill.calls.health import Health
from nightmill.calls.router import DEPTHS, EXPLORE_EVERY, SHALLOW, TIE, Ranked, Router, depth
from nightmill.config import ROLES, ModelConfig
from nightmill.run.events import Event

DEEP, FLAT = "architect", "reviewer"
outcomes = st.sampled_from(["ok", "ok", "rate_limited", "dropped", "loop"])
histories = st.lists(st.tuples(st.floats(0, 120), outcomes, st.floats(0.1, 600)), max_size=12)


def names(ranked: Sequence[Ranked]) -> list[str]:
    return [one.model.provider for one in ranked]


def lived(histories: dict[str, list[tuple[float, str, float]]]) -> Health:
    """Backends with their calls: (seconds ago, outcome, duration)."""
    events: list[Event] = [
        ended(T0 - ago, outcome, who, seconds=took, key=f"{who}{n}")
        for who, calls in histories.items()
        for n, (ago, outcome, took) in enumerate(sorted(calls, reverse=True))
    ]
    return Health(sorted(events, key=lambda e: e.at), Clock())


def test_every_role_has_its_depth_and_the_architect_is_the_root() -> None:
    assert set(DEPTHS) == set(ROLES)
    assert depth("architect") == max(DEPTHS.values()) == depth("unheard of")
    assert depth("reviewer") == 0


def test_the_score_is_the_sum_of_its_terms_as_the_design_says() -> None:
    health = Health([ended(T0, seconds=120.0), ended(T0, "dropped"), ended(T0, "rate_limited")], Clock())
    priced = model(price={"input": 1, "output": 6}, quality=0.7)
    (one,) = Router(health).order([priced], DEEP)
    assert one.score.price == pytest.approx(2)
    assert one.score.latency == pytest.approx(2)
    assert one.score.quality == pytest.approx(3)
    assert one.score.backoff == pytest.approx(1)
    assert one.score.errors == pytest.approx(8 * 0.2)
    assert one.score.total == pytest.approx(9.6)


def test_ties_go_to_the_persons_order() -> None:
    order = Router(Health()).order([model("b"), model("c"), model("a")], DEEP)
    assert names(order) == ["b", "c", "a"]


def test_nobody_leaves_a_good_backend_for_one_that_is_only_unknown() -> None:
    health = Health([ended(T0, who="known", seconds=300.0)], Clock())
    assert names(Router(health).order([model("known"), model("unknown")], DEEP)) == ["known", "unknown"]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), histories, min_size=2))
def test_a_backend_that_is_better_in_one_term_and_worse_in_none_goes_first(calls: dict[str, list[tuple[float, str, float]]]) -> None:
    order = Router(lived(calls)).order([model(who) for who in calls], DEEP)
    terms = {one.model.provider: vars(one.score) for one in order}
    for a in terms:
        for b in terms:
            never_worse = all(terms[a][term] <= terms[b][term] for term in terms[a])
            if never_worse and any(terms[a][term] < terms[b][term] - TIE for term in terms[a]):
                assert names(order).index(a) < names(order).index(b)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), histories, min_size=1), st.sampled_from(ROLES))
def test_each_candidate_is_ranked_once_and_the_best_is_never_far_down(calls: dict[str, list[tuple[float, str, float]]], role: str) -> None:
    order = Router(lived(calls)).order([model(who) for who in calls], role)
    assert sorted(names(order)) == sorted(calls)
    totals = [one.score.total for one in order if not one.explored]
    assert all(total < min(totals[place:]) + TIE for place, total in enumerate(totals))


def test_a_failure_moves_deep_work_further_away_than_shallow_work() -> None:
    health = Health([ended(T0, "dropped", "a"), ended(T0, who="b", seconds=60.0), ended(T0, who="a", seconds=10.0)], Clock())
    candidates = [model("a"), model("b")]
    assert names(Router(health).order(candidates, FLAT)) == ["a", "b"]
    assert names(Router(health).order(candidates, DEEP)) == ["b", "a"]


def test_a_better_model_is_worth_waiting_for_and_money_counts() -> None:
    health = Health([ended(T0, who="big", seconds=120.0), ended(T0, who="small", seconds=10.0)], Clock())
    small = model("small", quality=0.5)
    assert names(Router(health).order([small, model("big", quality=0.9)], DEEP)) == ["big", "small"]
    assert names(Router(health).order([small, model("big", quality=0.9, price={"input": 3, "output": 15})], DEEP)) == ["small", "big"]


class World:
    """Backends behind a router, asked one after another; each call takes a second. `dead(who, now)` says who fails."""

    def __init__(self, *candidates: ModelConfig) -> None:
        self.clock = Clock()
        self.health = Health(now=self.clock)
        self.candidates = candidates
        self.used: list[str] = []
        self.kind = "unreachable"

    def ask(self, role: str, dead: frozenset[str] = frozenset()) -> str:
        """One call, with fall-through; returns who answered."""
        for one in Router(self.health).order(self.candidates, role):
            who = one.model.provider
            self.clock.time += 1
            self.used.append(who)
            self.health.add(
                ended(self.clock.time, self.kind if who in dead else "ok", who, seconds=1.0, role=role, key=f"{len(self.used)}")
            )
            if who not in dead:
                return who
        return ""


@pytest.mark.parametrize("role", ROLES)
def test_a_backend_that_dies_for_thirty_seconds_leaves_and_comes_back(role: str) -> None:
    world = World(model("a"), model("b"))
    timeline: dict[int, str] = {}
    while (second := int(world.clock.time - T0)) < 260:
        timeline[second] = world.ask(role, frozenset("a") if 30 <= second < 60 else frozenset())
    assert all(timeline[s] == "a" for s in timeline if s < 30 and s % EXPLORE_EVERY != EXPLORE_EVERY - 1)
    assert all(timeline[s] == "b" for s in timeline if 30 <= s < 60)
    attempts = world.used[30:65].count("a")
    assert attempts <= 3, "it is not asked again and again while it is dead"
    late = [timeline[s] for s in timeline if s >= 220]
    assert late.count("a") >= len(late) - len(late) // EXPLORE_EVERY - 1, "it is back, but for exploring calls"


def test_a_backend_at_the_cap_of_its_backoff_is_back_within_two_minutes() -> None:
    world = World(model("a"), model("b"))
    for _ in range(50):
        world.health.add(ended(world.clock.time, "rate_limited", "a"))
    seconds = 0
    while world.ask(DEEP) != "a":
        seconds += 1
    assert 30 < seconds < 120


def test_deep_work_is_never_used_to_explore() -> None:
    for role in (role for role in ROLES if depth(role) > SHALLOW):
        world = World(model("a"), model("b", quality=0.5))
        assert {world.ask(role) for _ in range(5 * EXPLORE_EVERY)} == {"a"}


@settings(deadline=None)
@given(st.permutations([0.2, 0.5, 0.8, 1.0]), st.integers(2, 4), st.sampled_from(["reviewer", "implementer"]))
def test_no_backend_starves_while_shallow_calls_go_on(qualities: list[float], number: int, role: str) -> None:
    world = World(*(model(who, quality=q) for who, q in zip("abcd"[:number], qualities, strict=False)))
    bound = number * EXPLORE_EVERY
    for _ in range(3 * bound):
        world.ask(role)
    for start in range(len(world.used) - bound):
        assert set(world.used[start : start + bound]) == set("abcd"[:number])


def test_a_backend_that_was_dead_is_tried_again_once_its_failures_are_forgotten() -> None:
    world = World(model("best"), model("worse", quality=0.3))
    while world.clock.time < T0 + 100:
        world.ask(FLAT, frozenset({"worse"}))
    assert 1 <= world.used.count("worse") <= 5, "a failing one is explored no more often than its failures are forgotten"
    world.used.clear()
    for _ in range(60 + EXPLORE_EVERY):
        world.ask(FLAT)
    assert "worse" in world.used


def test_nobody_explores_what_backs_off() -> None:
    world = World(model("best"), model("limited", quality=0.3))
    world.kind = "rate_limited"
    for _ in range(10):
        world.health.add(ended(T0, "rate_limited", "limited"))
    for _ in range(60):
        assert world.ask(FLAT) == "best"
    assert "limited" not in world.used


def test_money_is_never_spent_to_explore() -> None:
    world = World(model("free"), model("paid", price={"input": 9, "output": 9}))
    assert {world.ask(FLAT) for _ in range(5 * EXPLORE_EVERY)} == {"free"}


def test_an_exploring_call_says_so_and_the_best_stands_ready_behind_it() -> None:
    candidates = [model("best"), model("worse", quality=0.3)]
    health = Health([ended(T0, who="best", role=FLAT, key=f"{n}") for n in range(EXPLORE_EVERY - 1)], Clock())
    first, second = Router(health).order(candidates, FLAT)
    assert (first.model.provider, first.explored, second.model.provider, second.explored) == ("worse", True, "best", False)
    assert not any(one.explored for one in Router(Health(now=Clock())).order(candidates, FLAT))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), outcomes, st.sampled_from("ab")), max_size=30))
def test_a_clock_that_jumps_breaks_nothing(jumps: list[tuple[float, str, str]]) -> None:
    clock = Clock()
    health = Health(now=clock)
    router = Router(health)
    for jump, outcome, who in jumps:
        clock.time += jump
        health.add(ended(clock.time, outcome, who, role=FLAT))
        for role in ROLES:
            assert all(one.score.total >= 0 for one in router.order([model("a"), model("b")], role))


def test_without_candidates_there_is_no_order() -> None:
    assert Router(Health()).order([], FLAT) == []
