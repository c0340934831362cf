"""Every fault of the fake server in the middle of real runs: they end as uninterrupted ones, or park and tell why; nobody is charged."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import hurried_doit
from fake_server import FakeServer, Rule
from faults_help import (
    CONTINUED,
    HURRIED,
    NIGHT,
    ROWS,
    WORSE,
    Whole,
    always,
    charged,
    check_same,
    ending,
    failures,
    in_a_while,
    judged,
    killed,
    laid_out,
    made,
    point,
    received,
    serve,
    states,
    uninterrupted,
)
from nightmill import cli
from nightmill.fake.faults import FAULTS
from nightmill.providers.continuation import LOSS
from runs import Ran, events_of, run
from small_runs import opened, scratch, small_run
from test_ask import GOOD, ask
from test_routing import several

PARKS = {name: row for name, row in ROWS.items() if row.exit}


def test_every_fault_of_the_registry_has_a_row() -> None:
    assert {builder.__name__ for builder in FAULTS.values()} == set(ROWS)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hurried_doit, "QUICKER", 500)
    for place in hurried_doit.PLACES:
        monkeypatch.setattr(place, "time", hurried_doit.Hurried)


@dataclass(frozen=True)
class Here:
    """The command in this process, as fast as its imports being done already makes it."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, root: Path, *arguments: str) -> Ran:
        before = len(events_of(root))
        self.monkeypatch.chdir(root)
        self.capsys.readouterr()
        code = cli.main(arguments)
        said = self.capsys.readouterr()
        return Ran(code, said.out, said.err, tuple(events_of(root)[before:]))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(monkeypatch, capsys)


# -- what an uninterrupted run makes --------------------------------------------------------------


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Whole]]:
    """The whole demo, made once, while the first test that wants it makes its own."""
    with ThreadPoolExecutor(1) as pool:
        future: Future[Whole] = pool.submit(uninterrupted, tmp_path_factory.mktemp("reference"))
        yield future.result


@dataclass(frozen=True)
class Drafted:
    """A run whose first contract is reviewed, and what its second round makes of it."""

    root: Path
    second: dict[str, bytes]

    def copy(self, to: Path) -> Path:
        return Path(shutil.copytree(self.root, to / "run", symlinks=True))


@pytest.fixture(scope="session")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Drafted:
    root = laid_out(tmp_path_factory.mktemp("drafted"))
    with serve() as server:
        point(root, server)
        assert run(root, "contract_review:1").code == 0
        whole = Path(shutil.copytree(root, root.with_name("whole"), symlinks=True))
        assert run(whole, "contract:2").code == 0
    return Drafted(root, made(whole))


# -- each fault, for ever -------------------------------------------------------------------------


QUICK = ("unauthorized", "too_large", "empty", "loading")
"""One of each exit code, and one that is asked differently; the others are alike and run in CI."""


@pytest.mark.parametrize("fault", [pytest.param(f, marks=() if f in QUICK else pytest.mark.slow) for f in PARKS])
def test_a_fault_that_does_not_end_parks_the_run_and_says_what_to_do(
    drafted: Drafted, tmp_path: Path, here: Here, hurried: None, fault: str
) -> None:
    row, root = ROWS[fault], drafted.copy(tmp_path)
    with serve(*always(fault)) as server:
        point(root, server, **dict(row.provider))
        parked = here(root, "run", "contract:2")
    assert parked.code == row.exit, parked.out
    assert row.says in ending(parked) and "contract:2: " in ending(parked)
    assert parked.started == ["contract:2"] and charged(parked.events) == []
    assert failures(parked.events)[-1].outcome == row.outcome and len(failures(parked.events)) == len(parked.asked)
    told = here(root, "explain").out
    assert f"class     no verdict: {row.outcome.replace('_', ' ')}" in told
    assert "\ncharged   nobody: " in told and row.says in told.partition("\nto do ")[2]
    with serve() as server:
        point(root, server)
        assert here(root, "run", "contract:2").code == 0
    assert made(root) == drafted.second and charged(events_of(root)) == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", [name for name, row in ROWS.items() if row.passes])
def test_a_fault_that_comes_once_costs_nobody_anything(drafted: Drafted, tmp_path: Path, here: Here, hurried: None, fault: str) -> None:
    row, root = ROWS[fault], drafted.copy(tmp_path)
    first = [{"fault": row.before}] if row.before else []
    with serve(*first, {"fault": fault, "s": 0.05} if fault == "dead" else {"fault": fault, "at": 1 + len(first)}) as server:
        point(root, server, **dict(row.provider))
        done = here(root, "run", "contract:2")
    assert done.code == 0, done.out
    assert done.asked[-1:] == ["contract:2#1"] and made(root) == drafted.second and charged(done.events) == []


@pytest.mark.parametrize("fault", ["empty", "length", "reasoning_only", "loop"])
def test_an_answer_that_came_only_after_the_question_was_changed_is_found_again_by_the_next_process(fault: str) -> None:
    with scratch() as folder, FakeServer([GOOD], rules=[Rule(fault)]) as server:
        root = small_run(folder / "run")
        several(root, server.url)
        assert ask(opened(root)).approved and ask(opened(root)).approved
        assert len(server.calls) == 2


# -- bad nights -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_night_of_every_fault_ends_as_an_uninterrupted_one(tmp_path: Path, reference: Callable[[], Whole], here: Here) -> None:
    root = laid_out(tmp_path)
    with serve(*NIGHT, *WORSE) as server:
        point(root, server, idle_s=2, first_token_s=2)
        for entry in WORSE:
            row, parked = ROWS[entry["fault"]], run(root, command=HURRIED)
            assert parked.code == row.exit, f"{entry}: {parked.out}"
            assert len(set(parked.started)) == len(parked.started), "a stage that failed was tried again"
            assert row.says in ending(parked) and f"no verdict: {row.outcome.replace('_', ' ')}" in here(root, "explain").out
        done = run(root, command=HURRIED)
    assert done.code == 0, done.out
    check_same(root, reference())
    events = events_of(root)
    assert {e.label for e in events if e.kind == "call_started" and e.resumed} == CONTINUED
    went_wrong = [e for e in failures(events) if e.outcome != "unreachable"]  # as often as somebody knocks before it is back
    assert len(went_wrong) == sum(entry.get("times", 1) for entry in NIGHT + WORSE if entry["fault"] != "wrong_model")
    assert run(root).events == ()


def test_the_night_holds_every_fault() -> None:
    assert {entry["fault"] for entry in NIGHT} == {name for name, row in ROWS.items() if row.passes}
    assert {entry["fault"] for entry in WORSE} == {name for name, row in ROWS.items() if not row.passes}


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_night_in_which_every_wait_takes_its_time_ends_so_too(tmp_path: Path, reference: Callable[[], Whole], workers: str) -> None:
    root = laid_out(tmp_path)
    with serve(*({**entry, "s": 12} if entry["fault"] == "dead" else entry for entry in NIGHT)) as server:
        point(root, server, idle_s=2, first_token_s=2)
        done = run(root, "-n", workers, timeout=400)
    assert done.code == 0, done.out
    check_same(root, reference())


@pytest.mark.slow
@pytest.mark.parametrize("fault", [name for name, row in ROWS.items() if row.passes])
def test_a_fault_in_a_draft_a_milestone_and_a_review_changes_nothing(tmp_path: Path, reference: Callable[[], Whole], fault: str) -> None:
    row, root = ROWS[fault], laid_out(tmp_path)
    places = ("contract:2#1", "implement:money#2", "implement:slip/security_reviewer#1")
    names = [row.before, fault] if row.before else [fault]
    given = {"s": 0.1} if fault == "dead" else {}
    with serve(*({"at": at, "fault": name, **given} for at in places for name in names)) as server:
        point(root, server, **dict(row.provider))
        done = run(root, command=HURRIED)
    assert done.code == 0, done.out
    check_same(root, reference())


@pytest.mark.slow
def test_a_milestone_to_which_no_usable_answer_ever_came_parks_and_is_made_when_one_comes(
    tmp_path: Path, reference: Callable[[], Whole]
) -> None:
    root = laid_out(tmp_path)
    with serve({"at": "implement:money#*", "fault": "empty", "times": "always"}) as server:
        point(root, server)
        assert run(root, command=HURRIED).code == 77
    with serve() as server:
        point(root, server)
        assert run(root).code == 0
    assert made(root) == reference().made
    assert {charged for _, _, outcome, charged in judged(root).attempts if outcome == "no verdict"} == {False}


@pytest.mark.slow
def test_a_review_that_never_came_blocks_nothing_and_is_told(tmp_path: Path) -> None:
    root = laid_out(tmp_path)
    with serve({"at": "implement:money/security_reviewer#*", "fault": "empty", "times": "always"}) as server:
        point(root, server)
        assert run(root, command=HURRIED).code == 0
    assert "security_reviewer" in (root / "deviations.md").read_text()
    assert "gave no readable review of money" in (root / "deviations.md").read_text()


# -- kill -9 in the middle of an answer -----------------------------------------------------------


@pytest.mark.slow
def test_an_answer_is_continued_after_every_kill_and_nothing_of_it_is_written_twice(drafted: Drafted, tmp_path: Path) -> None:
    root, had = drafted.copy(tmp_path), [0]
    with serve(decode_tps=600) as server:
        point(root, server)
        while had[-1] < 2400:
            assert killed(root, "contract:2", when=lambda: received(root) >= had[-1] + 700)
            had.append(received(root))
        assert run(root, "contract:2").code == 0
    started = [e.resumed for e in events_of(root) if e.kind == "call_started" and e.stage == "contract:2"]
    assert len(started) == len(had) and all(0 <= kept - resumed <= LOSS for kept, resumed in zip(had, started, strict=True))
    assert made(root) == drafted.second


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_killed_while_answers_stream_ends_as_an_uninterrupted_one(tmp_path: Path, reference: Callable[[], Whole], seed: int) -> None:
    dice, left, continued = random.Random(seed), 10, 0
    while left:
        root = laid_out(tmp_path / str(left))
        with serve(decode_tps=1000) as server:
            point(root, server)
            for _ in range(left):
                if not killed(root, when=in_a_while(root, dice.uniform(0.1, 3))):
                    break
                left -= 1
            assert run(root, timeout=300).code == 0
        check_same(root, reference())
        continued += sum(e.kind == "call_started" and e.resumed > 0 for e in events_of(root))
    assert continued


# -- two servers ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_that_dies_is_seen_to_go_and_to_come_back_while_another_answers(tmp_path: Path, reference: Callable[[], Whole]) -> None:
    root, seen = laid_out(tmp_path), [""]
    with serve({"at": "plan#1", "fault": "dead", "s": 8}) as first, serve() as second, ThreadPoolExecutor(1) as pool:
        point(root, first, second)
        night, end = pool.submit(run, root), time.monotonic() + 120
        while time.monotonic() < end and (seen[-1] != "up up" or not night.done()):
            if (now := states(root)) != seen[-1]:
                seen.append(now)
        assert night.result().code == 0
    assert seen[1:] == ["up up", "down up", "up up"]
    assert [(e.label, e.outcome) for e in failures(night.result().events)][:1] == [("plan#1", "dropped")]
    check_same(root, reference())
