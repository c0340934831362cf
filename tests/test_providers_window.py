"""How many tokens a server holds: told, or measured; how it counts; and the terms of one call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_server import FakeServer, Raw, Recorded, Rule, Say, closed_port, error, event, too_large
from nightmill.providers.base import Message, NoVerdict, Reply, Request, Terms
from nightmill.providers.windows import FIRST_PROBE, NARROW, PROBE_CAP, filler, measured, named_window
from test_providers_continue import Other, client, go_on, ignore

REQUEST = Request("fake-model", (Message("user", "Say ok."),), 0.2, 7, 200, "contract:1#1")
OLLAMA = {"name": "qwen:latest", "model": "qwen:latest", "context_length": 4096}
STUDIO = {"id": "qwen", "state": "loaded", "max_context_length": 131072, "loaded_context_length": 8192}


@pytest.mark.parametrize(
    ("routes", "window"),
    [
        ({"/props": {"default_generation_settings": {"n_ctx": 4096}}, "/v1/models": {"data": [{"id": "qwen", "max_model_len": 9}]}}, 4096),
        (
            {
                "/props": {"role": "router", "default_generation_settings": {"n_ctx": 0}},
                "/props?model=qwen&autoload=true": {"default_generation_settings": {"n_ctx": 6144}},
            },
            6144,
        ),
        ({"/v1/models": {"data": [{"id": "other", "max_model_len": 9}, {"id": "qwen", "max_model_len": 16384}]}}, 16384),
        ({"/v1/models": {"data": [{"id": "qwen", "context_length": 200_000}]}}, 200_000),
        ({"/v1/models": {"data": [{"id": "alias", "meta": {"n_ctx": 2048, "n_ctx_train": 32768}}]}}, 2048),
        ({"/v1/models": {"data": [{"id": "qwen", "meta": {"n_ctx_train": 32768}}]}}, None),
        ({"/api/ps": {"models": [OLLAMA | {"name": "llama:8b", "model": "llama:8b", "context_length": 2048}, OLLAMA]}}, 4096),
        ({"/api/v0/models": {"data": [STUDIO]}}, 8192),
        ({"/api/v0/models": {"data": [{"id": "qwen", "state": "loaded", "max_context_length": 131072}]}}, None),
        ({"/upstream/qwen/props": {"default_generation_settings": {"n_ctx": 12288}}}, 12288),
        ({"/props": {"error": "Unexpected endpoint or method. (GET /props)"}, "/api/v0/models": {"data": [STUDIO]}}, 8192),
        (
            {"/props": ["not", "ours"], "/v1/models": {"data": "neither"}, "/api/ps": {"models": [7]}, "/api/v0/models": {"data": [None]}},
            None,
        ),
    ],
)
def test_the_window_is_what_was_loaded_whoever_tells(routes: dict[str, Any], window: int | None) -> None:
    with Other(routes, model="someone-else") as server:
        assert client(server.url).window("qwen") == window


@pytest.mark.parametrize("route", ["/api/ps", "/api/v0/models"])
def test_a_model_that_must_be_loaded_to_know_is_loaded_with_one_token(route: str) -> None:
    loaded = {"/api/ps": {"models": [OLLAMA]}, "/api/v0/models": {"data": [STUDIO]}}
    server = Other({"/api/ps": {"models": []}} if route == "/api/ps" else {route: {"data": [STUDIO | {"state": "not-loaded"}]}})

    def load(request: Recorded) -> Say:
        server.own = {route: loaded[route]}
        return Say("!", finish="length")

    server._scenario = load
    with server:
        assert client(server.url).window("qwen") == (4096 if route == "/api/ps" else 8192)
    assert [call.body["max_tokens"] for call in server.calls] == [1]


Reader = Callable[[str], int | None]


def reader(window: int, how: str, ratio: float = 1.0, overhead: int = 20) -> tuple[Reader, list[int]]:
    """A server with such a window, as `measured` sees it, and the tokens of each prompt that it was sent."""
    sent: list[int] = []

    def read(prompt: str) -> int | None:
        tokens = int(len(prompt.split()) * ratio) + overhead
        sent.append(tokens)
        if tokens <= window:
            return tokens
        if how == "cuts":
            return window
        if how == "halves":
            return window // 2
        detail = f"the maximum context length is {window} tokens, you sent {tokens}" if how == "names" else "prompt is too long"
        raise NoVerdict("too_large", detail)

    return read, sent


@settings(deadline=None, max_examples=60)
@given(st.integers(1000, 100_000), st.sampled_from(["cuts", "halves", "refuses", "names"]), st.floats(1, 5), st.integers(0, 60))
def test_a_measured_window_is_never_above_the_true_one_and_at_most_a_twentieth_below(
    window: int, how: str, ratio: float, overhead: int
) -> None:
    read, sent = reader(window, how, ratio, overhead)
    found = measured(read)
    assert found is not None
    assert found <= window
    if window > 2 * FIRST_PROBE * ratio and how != "halves":
        assert found >= window * (1 - NARROW) * 0.99
    assert len(sent) < 20
    assert max(sent) <= (PROBE_CAP + 1) * ratio + overhead


def test_measuring_stops_at_the_cap_and_at_the_first_answer_that_shows_nothing() -> None:
    read, sent = reader(10**9, "refuses")
    found = measured(read, 8192)
    assert found is not None and 8192 <= found < 8300
    assert len(sent) == 4
    assert measured(lambda _: None) is None


def test_a_failure_that_is_no_refusal_ends_the_measuring() -> None:
    def broken(_: str) -> int:
        raise NoVerdict("bad_request", "no such parameter")

    def gone(prompt: str) -> int:
        if len(prompt.split()) > FIRST_PROBE:
            raise NoVerdict("unreachable", "nothing listens")
        return FIRST_PROBE

    for read in (broken, gone):
        with pytest.raises(NoVerdict):
            measured(read)


def test_fillers_have_their_size_and_no_common_beginning() -> None:
    assert len(filler(500).split()) == 500
    assert filler(500)[:3] != filler(1000)[:3]


@pytest.mark.parametrize(
    ("said", "window"),
    [
        ("request (5030 tokens) exceeds the available context size (4096 tokens), try increasing it", 4096),
        ("This model's maximum context length is 16384 tokens. However, you requested 20000 tokens", 16384),
        ("prompt is too long: 210,000 tokens > 200,000 maximum", 200_000),
        ("context window of 8,192 tokens", 8192),
        ("too many tokens", None),
    ],
)
def test_the_window_is_read_from_a_refusal(said: str, window: int | None) -> None:
    assert named_window(said) == window


def test_a_probe_measures_a_server_that_tells_nothing() -> None:
    with FakeServer(window=None, truncate=3000) as server:
        found = client(server.url).probe("fake-model")
        assert found is not None and 3000 * (1 - NARROW) <= found <= 3000
        assert all(call.body["max_tokens"] == 1 and call.label == "probe:window" for call in server.calls)
    with FakeServer(window=3000, counts=True) as server:
        assert client(server.url).probe("fake-model") == 3000
    with FakeServer(window=None) as server:
        assert client(server.url).probe("fake-model") is None
    with FakeServer([too_large()]) as server:
        assert client(server.url).probe("fake-model") is None
    with pytest.raises(NoVerdict):
        client(f"http://127.0.0.1:{closed_port()}").probe("fake-model")


@pytest.mark.parametrize(
    ("answer", "count"),
    [({"tokens": [1, 2, 3]}, 3), ({"count": 4, "max_model_len": 9}, 4), ({"error": "Unexpected endpoint"}, None), ({}, None), ([], None)],
)
def test_tokens_are_counted_in_the_forms_of_both_servers(answer: object, count: int | None) -> None:
    with Other({"/tokenize": answer, "/props": {"default_generation_settings": {"n_ctx": 9}}}) as server:
        provider = client(server.url)
        assert provider.count("some text") == count
        assert server.requests[0].body == {"content": "some text", "prompt": "some text", "add_special_tokens": False}
        provider.window("qwen")
        provider.count("some text")
    if count:
        assert server.requests[-1].body["model"] == "qwen"


def complete(server: FakeServer, terms: Terms, **given: Any) -> Reply:
    return client(server.url).complete(REQUEST, ignore, go_on, terms)


def test_the_terms_of_a_call_override_the_providers_times() -> None:
    with FakeServer([Say("ok", stall=5)]) as server, pytest.raises(NoVerdict) as caught:
        complete(server, Terms(first_token_s=0.2))
    assert caught.value.kind == "idle" and "0.2 s (first_token_s)" in caught.value.detail
    with FakeServer([Say("some text", hang=4)]) as server, pytest.raises(NoVerdict) as caught:
        complete(server, Terms(idle_s=0.2))
    assert "0.2 s (idle_s)" in caught.value.detail and caught.value.partial == "some"


def test_progress_restarts_the_wait_for_the_first_token_and_starts_no_wait_for_the_next() -> None:
    progress = event({"choices": [], "prompt_progress": {"total": 9000, "processed": 2048}})
    answer = event({"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]})
    with FakeServer([Raw((progress, progress, progress, answer), delay=0.3)]) as server:
        reply = complete(server, Terms(first_token_s=0.6, idle_s=0.1))
    assert reply.text == "ok" and reply.first_token_s is not None and 0.8 < reply.first_token_s <= reply.seconds


def test_thinking_is_passed_on_as_it_comes_and_stays_out_of_the_text() -> None:
    thoughts: list[str] = []
    texts: list[str] = []
    with FakeServer([Say("<think>and again</think>yes", think="Let me see.", chunk=4)]) as server:
        client(server.url).complete(REQUEST, texts.append, go_on, Terms(on_thought=thoughts.append))
    assert "".join(thoughts) == "Let me see.and again" and "".join(texts) == "yes"


def test_progress_is_asked_only_of_a_server_that_has_shown_to_be_llama_server() -> None:
    with FakeServer() as server:
        provider = client(server.url)
        provider.complete(REQUEST, ignore, go_on)
        provider.window("fake-model")
        provider.complete(REQUEST, ignore, go_on)
    assert [call.body.get("return_progress") for call in server.calls] == [None, True]


def test_a_call_says_what_it_is_for_in_a_header() -> None:
    with FakeServer() as server:
        for label in ("contract:1#1", "implement:grüße\r\nX-Evil: 1/Reviewer#2", ""):
            client(server.url).complete(Request("m", REQUEST.messages, 0, 0, 9, label), ignore, go_on)
            assert server.calls[-1].label == label
            assert "x-evil" not in server.calls[-1].headers


def test_what_was_evaluated_is_told_apart_from_what_was_cached() -> None:
    with FakeServer([Say("ok", timings={"prompt_n": 40, "cache_n": 60, "predicted_n": 1})]) as server:
        assert complete(server, Terms()).evaluated_tokens == 40
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 70}}
    with FakeServer([Say("ok", usage=usage)]) as server:
        assert complete(server, Terms()).evaluated_tokens == 30
    with FakeServer([Say("ok", usage={"prompt_tokens": 100})]) as server:
        assert complete(server, Terms()).evaluated_tokens is None
    with FakeServer(rules=[Rule("wrong_model")]) as server:
        assert complete(server, Terms()).model == "another-model"


def test_times_that_nobody_set_are_long() -> None:
    started = time.monotonic()
    with FakeServer([Say("ok", stall=0.2)]) as server:
        from nightmill.providers.openai_compat import OpenAICompat

        assert OpenAICompat("fake", server.url, api_key=None).complete(REQUEST, ignore, go_on).text == "ok"
    assert time.monotonic() - started < 5
    with FakeServer([error(500, "x")]) as server, pytest.raises(NoVerdict):
        OpenAICompat("fake", server.url, api_key=None).complete(REQUEST, ignore, go_on)
