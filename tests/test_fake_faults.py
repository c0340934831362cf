"""Every fault of the fake server, seen by the real client under its name, and when it comes."""

from __future__ import annotations

import threading
import time
from typing import get_args

import httpx
import pytest

from fake_help import TEXT, ask, client, failure, get, request, rules, wait_for
from fake_server import FakeServer, Gone, Say
from nightmill.fake.faults import FAULTS
from nightmill.fake.slots import render, tokens
from nightmill.providers.base import Kind, NoVerdict

SEEN_AS: dict[str, str] = {
    **{kind: kind for kind in get_args(Kind)},
    "unreachable": "dropped",  # the call that kills it; the next one finds nobody
    "dead": "dropped",
    "drop": "dropped",
    "no_finish": "dropped",
    "hang": "idle",
    "stall": "idle",
    "flood": "length",
    "no_stream": "garbage",
    "restart_continuation": "restarted",
    "repeat_continuation": "restarted",
    "refuse_continuation": "restarted",
}
NOT_FAILURES = {"truncated", "wrong_model"}
"""The answer itself is whole: what is wrong shows in its counts or its model."""


def test_every_failure_of_the_client_can_be_had_under_its_own_name() -> None:
    assert set(get_args(Kind)) <= set(FAULTS)
    assert set(FAULTS) <= set(SEEN_AS) | NOT_FAILURES


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - NOT_FAILURES))
def test_each_fault_is_seen_as_its_kind_once_and_then_the_reply_comes(fault: str) -> None:
    concerned = fault == "restarted" or fault.endswith("_continuation")
    stays_away = {"s": 0.7} if FAULTS[fault] is FAULTS["dead"] else {}
    with FakeServer([TEXT], counts=True, rules=rules({"fault": fault, **stays_away})) as server:
        caught = failure(server, TEXT[:300] if concerned else "")
        if stays_away:
            assert failure(server).kind == "unreachable"
            wait_for(server)
        after = ask(server)
    assert caught.kind == SEEN_AS[fault]
    assert after.text == TEXT


@pytest.mark.parametrize("fault", ["drop", "hang", "no_finish", "length", "stream_error"])
def test_a_fault_in_the_middle_comes_after_so_many_characters(fault: str) -> None:
    with FakeServer([TEXT], rules=rules({"fault": fault, "after": 123})) as server:
        assert failure(server).partial == TEXT[:123]


def test_a_wish_to_wait_and_a_quota_are_told_as_given() -> None:
    with FakeServer(rules=rules({"fault": "rate_limited", "retry_after": 7}, {"fault": "no_quota", "status": 402})) as server:
        assert failure(server).retry_after == 7
        assert failure(server).kind == "no_quota"


def test_another_model_may_answer() -> None:
    with FakeServer(rules=rules({"fault": "wrong_model", "model": "tiny"})) as server:
        assert [ask(server).model, ask(server).model] == ["tiny", "fake-model"]


def test_a_prompt_is_cut_in_silence_for_one_call_or_always_as_ollama_does() -> None:
    with FakeServer(rules=rules({"fault": "truncated", "tokens": 20}), counts=True) as server:
        cut, whole = ask(server), ask(server)
        assert cut.prompt_tokens == 20 and whole.prompt_tokens == tokens(render(server.calls[0].messages, continues=True))
        assert get(server, "/api/ps").status_code == 404
    with FakeServer(truncate=50, window=None) as server:
        assert [ask(server).prompt_tokens for _ in range(2)] == [50, 50]
        assert client(server).window("fake-model") == 50


def test_for_so_many_seconds_every_route_is_loading() -> None:
    began = time.monotonic()
    with FakeServer(load_s=1) as server:
        assert [get(server, route).status_code for route in ("/health", "/props", "/v1/models")] == [503] * 3
        assert failure(server).kind == "loading"
        wait_for(server)
        assert 1 <= time.monotonic() - began < 5
        assert get(server, "/health").json() == {"status": "ok"}
        assert ask(server).text == "ok"
    with FakeServer(rules=rules({"at": 2, "fault": "loading", "s": 60})) as server:
        assert ask(server).text == "ok"
        assert failure(server).kind == "loading"
        assert get(server, "/health").status_code == 503


def test_a_dead_server_breaks_every_connection_forgets_its_caches_and_comes_back_at_the_same_port() -> None:
    with FakeServer(lambda _: Gone(0.7) if len(server.calls) == 3 else Say(TEXT, hang=40), counts=True, slots=2) as server:
        other: list[NoVerdict] = []
        thread = threading.Thread(target=lambda: other.append(failure(server, idle_s=9)))
        thread.start()
        assert failure(server).kind == "idle"
        assert failure(server).kind == "dropped"
        thread.join(2)
        assert [caught.kind for caught in other] == ["dropped"]
        assert failure(server).kind == "unreachable"
        wait_for(server)
        assert all(not slot.held for slot in server.slots.all)
        assert failure(server).partial == TEXT[:40]


def test_a_dead_server_can_be_ended_at_once() -> None:
    with FakeServer([Gone(60)]) as server:
        assert failure(server).kind == "dropped"
        ended = time.monotonic()
    assert time.monotonic() - ended < 2
    with pytest.raises(httpx.ConnectError):
        get(server, "/health")


def test_faults_come_by_number_by_range_by_label_and_only_so_often() -> None:
    planned = rules(
        {"at": 2, "fault": "empty"},
        {"at": [4, 5], "fault": "server_error"},
        {"at": "implement:*", "times": 2, "fault": "html"},
        {"at": "plan#1", "times": "always", "fault": "refusal"},
    )
    labels = ["a", "a", "a", "a", "a", "a", "implement:x#1", "implement:x#2", "implement:x#3", "plan#1", "plan#1", "plan#2"]
    with FakeServer(rules=planned) as server:
        seen = []
        for label in labels:
            try:
                seen.append(ask(server, asked=request(label)).text)
            except NoVerdict as caught:
                seen.append(caught.kind)
    assert seen == ["ok", "empty", "ok", "server_error", "server_error", "ok", "html", "html", "ok", "refusal", "refusal", "ok"]


def test_two_faults_for_one_request_come_one_after_the_other() -> None:
    with FakeServer(rules=rules({"fault": "loading", "times": 2}, {"fault": "rate_limited"})) as server:
        assert [failure(server).kind for _ in range(3)] == ["loading", "loading", "rate_limited"]
        assert ask(server).text == "ok"


def test_requests_that_only_try_something_out_are_not_counted_as_calls() -> None:
    with FakeServer(rules=rules({"at": 1, "fault": "empty"}, {"at": "probe:window", "fault": "html"})) as server:
        assert ask(server, asked=request("probe:continue")).text == "ok"
        assert failure(server, asked=request("probe:window")).kind == "html"
        assert failure(server).kind == "empty"
