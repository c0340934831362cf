"""The client against a real loopback server, one fault at a time."""

from __future__ import annotations

import email.utils
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from fake_server import Answer, FakeServer, Http, Raw, Say, closed_port, error, event, flood, html, invalid_utf8, loading, loop, too_large
from nightmill.errors import ConfigError, Stopped
from nightmill.providers.base import Message, NoVerdict, Reply, Request
from nightmill.providers.failures import Failures, retry_after
from nightmill.providers.openai_compat import OpenAICompat

REQUEST = Request("fake-model", (Message("system", "Be short."), Message("user", "Say ok.")), 0.2, 7, 200, "contract:1#1")
KEY = "sk-a-very-secret-key"


def ignore(_: str) -> None: ...


def go_on() -> bool:
    return False


def client(url: str, **given: Any) -> OpenAICompat:
    return OpenAICompat("fake", url, **({"api_key": None, "idle_s": 3, "connect_s": 3, "first_token_s": 5} | given))


def ask(answer: Answer | str, on_text: Callable[[str], None] = ignore, **given: Any) -> Reply:
    with FakeServer([answer]) as server:
        return client(server.url, **given).complete(REQUEST, on_text, go_on)


def failure(answer: Answer | str, **given: Any) -> NoVerdict:
    with pytest.raises(NoVerdict) as caught:
        ask(answer, **given)
    assert "\n" not in caught.value.detail
    return caught.value


def test_an_answer_streams_piece_by_piece_and_arrives_whole() -> None:
    pieces: list[str] = []
    reply = ask(Say("Grüße, 世界 🌍!\n" * 3, chunk=3), pieces.append)
    assert reply.text == "Grüße, 世界 🌍!\n" * 3 == "".join(pieces)
    assert len(pieces) > 5
    assert (reply.model, reply.finish, reply.reasoning) == ("fake-model", "stop", "")


def test_everything_of_the_request_is_sent_once_without_a_key_header() -> None:
    with FakeServer() as server:
        client(server.url).complete(REQUEST, ignore, go_on)
    (sent,) = server.requests
    assert sent.path == "/v1/chat/completions"
    assert sent.body["messages"] == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Say ok."}]
    assert {k: sent.body[k] for k in ("model", "temperature", "seed", "max_tokens", "stream")} == {
        "model": "fake-model",
        "temperature": 0.2,
        "seed": 7,
        "max_tokens": 200,
        "stream": True,
    }
    assert sent.body["stream_options"] == {"include_usage": True}
    assert "authorization" not in sent.headers


def test_a_redo_sends_another_seed() -> None:
    with FakeServer() as server:
        client(server.url).complete(Request("m", REQUEST.messages, 0, 7, 9, "", take=2), ignore, go_on)
    assert server.calls[0].body["seed"] == 9


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_the_url_is_accepted_with_or_without_its_routes(suffix: str) -> None:
    with FakeServer() as server:
        provider = client(server.url.removesuffix("/v1") + suffix)
        assert provider.complete(REQUEST, ignore, go_on).text == "ok"
        assert provider.window("fake-model") == 8192


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "ftp://x/v1",
        "http://",
        "http://user:pw@host/v1",
        "http://h/v1?key=abc",
        "http://u:pw@[::1/v1",
        "http://a..b",
        "http://127.0.0.1:99999",
    ],
)
def test_a_url_that_cannot_work_is_a_configuration_error_that_shows_no_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client(url)
    assert "pw" not in str(caught.value) and "abc" not in str(caught.value)


def test_proxy_variables_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    assert ask("ok").text == "ok"


def test_tokens_come_from_usage_and_are_completed_by_timings() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60}}
    both = ask(Say("ok", usage=usage, timings={"prompt_n": 1, "cache_n": 2, "predicted_n": 3}))
    assert (both.prompt_tokens, both.cached_tokens, both.completion_tokens) == (100, 60, 5)
    timed = ask(Say("ok", timings={"prompt_n": 40, "cache_n": 60, "predicted_n": 3}))
    assert (timed.prompt_tokens, timed.cached_tokens, timed.completion_tokens) == (100, 60, 3)
    silent = ask("ok")
    assert (silent.prompt_tokens, silent.cached_tokens, silent.completion_tokens, silent.estimated) == (None, None, None, False)


def test_a_count_beyond_every_window_is_none() -> None:
    absurd = ask(Say("ok", usage={"prompt_tokens": 10**30, "completion_tokens": 10**9}))
    assert (absurd.prompt_tokens, absurd.completion_tokens) == (None, None)


def test_reasoning_is_kept_apart_however_the_server_sends_it() -> None:
    pieces: list[str] = []
    delta = ask(Say("VERDICT: APPROVED", think="Let me see."), pieces.append)
    tags = ask(Say("<think>\nLet me see.\n</think>\n\nVERDICT: APPROVED", chunk=3), pieces.append)
    for reply in (delta, tags):
        assert (reply.text, reply.reasoning) == ("VERDICT: APPROVED", "Let me see.")
    assert "see" not in "".join(pieces)


def test_an_answer_without_the_final_statistics_still_counts() -> None:
    assert ask(Say("all of it", done=False)).text == "all of it"
    chunk = {"choices": [{"index": 0, "delta": {"content": "all of it"}, "finish_reason": "stop"}]}
    assert ask(Raw((event(chunk), b"data: {"))).text == "all of it"
    assert ask(Raw((event(chunk), b": silent"), delay=0.6), idle_s=0.2).text == "all of it"


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (error(401, "no"), "unauthorized", "401"),
        (error(403, "not in your region"), "unauthorized", "region"),
        (error(404, "model 'x' not found"), "no_model", "model 'x'"),
        (error(400, "model `x` does not exist"), "no_model", "does not exist"),
        (error(400, "temperature must be below 2"), "bad_request", "temperature"),
        (Http(422, b'{"detail": [{"msg": "field required"}]}'), "bad_request", "field required"),
        (too_large(), "too_large", "9001"),
        (error(400, "This model's maximum context length is 4096 tokens"), "too_large", "4096"),
        (Http(413), "too_large", "413"),
        (error(429, "slow down"), "rate_limited", "slow down"),
        (error(402, "pay first"), "no_quota", "402"),
        (
            error(429, "You exceeded your current quota, please check your plan and billing details", "insufficient_quota"),
            "no_quota",
            "plan",
        ),
        (error(429, "Your credit balance is too low"), "no_quota", "credit"),
        (error(429, "Quota exceeded, see your billing page. Please retry in 12 s."), "rate_limited", "retry in 12"),
        (error(429, "check your billing", Retry_After="30"), "rate_limited", "billing"),
        (loading(), "loading", "Loading model"),
        (error(503, "no capacity"), "server_error", "no capacity"),
        (error(500, "oops"), "server_error", "oops"),
        (html(502), "server_error", "HTML"),
        (html(), "html", "HTML"),
        (Http(200, b"<html>", {}), "html", "<html>"),
        (Http(200, b'{"choices": []}', {"Content-Type": "application/json"}), "garbage", "JSON"),
        (Http(200, b'{"error": "down"}', {"Content-Type": "application/json"}), "server_error", "down"),
        (Http(204), "garbage", "204"),
        (Http(302, b"", {"Location": "http://other/v1?token=abc"}), "bad_request", "http://other/v1"),
        (Say("some text", error={"message": "slot failed", "code": 500}), "stream_error", "slot failed"),
        (Say("", error={"message": "x", "type": "exceed_context_size_error", "code": 400}), "too_large", "x"),
        (Say("some text", error={"message": "busy", "code": 429}), "rate_limited", "busy"),
        (Say("some text", error={"message": "Loading model", "code": 503}), "loading", "Loading"),
        (Say("", error={"message": "no credits left", "code": 402}), "no_quota", "credits"),
        (Raw((b'error: {"code": 500, "message": "old style"}\n\n',)), "stream_error", "old style"),
        (Say("some text", drop=9), "dropped", "closed"),
        (Say("some text", finish=None), "dropped", "stop reason"),
        (Say("some text", finish="length"), "length", "max_tokens = 200"),
        (Say("", think="hm", finish="length"), "length", "reasoning"),
        (Say(""), "empty", "nothing"),
        (Say(" \n\n"), "empty", "nothing"),
        (Say("", think="hm"), "reasoning_only", "reasoning only"),
        (Say("<think>\nhm"), "reasoning_only", "reasoning only"),
        (Say("", finish="content_filter"), "refusal", "content filter"),
        (Say("some text", finish="content_filter"), "refusal", "content filter"),
        (
            Raw(
                (event({"choices": [{"delta": {"refusal": "I will not."}}]}), event({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
            ),
            "refusal",
            "I will not.",
        ),
        (Raw((event({"choices": [{"message": {"refusal": "No."}, "finish_reason": "stop"}]}),)), "refusal", "No."),
        (Say("some text", finish="error"), "stream_error", "error"),
        (loop(), "loop", "returns the value"),
        (Say("ok", think="I should look at it again.\n" * 50), "loop", "reasoning"),
        (invalid_utf8(), "bad_utf8", "UTF-8"),
        (Raw((b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n',)), "bad_utf8", "half a character"),
        (Raw((b"data: {oops\n\n",)), "garbage", "JSON"),
        (Raw((b"SSH-2.0-OpenSSH\n",)), "garbage", "SSH"),
        (Raw((event({"choices": 7}),)), "garbage", "choices"),
        (flood(), "length", "does not keep to max_tokens"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_fault_has_its_kind_and_says_what_happened(answer: Answer, kind: str, says: str) -> None:
    caught = failure(answer)
    assert caught.kind == kind
    assert says in caught.detail
    assert "token=abc" not in caught.detail


@pytest.mark.parametrize("answer", [Say("some text", drop=9), Say("some text", finish="length"), Say("some text", hang=9)])
def test_the_text_so_far_travels_with_the_failure(answer: Say) -> None:
    assert failure(answer, idle_s=0.1).partial == "some text"


def test_nothing_listening_is_told_at_once() -> None:
    with pytest.raises(NoVerdict, match=r"nothing listens at 127\.0\.0\.1") as caught:
        client(f"http://127.0.0.1:{closed_port()}").complete(REQUEST, ignore, go_on)
    assert caught.value.kind == "unreachable"


def test_a_plain_server_asked_for_tls_is_unreachable_and_the_remedy_named() -> None:
    with FakeServer() as server, pytest.raises(NoVerdict, match="http://") as caught:
        client(server.url.replace("http:", "https:")).complete(REQUEST, ignore, go_on)
    assert caught.value.kind == "unreachable"


def test_an_unknown_host_name_is_told_from_a_refusal() -> None:
    lost = httpx.ConnectError("x")
    lost.__cause__ = socket.gaierror(-2, "Name or service not known")
    caught = Failures("gpu-box:8080").transport(lost, 1)
    assert caught.kind == "unreachable" and "host name of gpu-box:8080" in caught.detail


@pytest.mark.parametrize(("says", "kind"), [(b"-ERR unknown command 'POST'\r\n\r\n", "garbage"), (b"SSH-2.0", "dropped"), (b"", "dropped")])
def test_a_server_of_another_kind_is_no_traceback(says: bytes, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(says)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(NoVerdict) as caught:
            client(f"http://127.0.0.1:{listener.getsockname()[1]}").complete(REQUEST, ignore, go_on)
        thread.join()
    assert caught.value.kind == kind


def test_silence_between_tokens_is_idle_and_pings_do_not_count() -> None:
    started = time.monotonic()
    caught = failure(Say("some text", hang=9, pings=True), idle_s=0.3)
    assert caught.kind == "idle" and "idle_s" in caught.detail
    assert time.monotonic() - started < 2


def test_the_prefill_has_its_own_longer_limit() -> None:
    assert ask(Say("ok", stall=0.5), idle_s=0.2).text == "ok"
    assert ask(Say("ok", headers_after=0.5), idle_s=0.2).text == "ok"
    caught = failure(Say("ok", stall=5, pings=True), first_token_s=0.3)
    assert caught.kind == "idle" and "first_token_s" in caught.detail


def test_prefill_progress_restarts_its_limit() -> None:
    progress = event({"choices": [], "prompt_progress": {"total": 9000, "processed": 2048}})
    answer = event({"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]})
    assert ask(Raw((progress, progress, progress, progress, answer), delay=0.3), first_token_s=0.8, idle_s=0.8).text == "ok"


def test_a_slow_answer_is_not_idle() -> None:
    assert len(ask(Say("x" * 80, chunk=8, delay=0.1), idle_s=0.7).text) == 80


@pytest.mark.parametrize(
    "answer", [Say("ok", headers_after=30), Say("ok", stall=30), Say("some text", hang=9), Say("x" * 9999, delay=0.05)]
)
def test_a_stop_ends_the_call_and_closes_the_connection(answer: Say) -> None:
    with FakeServer([answer]) as server:
        stop_at = time.monotonic() + 0.3
        with pytest.raises(Stopped):
            client(server.url, first_token_s=60, idle_s=60).complete(REQUEST, ignore, lambda: time.monotonic() > stop_at)
        assert time.monotonic() - stop_at < 2
        assert server.hung_up.wait(1)


def test_a_loop_and_an_idle_server_are_hung_up_on() -> None:
    for answer in (loop(), Say("some text", hang=9)):
        with FakeServer([answer]) as server:
            with pytest.raises(NoVerdict):
                client(server.url, idle_s=0.1).complete(REQUEST, ignore, go_on)
            assert server.hung_up.wait(1)


def test_the_key_is_sent_and_appears_in_no_error() -> None:
    with FakeServer(api_key=KEY) as server:
        assert client(server.url, api_key=f" {KEY}\n").complete(REQUEST, ignore, go_on).text == "ok"
    for answer in (error(401, f"bad key {KEY}"), error(500, f"cannot use {KEY}"), Say("", error={"message": KEY})):
        assert KEY not in failure(answer, api_key=KEY).detail
    with pytest.raises(ConfigError) as caught:
        client("http://127.0.0.1/v1", api_key=f"{KEY}\u2026")
    assert KEY not in str(caught.value)


def test_retry_after_is_seconds_or_a_date() -> None:
    assert failure(error(429, "x", Retry_After="12")).retry_after == 12
    assert failure(error(503, "Loading model", Retry_After="2.5")).retry_after == 2.5
    assert failure(error(429, "x")).retry_after is None
    assert retry_after(email.utils.formatdate(1_000_030, usegmt=True), 1_000_000) == 30
    assert retry_after(email.utils.formatdate(999_000, usegmt=True), 1_000_000) == 0
    assert retry_after("-5", 0) == 0
    assert [retry_after(value, 0) for value in ("soon", "nan", "inf", "", "Mon, 99 Foo 2020")] == [None] * 5


def test_a_server_that_recovers_answers_the_next_call() -> None:
    with FakeServer([loading(), Say("some", drop=2), "ok"]) as server:
        provider = client(server.url)
        for _ in range(2):
            with pytest.raises(NoVerdict):
                provider.complete(REQUEST, ignore, go_on)
        assert provider.complete(REQUEST, ignore, go_on).text == "ok"


@pytest.mark.parametrize(
    ("given", "window"), [({"window": 4096}, 4096), ({"window": None, "max_model_len": 16384}, 16384), ({"window": None}, None)]
)
def test_the_window_is_the_slots_then_the_models_and_never_the_training_length(given: dict[str, Any], window: int | None) -> None:
    with FakeServer(**given) as server:
        assert client(server.url).window("fake-model") == window


def test_the_window_of_a_server_that_cannot_answer_is_no_guess() -> None:
    with FakeServer(loading=1) as server, pytest.raises(NoVerdict) as caught:
        client(server.url).window("fake-model")
    assert caught.value.kind == "loading"
    with FakeServer(api_key=KEY) as server, pytest.raises(NoVerdict) as caught:
        client(server.url).window("fake-model")
    assert caught.value.kind == "unauthorized"
    with pytest.raises(NoVerdict) as caught:
        client(f"http://127.0.0.1:{closed_port()}").window("fake-model")
    assert caught.value.kind == "unreachable"


def test_tokens_are_counted_by_the_server_and_a_missing_route_is_asked_for_once() -> None:
    with FakeServer() as server:
        assert client(server.url).count("x" * 400) == 100
    with FakeServer(tokenize=False) as server:
        provider = client(server.url)
        assert [provider.count("x") for _ in range(3)] == [None, None, None]
    assert len(server.requests) == 1
    with pytest.raises(NoVerdict):
        client(f"http://127.0.0.1:{closed_port()}").count("x")


def test_half_a_character_in_a_prompt_is_sent_and_not_a_traceback() -> None:
    with FakeServer() as server:
        client(server.url).complete(Request("m", (Message("user", "bad \udc80"),), 0, 0, 9, ""), ignore, go_on)
    assert "bad" in server.calls[0].prompt
