"""Measured speeds: from events, for timeouts, and what is remembered from one run to the next."""

from __future__ import annotations

import json
import math
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.calls.speed_memory import MOST, recall, remember, state_file
from nightmill.calls.speeds import FIRST_FLOOR_S, IDLE_FLOOR_S, LONGEST_QUEUE_S, RECENT, UNMEASURED, Speed, Speeds, measured, patience
from nightmill.config import parse
from nightmill.run.events import CallFinished, CallStarted
from small_runs import opened, small_run

SERVER = {"url": "http://user:hunter2@10.0.0.7:8080/v1", "kind": "openai"}
CONFIG = parse(
    {
        "source": "v1",
        "providers": {"gpu": SERVER, "files": {"kind": "scripted", "replies": "r"}},
        "models": {"default": {"provider": "gpu", "model": "coder"}, "tester": {"provider": "files", "model": "s"}},
    }
)


def call(
    evaluated: int | None = 1000, first: float | None = 2.0, written: int | None = 101, decode: float = 5.0, **more: object
) -> CallFinished:
    facts = {"outcome": "ok", "evaluated_tokens": evaluated, "first_token_s": first, "completion_tokens": written, **more}
    facts = {"seconds": (first or 0) + decode, "provider": "gpu", "model": "coder", **facts}
    return CallFinished.model_validate({"stage": "s", "label": "s#1", "key": "k", **facts})


def test_a_call_measures_what_was_computed_for_it_and_what_it_wrote_after_the_first_token() -> None:
    assert measured(call()) == (500, 20)


@pytest.mark.parametrize(
    ("event", "speeds"),
    [
        (call(evaluated=20), (None, 20)),  # nearly all from the cache
        (call(evaluated=None), (None, 20)),
        (call(written=5), (500, None)),
        (call(written=None), (500, None)),
        (call(decode=0), (500, None)),
        (call(first=None), (None, None)),
        (call(first=0.0), (None, None)),
        (call(first=-1.0), (None, None)),
        (call(first=math.inf), (None, None)),
        (call(first=math.nan), (None, None)),
        (call(seconds=math.nan), (500, None)),
    ],
)
def test_what_is_too_short_or_odd_measures_nothing(event: CallFinished, speeds: tuple[float | None, float | None]) -> None:
    assert measured(event) == speeds


def test_the_speed_of_a_model_is_the_middle_of_its_recent_calls_and_the_slow_one_their_lower_quarter() -> None:
    speeds = Speeds([call(first=1000 / rate) for rate in [1.0] * 30 + [100.0] * RECENT])
    assert speeds.of("gpu", "coder").prefill == pytest.approx(100)
    speeds = Speeds([call(first=1000 / rate) for rate in (400, 10, 300, 200, 500)])
    assert speeds.of("gpu", "coder") == Speed(pytest.approx(300), pytest.approx(20), pytest.approx(200), pytest.approx(20))


def test_replays_measure_nothing_and_models_are_kept_apart_by_the_name_they_were_asked_by() -> None:
    speeds = Speeds([call(replayed=True), call(model="really-coder-q4", named="coder"), call(provider="other", first=4.0)])
    assert speeds.of("gpu", "coder").prefill == 500 and speeds.of("other", "coder").prefill == 250
    assert speeds.of("gpu", "really-coder-q4") == speeds.of("nobody", "x") == UNMEASURED
    assert set(speeds.measured()) == {("gpu", "coder"), ("other", "coder")}


def test_a_server_that_answers_with_the_path_of_the_model_is_measured_under_the_name_in_the_settings() -> None:
    place = {"stage": "s", "label": "s#1", "key": "k", "provider": "gpu"}
    speeds = Speeds([CallStarted.model_validate({**place, "model": "coder", "prompt_tokens": 1}), call(model="/models/coder.gguf")])
    assert speeds.of("gpu", "coder").prefill == 500 and set(speeds.measured()) == {("gpu", "coder")}


def test_a_remembered_speed_holds_until_this_run_has_measured_its_own() -> None:
    speeds = Speeds(remembered={("gpu", "coder"): Speed(50, 5, 40, 4)})
    assert speeds.of("gpu", "coder") == Speed(50, 5, 40, 4) and speeds.measured() == {}
    speeds.add(call(written=None))
    assert speeds.of("gpu", "coder") == Speed(500, 5, 500, 4)


def test_threads_may_add_while_others_ask() -> None:
    speeds = Speeds()

    def work() -> None:
        for _ in range(300):
            speeds.add(call())
            assert speeds.of("gpu", "coder").prefill == 500 and speeds.measured()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert speeds.of("gpu", "coder").decode == 20


# -- patience ----------------------------------------------------------------------------------


def test_an_unmeasured_server_gets_the_time_of_a_slow_one() -> None:
    first, idle = patience(30_000)
    assert 50 * 60 <= first <= 60 * 60  # a CPU that reads 10 tokens a second is not cut off
    assert 200 <= idle <= 600
    assert patience(500)[0] < 5 * 60


def test_a_fast_server_that_is_silent_is_noticed_within_minutes() -> None:
    first, idle = patience(30_000, Speed(2000, 60, 1500, 50))
    assert first < 5 * 60 and idle < 90


@given(st.integers(0, 200_000), st.floats(0.01, 1e5), st.floats(0.01, 1e4), st.integers(0, 10**5))
def test_no_call_at_a_third_of_the_measured_speed_is_cut_off(prompt: int, prefill: float, decode: float, ahead: int) -> None:
    first, idle = patience(prompt, Speed(prefill, decode, prefill, decode), ahead)
    assert first >= FIRST_FLOOR_S + prompt / (prefill / 3) + min(LONGEST_QUEUE_S, ahead / (decode / 3)) - 1e-3
    assert idle >= IDLE_FLOOR_S + 1 / (decode / 3)
    assert patience(prompt + 1000, Speed(prefill, decode, prefill, decode), ahead)[0] > first


# -- memory ------------------------------------------------------------------------------------


def test_a_new_run_knows_the_speeds_of_an_earlier_one_by_the_address_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "state" / "speeds.json"
    remember(CONFIG, {("gpu", "coder"): Speed(500, 20.12345, 400), ("files", "s"): Speed(1, 1)}, path)
    assert recall(CONFIG, path) == {("gpu", "coder"): Speed(500, 20.123, 400)}
    text = path.read_text()
    assert "10.0.0.7:8080 coder" in text and "hunter2" not in text and "user" not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    elsewhere = CONFIG.model_copy(
        update={"providers": {**CONFIG.providers, "gpu": CONFIG.providers["gpu"].model_copy(update={"url": "http://b"})}}
    )
    assert recall(elsewhere, path) == {}


def test_what_one_run_measured_is_known_to_the_session_of_the_next(tmp_path: Path) -> None:
    config = {"providers": {"gpu": SERVER | {"url": "http://10.9.8.7:1"}}, "models": {"default": {"provider": "gpu", "model": "coder"}}}
    first = opened(small_run(tmp_path / "a", **config))
    assert first.speeds.of("gpu", "coder") == UNMEASURED
    first.run.events.emit(call())
    remember(first.run.config, first.speeds.measured())
    assert opened(small_run(tmp_path / "b", **config)).speeds.of("gpu", "coder").prefill == 500


def test_what_another_run_measured_of_other_servers_stays_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "speeds.json"
    path.write_text(json.dumps({f"h{n} m": {"prefill": 1.0} for n in range(MOST + 50)}))
    remember(CONFIG, {("gpu", "coder"): Speed(500)}, path)
    kept = list(json.loads(path.read_text()))
    assert len(kept) == MOST and kept[-2:] == [f"h{MOST + 49} m", "10.0.0.7:8080 coder"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{", "\xff", '{"10.0.0.7:8080 coder": 3}', '{"10.0.0.7:8080 coder": {"prefill": "x", "decode": -1}}', "[" * 9999],
)
def test_a_damaged_memory_is_passed_over_and_written_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "speeds.json"
    path.write_text(text, encoding="latin-1")
    assert recall(CONFIG, path).get(("gpu", "coder"), UNMEASURED) == UNMEASURED
    remember(CONFIG, {("gpu", "coder"): Speed(500)}, path)
    assert recall(CONFIG, path) == {("gpu", "coder"): Speed(500)}


def test_a_state_directory_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    remember(CONFIG, {("gpu", "coder"): Speed(500)}, tmp_path / "file" / "nightmill" / "speeds.json")
    assert recall(CONFIG, tmp_path / "file" / "nightmill" / "speeds.json") == {}


def test_the_memory_is_in_the_state_directory_of_the_person_and_never_of_these_tests() -> None:
    assert state_file({"HOME": "/home/a"}) == Path("/home/a/.local/state/nightmill/speeds.json")
    assert state_file({"HOME": "/home/a", "XDG_STATE_HOME": "/s"}) == Path("/s/nightmill/speeds.json")
    assert state_file({"HOME": "/home/a", "XDG_STATE_HOME": "relative"}) == state_file({"HOME": "/home/a"})
    assert state_file({}) is None
    found = state_file()
    assert found and not found.is_relative_to(Path.home() / ".local")
