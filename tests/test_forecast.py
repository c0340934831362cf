"""What a run will take: from its own history, from others of a kind, by first guess; told before it and compared after it."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.board import Board
from nightmill.calls.budget import Room
from nightmill.calls.forecast import Ahead, Past, Work, forecast, history_of
from nightmill.calls.speeds import Speed
from nightmill.config import Price
from nightmill.console import Console
from nightmill.lines import about, cost, narrate
from nightmill.run.events import CallFinished, CallStarted, Event, Forecast, RunEnded, StageFinished, StageStarted
from run_story import story
from runs import run

MODEL = ("gpu", "coder")
FAST = {MODEL: Speed(prefill=1000, decode=50)}
GUESS = Work(calls=2, prompt=2000, evaluated=2000, completion=1000)


def asked(stage: str, prompt: int | None = 1000, completion: int | None = 500, **more: object) -> list[Event]:
    place = {"stage": stage, "label": f"{stage}#1", "key": f"{stage}1", "provider": "gpu", "model": "coder"}
    started = CallStarted.model_validate({**place, "prompt_tokens": 900, "max_tokens": 800})
    facts = {"outcome": "ok", "prompt_tokens": prompt, "completion_tokens": completion, "seconds": 4.0, **more}
    return [started, CallFinished.model_validate({**place, **facts})]


def made(stage: str, *calls: list[Event], seconds: float = 10, status: str = "made") -> list[Event]:
    end = StageFinished.model_validate({"stage": stage, "status": status, "seconds": seconds})
    return [StageStarted(stage=stage), *(event for some in calls for event in some), end]


def ahead(*stages: str) -> list[Ahead]:
    return [Ahead(stage, MODEL, GUESS) for stage in stages]


def told(*stages: str, events: list[Event] | None = None, **more: object) -> Forecast:
    found = forecast(ahead(*stages), history_of(events or []), FAST, **more)  # type: ignore[arg-type]
    assert found
    return found


def test_a_stage_takes_what_it_took_the_last_time_it_was_made() -> None:
    events = [
        *made("plan", asked("plan"), asked("plan")),
        *made("plan", asked("plan", evaluated_tokens=200)),
        *made("plan", status="failed"),
    ]
    found = told("plan", events=events)
    assert (found.calls, found.tokens, found.basis) == (1, 1500, "1 stage as the last time")
    assert found.seconds == 200 / 1000 + 500 / 50 + (10 - 4)  # what was cached is not read again; the gates take their time


def test_replayed_replies_are_asked_afresh_and_asking_again_while_a_server_loads_is_no_call() -> None:
    events = made("plan", asked("plan", replayed=True), asked("plan", None, None, outcome="loading"), seconds=1)
    found = told("plan", events=events)
    assert (found.calls, found.tokens, found.seconds) == (1, 1500, 1 + 10 + 1)


def test_a_server_that_gave_no_counts_counts_by_its_reserve() -> None:
    assert told("plan", events=made("plan", asked("plan", None, None))).tokens == 900 + 400


def test_a_new_milestone_takes_the_mean_of_the_others_and_an_unknown_stage_the_first_guess() -> None:
    events = [
        *made("implement:a", asked("implement:a")),
        *made("implement:b", asked("implement:b"), asked("implement:b"), asked("implement:b")),
    ]
    found = told("implement:a", "implement:new", "schema", events=events)
    assert (found.calls, found.tokens) == (1 + 2 + 2, 1500 + 3000 + 3000)
    assert found.basis == "1 stage as the last time, 1 stage as others of their kind, 1 stage by first guess"


def test_what_is_not_made_has_no_forecast() -> None:
    assert forecast([], {}, FAST) is None


def test_without_a_measured_speed_there_is_no_time_and_the_basis_says_so() -> None:
    found = forecast(ahead("plan"), {}, {})
    assert found and (found.calls, found.tokens, found.seconds) == (2, 3000, 0)
    assert found.basis == "1 stage by first guess; no speed measured yet"
    assert found.over == () and "min" not in narrated(found)


def test_the_time_of_a_model_that_was_never_measured_is_left_out_by_name() -> None:
    found = forecast([*ahead("plan"), Ahead("review", ("gpu", "judge"), GUESS)], {}, FAST)
    assert found and found.seconds == 2 + 20
    assert found.basis == "2 stages by first guess; without the time of judge, not measured yet"


def test_what_this_invocation_took_so_far_is_a_part_of_it_but_not_of_what_must_fit_below_the_caps() -> None:
    room = [
        Room("calls", 2, "budgets.calls = 9"),
        Room("tokens", 2999, "budgets.tokens = 5000"),
        Room("seconds", 22, "budgets.minutes = 1"),
    ]
    found = told("plan", room=room, past=Past(7, 2001, 30), remark="with the plan")
    assert (found.calls, found.tokens, found.seconds) == (9, 5001, 52)
    assert found.over == ("budgets.tokens = 5000",) and found.basis.endswith("; with the plan")


@pytest.mark.parametrize(("left", "over"), [(21.9, True), (22.0, False), (-5.0, True)])
def test_more_than_is_left_until_the_morning_is_said(left: float, over: bool) -> None:
    assert told("plan", room=[Room("seconds", left, "budgets.until = 07:00")]).over == (("budgets.until = 07:00",) if over else ())


def test_what_costs_nothing_is_never_over_a_cap() -> None:
    assert told("plan", room=[Room("money", -1, "budgets.money = 1")]).over == ()


def test_money_is_forecast_by_the_price_of_who_is_asked() -> None:
    paid = [Ahead("plan", MODEL, GUESS, Price(input=1, output=10))]
    costs = (2000 * 1 + 1000 * 10) / 1e6
    for left, over in ((costs, ()), (costs - 1e-6, ("budgets.money = 1",))):
        found = forecast(paid, {}, {}, [Room("money", left, "budgets.money = 1")])
        assert found and found.over == over


numbers = st.one_of(st.none(), st.integers(-(10**6), 10**9))
moments = st.one_of(st.floats(-10, 1e6), st.sampled_from([math.inf, math.nan, -math.inf]))
events = st.lists(
    st.one_of(
        st.builds(
            lambda p, c, e, s, r: asked("plan", p, c, evaluated_tokens=e, seconds=s, replayed=r),
            numbers,
            numbers,
            numbers,
            moments,
            st.booleans(),
        ),
        st.builds(lambda s, w: made("plan", asked("plan"), seconds=s, status=w), moments, st.sampled_from(["made", "stopped", "held"])),
        st.sampled_from([[StageStarted(stage="plan")], [StageFinished(stage="plan", status="made")], list(story())]),
    ),
    max_size=8,
)


@given(events)
def test_odd_events_never_break_it(many: list[list[Event]]) -> None:
    found = told("plan", "contract:1", events=[event for some in many for event in some])
    assert found.calls >= 0 and found.tokens >= 0 and math.isfinite(found.seconds) and found.seconds >= 0
    assert narrated(found)


# -- on the screen -----------------------------------------------------------------------------


def narrated(event: Event) -> str:
    line = narrate(event)
    assert line
    return line.text


def test_it_is_one_line_that_warns_of_caps() -> None:
    found = Forecast(
        calls=24, tokens=31_204, seconds=733, basis="24 stages as the last time", over=("budgets.minutes = 10", "budgets.calls = 20")
    )
    line = narrate(found)
    assert line and line.tone == "warn"
    assert line.text == (
        "forecast: 24 calls, 31k tokens, 12 min (24 stages as the last time); more than is left of budgets.minutes = 10, budgets.calls = 20"
    )


def test_rough_figures_read_well() -> None:
    assert [about(s) for s in (1, 89, 90, 3600, 12_600)] == ["1 s", "89 s", "2 min", "60 min", "3.5 h"]
    assert cost(1, 950, 0) == "1 call, 950 tokens" and cost(24, 1_234_567, 60) == "24 calls, 1,235k tokens, 60 s"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("code", [0, 76])
def test_the_end_compares_the_last_forecast_with_what_was_taken(code: int) -> None:
    board = Board(clock=(clock := Clock()))
    board.apply(Forecast(calls=1, tokens=1, seconds=1, basis="before the plan"))
    board.apply(Forecast(calls=24, tokens=31_000, seconds=720, basis="x"))
    for event in made("plan", asked("plan"), asked("plan", replayed=True)):
        board.apply(event)
    clock.now += 840
    lines = board.ending(RunEnded(exit=code, word="w"))
    assert lines[-1].text == "forecast 24 calls, 31k tokens, 12 min; took 1 call, 1,500 tokens, 14 min"


def test_under_cron_nothing_is_said_of_it_while_all_goes_well() -> None:
    stream = io.StringIO()
    console = Console(stream, quiet=True, environ={})
    for event in (Forecast(calls=1, tokens=1, seconds=1, basis="b", over=("budgets.calls = 0",)), RunEnded(exit=0, word="done")):
        console.on_event(event)
    assert stream.getvalue() == ""


def of(events: tuple[Event, ...]) -> list[Forecast]:
    return [event for event in events if isinstance(event, Forecast)]


@pytest.mark.slow
def test_a_real_run_is_forecast_before_it_asks_and_again_with_its_plan_and_is_silent_under_cron(demo_run: Path) -> None:
    done = run(demo_run)
    assert (done.code, done.out) == (0, "")
    kinds = [event.kind for event in done.events]
    first, second = of(done.events)
    assert kinds.index("forecast") < kinds.index("call_started")
    assert "the milestones, which are not planned yet" in first.basis and "with the milestones of the plan" in second.basis
    assert first.calls < second.calls and first.seconds == 0
    taken = len(done.asked)
    assert taken / 2 <= second.calls <= taken * 2
    again = run(demo_run, "-a")
    assert next(f.calls for f in of(again.events)) == taken


def test_only_what_is_stale_or_stands_behind_it_is_forecast(finished_run: Path) -> None:
    (finished_run / "v2/extra.py").unlink(missing_ok=True)
    one = run(finished_run, "-a", "-s", "ip_review")
    assert [f.calls for f in of(one.events)] == [sum(e.stage == "ip_review" for e in of_calls(one.events))] == [1]
    (finished_run / "mission.md").write_text((finished_run / "mission.md").read_text() + "\nKeep its name.\n")
    far = run(finished_run, "contract:1")
    assert [f.calls for f in of(far.events)] == [1]
    assert json.loads((finished_run / "summary.json").read_text())["word"]


def of_calls(events: tuple[Event, ...]) -> list[CallFinished]:
    return [event for event in events if isinstance(event, CallFinished)]
