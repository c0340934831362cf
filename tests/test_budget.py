"""Caps over the life of a run, on simulated clocks: what is counted, what a kill leaves, what a clock that jumps may change."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.calls.account import NO_CALL, NO_WORK
from nightmill.calls.budget import Budget, next_time
from nightmill.config import Budgets
from nightmill.errors import OutOfBudget
from nightmill.run.events import (
    AttemptFinished,
    CallFinished,
    CallStarted,
    Event,
    EventLog,
    Note,
    RunEnded,
    RunStarted,
    StageFinished,
    StageStarted,
)
from runs import run
from small_runs import scratch

EVENING = datetime(2026, 3, 10, 22, 30).timestamp()


class World:
    """Two clocks and an event file. A process opens it, is killed, opens it again."""

    def __init__(self, folder: Path, **caps: object) -> None:
        self.path = folder / "events.jsonl"
        self.wall, self.mono = EVENING, 5000.0
        self.caps = Budgets.model_validate(caps)
        self.number = 0
        self.start()

    def open(self) -> Budget:
        self.log = SimulatedLog(self.path, self)
        self.budget = self.reread(self.log)
        return self.budget

    def reread(self, log: EventLog | None = None) -> Budget:
        return Budget(self.caps, log or EventLog(self.path), now=lambda: self.wall, monotonic=lambda: self.mono)

    def start(self) -> Budget:
        """Also after a kill, which leaves no trace."""
        budget = self.open()
        self.log.emit(RunStarted(pid=1, version="0", command="doit"))
        return budget

    def end(self) -> None:
        self.log.emit(RunEnded(exit=0, word="done"))

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.mono += seconds

    def begin(self, key: str = "", stage: str = "s", prompt: int = 100, most: int = 400) -> str:
        self.number += not key
        key = key or f"k{self.number}"
        self.log.emit(
            CallStarted(stage=stage, label=f"{stage}#{key}", key=key, provider="p", model="m", prompt_tokens=prompt, max_tokens=most)
        )
        return key

    def finish(self, key: str, stage: str = "s", **more: object) -> None:
        facts = {"outcome": "ok", "prompt_tokens": 100, "completion_tokens": 50, "cost": 0.5, **more}
        event = {"stage": stage, "label": f"{stage}#{key}", "key": key, "provider": "p", "model": "m", **facts}
        self.log.emit(CallFinished.model_validate(event))

    def call(self, key: str = "", stage: str = "s", **more: object) -> str:
        key = self.begin(key, stage)
        self.finish(key, stage, **more)
        return key

    def replay(self, key: str, stage: str = "s") -> None:
        self.finish(key, stage, replayed=key in self.budget.keys)

    def attempt(self, stage: str = "s", outcome: str = "red") -> None:
        self.log.emit(AttemptFinished(stage=stage, attempt=1, asked="patch", differs="", outcome=outcome, charged=outcome == "red"))


class SimulatedLog(EventLog):
    def __init__(self, path: Path, world: World) -> None:
        super().__init__(path)
        self.world, self.opened = world, world.mono - 2

    def emit(self, event: Event) -> None:
        event = event.model_copy(update={"at": self.world.wall, "up": self.world.mono - self.opened})
        with self.path.open("a") as file:
            file.write(event.model_dump_json() + "\n")
        for callback in self._subscribers:
            callback(event)


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch() as root:
        yield root


@contextmanager
def zone(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        yield
    time.tzset()


def figures(budget: Budget) -> tuple[float, ...]:
    return budget.calls, budget.tokens, budget.money, budget.attempts


# -- what counts -------------------------------------------------------------------------------


def test_calls_tokens_and_money_of_finished_calls_count_and_replays_do_not(folder: Path) -> None:
    world = World(folder)
    world.replay(world.call())
    assert figures(world.budget) == (1, 150, 0.5, 0)
    assert figures(world.start()) == (1, 150, 0.5, 0)


def test_a_call_that_a_kill_cut_off_counts_with_its_prompt(folder: Path) -> None:
    world = World(folder)
    world.begin(prompt=700)
    assert world.budget.tokens == 0
    assert figures(world.open()) == figures(world.start()) == figures(world.start()) == (1, 700, 0, 0)


def test_a_reply_stored_just_before_a_kill_is_counted_once_when_it_is_found(folder: Path) -> None:
    world = World(folder)
    key = world.begin()
    world.start()
    world.replay(key)
    world.replay(key)
    assert figures(world.budget) == figures(world.start()) == (1, 150, 0.5, 0)


def test_a_call_begun_again_after_a_kill_counts_twice(folder: Path) -> None:
    world = World(folder)
    key = world.begin()
    world.start()
    world.call(key)
    assert figures(world.budget) == figures(world.start()) == (2, 250, 0.5, 0)


@pytest.mark.parametrize(("outcome", "tokens"), [("ok", 300), ("dropped", 300), ("loop", 300), ("length", 500), ("unauthorized", 0)])
def test_without_counts_of_the_server_the_reserve_counts(folder: Path, outcome: str, tokens: int) -> None:
    world = World(folder)
    world.call(outcome=outcome, prompt_tokens=None, completion_tokens=None, cost=0)
    assert figures(world.budget) == (1, tokens, 0, 0)


@pytest.mark.parametrize("outcome", sorted(NO_CALL))
def test_asking_again_while_nobody_answers_uses_up_nothing(folder: Path, outcome: str) -> None:
    world = World(folder, calls=1)
    for _ in range(5):
        world.call(outcome=outcome, prompt_tokens=None, completion_tokens=None, cost=0)
    world.budget.reserve(100)


def test_outcomes_without_work_are_kinds_of_the_provider() -> None:
    from typing import get_args

    from nightmill.providers.base import Kind

    assert set(get_args(Kind)) > NO_WORK > NO_CALL


# -- caps --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caps", "said"),
    [
        ({"calls": 2}, "2 of 2 calls; raise budgets.calls in run.yaml"),
        ({"tokens": 500}, "300 of 500 tokens, and the next call may take 201; raise budgets.tokens in run.yaml"),
        ({"money": 1.2}, "1 of 1.2 in money, and the next call may cost 0.3; raise budgets.money in run.yaml"),
        ({"minutes": 1}, "1.5 of 1 minutes; raise budgets.minutes in run.yaml"),
        ({"until": "22:31"}, "it is past 22:31, the end of this night; run doit again for another one, or change budgets.until"),
    ],
)
def test_each_cap_says_what_is_spent_and_which_setting_to_change(folder: Path, caps: dict[str, object], said: str) -> None:
    world = World(folder, **caps)
    world.call()
    world.call()
    world.pass_time(90)
    world.log.emit(Note(text="a kill is dated by the last event"))
    for budget in (world.budget, world.start()):
        with pytest.raises(OutOfBudget) as caught:
            budget.reserve(201, 0.3)
        assert str(caught.value) == f"budget used up: {said}"


def test_what_exactly_reaches_a_cap_is_allowed_and_free_calls_need_no_money(folder: Path) -> None:
    world = World(folder, calls=1, tokens=500, money=0)
    world.budget.reserve(500, 0.0)
    with pytest.raises(OutOfBudget, match="0 of 1 calls"):
        world.budget.reserve(0)
    world.budget.release(500)
    world.budget.reserve(500, 0.0)


def test_without_caps_nothing_ends(folder: Path) -> None:
    world = World(folder)
    world.pass_time(1e6)
    world.budget.reserve(10**9, 1e9, "s")
    assert world.budget.expired() == "" and world.budget.left_s() is None and world.budget.room() == ()


@pytest.mark.parametrize("caps", [{"calls": 20}, {"tokens": 3000}, {"money": 10.0}, {"attempts": 5}])
def test_many_threads_that_reserve_at_once_never_exceed_a_cap(folder: Path, caps: dict[str, object]) -> None:
    world = World(folder, minutes=1e6, **caps)
    world.log = EventLog(world.path)  # type: ignore[assignment]

    def yielding() -> float:
        """The clock is read between the look at the caps and the reservation: another thread takes its chance there."""
        time.sleep(1e-5)
        return 0.0

    budget = world.budget = Budget(world.caps, world.log, monotonic=yielding)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(stage: str) -> None:
        for n in range(20):
            budget.attempt(stage)
            try:
                budget.reserve(500, 0.5, stage)
            except OutOfBudget:
                continue
            world.call(f"{stage}.{n}", stage, completion_tokens=(n * 37) % 400)
            budget.release(500, 0.5)
            world.attempt(stage)

    threads = [threading.Thread(target=work, args=(f"s{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    sys.setswitchinterval(interval)
    name, cap = next(iter(caps.items()))
    least = cap - 500 if name == "tokens" else cap  # type: ignore[operator]
    assert least <= getattr(budget, name) <= cap  # type: ignore[operator]
    assert getattr(world.reread(), name) == getattr(budget, name)
    assert (budget._in_flight, budget._reserved, budget._reserved_money) == (0, 0, 0)


# -- attempts ----------------------------------------------------------------------------------


def test_an_attempt_is_counted_once_however_often_a_restart_replays_it(folder: Path) -> None:
    world = World(folder)
    world.log.emit(StageStarted(stage="s"))
    first, review = world.call(), world.call()
    world.attempt()
    world.start()
    world.log.emit(StageStarted(stage="s"))
    world.replay(first)
    world.replay(review)
    world.attempt()
    assert world.budget.attempts == 1
    world.call()
    world.attempt()
    assert world.budget.attempts == world.start().attempts == 2


def test_an_attempt_that_a_kill_cut_off_counts_when_its_replay_ends(folder: Path) -> None:
    world = World(folder)
    key = world.call()
    world.start()
    assert world.budget.attempts == 0
    world.log.emit(StageStarted(stage="s"))
    world.replay(key)
    world.attempt()
    assert world.budget.attempts == 1


def test_calls_after_the_last_attempt_do_not_make_its_replay_a_new_one(folder: Path) -> None:
    world = World(folder)
    world.log.emit(StageStarted(stage="s"))
    key = world.call()
    world.attempt()
    world.call()
    world.start()
    world.log.emit(StageStarted(stage="s"))
    world.replay(key)
    world.attempt()
    assert world.budget.attempts == 1


def test_an_attempt_for_which_nobody_gave_a_verdict_is_no_attempt(folder: Path) -> None:
    world = World(folder)
    world.call()
    world.attempt(outcome="no verdict")
    assert world.budget.attempts == 0


def test_the_cap_on_attempts_refuses_the_first_call_beyond_it_but_neither_replays_nor_other_calls(folder: Path) -> None:
    world = World(folder, attempts=1)
    budget = world.budget
    budget.attempt("s")
    for _ in range(2):  # an answer and its review belong to one attempt
        budget.reserve(1, stage="s")
        budget.release(1)
    budget.attempt("other")
    with pytest.raises(OutOfBudget, match=r"0 of 1 attempts; raise budgets\.attempts"):
        budget.reserve(1, stage="other")
    world.call()
    world.attempt()
    budget.reserve(1, stage="s")  # after its last attempt a stage may ask something else
    budget.attempt("s")
    with pytest.raises(OutOfBudget, match=r"1 of 1 attempts"):
        budget.reserve(1, stage="s")


def test_an_attempt_that_ended_with_an_error_holds_no_place(folder: Path) -> None:
    world = World(folder, attempts=1)
    world.budget.attempt("s")
    world.budget.reserve(1, stage="s")
    world.log.emit(StageFinished(stage="s", status="failed"))
    world.budget.attempt("t")
    world.budget.reserve(1, stage="t")


# -- time --------------------------------------------------------------------------------------


def test_minutes_are_those_at_work_and_a_jumping_clock_changes_nothing(folder: Path) -> None:
    world = World(folder, minutes=30)
    for jump in (7 * 3600, -30 * 3600, 1e9):
        world.pass_time(60)
        world.wall += jump
        world.log.emit(Note(text="at work"))
    assert world.budget.minutes == 3 and world.budget.left_s() == 27 * 60
    world.end()
    world.pass_time(86_400)
    assert world.start().minutes == 3
    world.pass_time(60)
    world.log.emit(Note(text="the last that is seen of it"))
    world.pass_time(120)
    assert world.budget.minutes == 6
    world.pass_time(3600)
    assert world.start().minutes == 4  # killed: nobody knows when


def test_events_of_an_older_version_count_by_the_clock_on_the_wall_but_never_less_than_nothing(folder: Path) -> None:
    path = folder / "events.jsonl"
    start = RunStarted(at=1000, pid=1, version="0", command="doit")
    forward, back = RunEnded(at=1120, exit=0, word="done"), RunEnded(at=10, exit=0, word="done")
    path.write_text("".join(e.model_dump_json(exclude={"up"}) + "\n" for e in (start, forward, start, back)))
    assert Budget(Budgets(), EventLog(path), monotonic=lambda: 0.0).minutes == 2


def test_until_is_reached_by_the_wall_clock_or_after_the_time_at_work_whichever_is_first(folder: Path) -> None:
    world = World(folder, until="22:32")
    assert world.budget.left_s() == 120 and not world.budget.expired()
    world.wall += 119
    assert world.budget.left_s() == 1
    world.wall += 2
    assert "past 22:32" in world.budget.expired() and world.budget.left_s() == 0
    world.wall -= 7200  # set back: two minutes later it is time all the same
    assert world.budget.left_s() == 120
    world.pass_time(121)
    assert world.budget.expired()


def test_a_killed_run_keeps_the_end_of_its_night_and_one_that_ended_gets_another(folder: Path) -> None:
    world = World(folder, until="07:00")
    world.pass_time(3600)
    world.start()
    world.pass_time(7.75 * 3600)  # to 07:15
    assert world.open().expired()
    assert world.start().expired() and world.start().expired()
    world.end()
    assert world.start().left_s() == pytest.approx(23.75 * 3600, abs=3601)


def test_time_at_work_before_a_kill_counts_towards_the_end_of_the_night(folder: Path) -> None:
    world = World(folder, until="22:40")
    world.pass_time(300)
    world.log.emit(Note(text="at work"))
    world.wall -= 86_400
    assert world.start().left_s() == 300


@pytest.mark.parametrize(
    ("start", "clock", "hours"),
    [
        ("2026-03-28T23:00", "07:00", 7),  # the night to summer time
        ("2026-10-24T23:00", "07:00", 9),  # and back
        ("2026-03-28T23:00", "02:30", 3.5),  # left out: an hour later by the clock
        ("2026-10-24T23:00", "2:30", 3.5),  # twice: the first one
        ("2026-06-01T07:00", "07:00", 24),
        ("2026-06-01T06:59", "07:00", 1 / 60),
        ("2026-12-31T23:59", "0:00", 1 / 60),
    ],
)
def test_until_follows_the_local_time_through_changes_of_the_clock(start: str, clock: str, hours: float) -> None:
    with zone("Europe/Berlin"):
        after = datetime.fromisoformat(start).timestamp()
        assert next_time(after, clock) - after == hours * 3600


def test_of_a_time_that_comes_twice_the_second_one_is_next_after_the_first() -> None:
    with zone("Europe/Berlin"):
        first = datetime(2026, 10, 25, 2, 30).timestamp()
        assert next_time(first, "02:30") - first == 3600
        assert next_time(first + 3600, "02:30") - first == 25 * 3600


@given(st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"]), st.integers(0, 2**31), st.integers(0, 1439))
def test_the_next_time_of_day_is_always_ahead_and_at_most_a_day_away(where: str, after: int, minute: int) -> None:
    with zone(where):
        clock = f"{minute // 60:02}:{minute % 60:02}"
        found = next_time(after, clock)
        assert 0 < found - after <= 86_400 + 3600
        assert datetime.fromtimestamp(found).strftime("%H:%M") == clock or 0 < minute < 240  # left out by a change of the clock


# -- kills and jumps ---------------------------------------------------------------------------

doings = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(["ok", "dropped", "length", "loading"]), st.booleans()),
        st.tuples(st.just("begin"), st.integers(0, 500)),
        st.tuples(st.just("replay"), st.integers(0, 5)),
        st.tuples(st.just("attempt"), st.sampled_from(["red", "green", "no verdict"])),
        st.tuples(st.just("stage")),
        st.tuples(st.just("time"), st.integers(0, 4000)),
        st.tuples(st.just("jump"), st.integers(-(10**6), 10**6)),
        st.tuples(st.just("kill")),
        st.tuples(st.just("end")),
    ),
    max_size=40,
)


def do(world: World, doing: tuple[object, ...], *, jumps: bool = True) -> None:
    match doing:
        case ("call", outcome, counted):
            world.call(outcome=outcome, **({} if counted else {"prompt_tokens": None, "completion_tokens": None}))
        case ("begin", int(prompt)):
            world.begin(prompt=prompt)
        case ("replay", int(back)):
            world.replay(f"k{max(world.number - back, 0)}")
        case ("attempt", str(outcome)):
            world.attempt(outcome=outcome)
        case ("stage",):
            world.log.emit(StageStarted(stage="s"))
        case ("time", int(seconds)):
            world.pass_time(seconds)
            world.log.emit(Note(text="at work"))
        case ("jump", int(seconds)) if jumps:
            world.wall += seconds
        case ("kill",):
            world.start()
        case ("end",):
            world.end()
            world.start()


@given(doings)
def test_however_often_a_run_is_killed_its_counters_never_go_down_and_every_restart_agrees(many: list[tuple[object, ...]]) -> None:
    with scratch() as folder:
        world = World(folder)
        before = (*figures(world.budget), world.budget.minutes)
        for doing in many:
            do(world, doing)
            now = (*figures(world.budget), world.budget.minutes)
            assert all(a >= b - 1e-9 for a, b in zip(now, before, strict=True)), doing
            before = now
        assert figures(world.start()) == figures(world.reread()) == figures(world.start())
        assert world.reread().minutes == pytest.approx(before[-1])


@given(doings)
def test_no_jump_of_the_clock_changes_the_minutes(many: list[tuple[object, ...]]) -> None:
    with scratch() as one, scratch() as other:
        jumping, steady = World(one), World(other)
        for doing in many:
            do(jumping, doing)
            do(steady, doing, jumps=False)
            assert jumping.budget.minutes == pytest.approx(steady.budget.minutes)


# -- the real command --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "least"), [("calls: 3", 3), ("tokens: 30000", 1), ("minutes: 0", 0)])
def test_a_real_run_stops_clean_at_a_cap_and_again_when_it_is_restarted(demo_run: Path, cap: str, least: int) -> None:
    config = demo_run / "run.yaml"
    text = config.read_text()
    name = cap.partition(":")[0]
    config.write_text(text.replace(f"{name}: null", cap, 1))
    for _ in range(2):
        done = run(demo_run)
        assert (done.code, done.err) == (76, "") and f"raise budgets.{name} in run.yaml" in done.out
    assert len([e for e in done.events if e.kind == "call_finished" and not e.replayed]) == 0
    budget = Budget(Budgets(), EventLog(demo_run / ".nightmill/events.jsonl"))
    assert least <= budget.calls < 24 and budget.tokens <= 30_000
