"""The fake server as a model server: its cache, continuation, slots, speeds, window and routes, seen by the real client."""

from __future__ import annotations

import json
import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_help import QUESTION, TEXT, ask, client, failure, get, post, request, rules
from fake_server import FakeServer, Recorded, Say
from nightmill.fake.settings import Settings
from nightmill.fake.slots import Slots, render, tokens
from nightmill.fake.speech import speak
from nightmill.providers.base import Message


def test_what_a_slot_has_evaluated_is_not_evaluated_again() -> None:
    first, second = (request(messages=(Message("system", QUESTION), Message("user", text))) for text in ("one", "two"))
    with FakeServer([TEXT], counts=True) as server:
        cold, warm, same = ask(server, asked=first), ask(server, asked=second), ask(server, asked=second)
    assert (cold.cached_tokens, cold.evaluated_tokens) == (0, cold.prompt_tokens)
    assert warm.cached_tokens == tokens(f"<|im_start|>system\n{QUESTION}<|im_end|>\n<|im_start|>user\n") - 1
    assert warm.prompt_tokens == (warm.cached_tokens or 0) + (warm.evaluated_tokens or 0)
    assert same.evaluated_tokens == 1
    assert cold.completion_tokens == tokens(TEXT)


def test_each_slot_remembers_its_own_prompt_and_a_strange_one_takes_the_slot_that_rested_longest() -> None:
    topics = {name: request(messages=(Message("user", name * 200),)) for name in "abc"}
    with FakeServer(counts=True, slots=2) as server:
        seen = [(ask(server, asked=topics[name]).cached_tokens or 0) > 40 for name in "abababcab"]
    assert seen == [False, False, True, True, True, True, False, False, False]


@given(st.text("ab", max_size=40), st.text("ab", max_size=40))
def test_the_cached_part_is_the_common_beginning_in_whole_tokens_and_the_last_token_is_always_evaluated(before: str, now: str) -> None:
    slots, settings, usages = Slots(1), Settings(counts=True), []
    for content in (before, now):
        body = {"messages": [{"role": "user", "content": content}]}
        steps = list(speak(Say("ok"), Recorded("POST", "/v1/chat/completions", {}, body), slots, settings))
        usages.append(next(step["usage"] for step in steps if isinstance(step, dict) and "usage" in step))
    held, prompt = (render([{"role": "user", "content": content}], continues=True) for content in (before, now))
    held += "ok"
    common = max(n for n in range(len(prompt) + 1) if held.startswith(prompt[:n]))
    cached = usages[1]["prompt_tokens_details"]["cached_tokens"]
    assert cached == min(common // 4, tokens(prompt) - 1)
    assert usages[1]["prompt_tokens"] == tokens(prompt)


def test_progress_of_a_prefill_is_told_in_batches_and_an_abort_keeps_them() -> None:
    long = request(messages=(Message("user", "w" * 4000),))
    with FakeServer(counts=True, batch=100, prefill_tps=1000) as server:
        provider = client(server)
        assert provider.window("fake-model") == 8192  # it has shown to be llama-server, which is asked for progress
        stop_at = time.monotonic() + 0.35
        with pytest.raises(Exception, match="stopped"):
            provider.complete(long, lambda _: None, lambda: time.monotonic() > stop_at)
        assert server.hung_up.wait(2)
        kept = tokens(server.slots.all[0].held)
        assert 100 <= kept < 1000 and kept % 100 == 0
        again = provider.complete(long, lambda _: None, lambda: False)  # longer than first_token_s altogether, no batch is
        assert again.cached_tokens == kept
        body = {**server.calls[-1].body, "messages": [{"role": "user", "content": "v" * 1000}]}
        sent = httpx.post(f"{server.url}/chat/completions", json=body, trust_env=False, verify=False).text
    told = [json.loads(line[6:])["prompt_progress"] for line in sent.splitlines() if "prompt_progress" in line]
    assert [(p["total"], p["cache"], p["processed"]) for p in told] == [(263, 4, 104), (263, 4, 204), (263, 4, 263)]


def test_writing_takes_its_time_and_the_timings_say_so() -> None:
    with FakeServer(["x" * 160], counts=True, decode_tps=200) as server:
        body = {"messages": [{"role": "user", "content": "hi"}]}
        answer = post(server, "/v1/chat/completions", body)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "x" * 160}
    assert answer["timings"]["predicted_n"] == 40 and 200 <= answer["timings"]["predicted_ms"] < 600
    assert 60 < answer["timings"]["predicted_per_second"] <= 200


def test_the_window_and_max_tokens_are_kept_to() -> None:
    with FakeServer([TEXT], counts=True, window=300) as server:
        caught = failure(server, asked=request(messages=(Message("user", "x" * 1300),)))
        assert caught.kind == "too_large" and "300" in caught.detail
        assert failure(server, asked=request(max_tokens=10)).partial == TEXT[:40]
        prompt = tokens(render([{"role": "user", "content": QUESTION}], continues=True))
        assert failure(server).partial == TEXT[: (300 - prompt) * 4]


@pytest.mark.parametrize("echo", [True, False])
@pytest.mark.parametrize("window", [8192, None])
def test_a_begun_answer_is_gone_on_with_whether_or_not_it_is_repeated_first(echo: bool, window: int | None) -> None:
    with FakeServer(reply=TEXT, counts=True, echo=echo, window=window) as server:
        assert client(server).continues("fake-model")
        reply = ask(server, TEXT[:300])
    assert reply.text == TEXT
    assert reply.completion_tokens == tokens(TEXT[300:])


def test_a_server_that_takes_a_begun_answer_for_a_finished_turn_is_found_out() -> None:
    for window in (8192, None):
        with FakeServer(reply=TEXT, counts=True, continues=False, window=window) as server:
            assert not client(server).continues("fake-model")


def test_a_reply_that_does_not_begin_as_the_client_says_comes_whole() -> None:
    with FakeServer(["Something else altogether."]) as server:
        assert ask(server, TEXT[:300]).text == TEXT[:300] + "Something else altogether."


def test_a_dropped_answer_is_continued_with_what_the_slot_still_holds() -> None:
    with FakeServer([TEXT], counts=True, rules=rules({"fault": "drop", "after": 400})) as server:
        begun = failure(server).partial
        rest = ask(server, begun)
    assert begun + TEXT[400:] == rest.text == TEXT
    assert rest.evaluated_tokens is not None and rest.evaluated_tokens <= 2


def test_two_messages_of_the_assistant_at_the_end_are_refused() -> None:
    messages = [{"role": "user", "content": "hi"}, *[{"role": "assistant", "content": "a"}] * 2]
    with FakeServer() as server:
        assert post(server, "/v1/chat/completions", {"messages": messages})["error"]["code"] == 400


def test_a_request_that_finds_no_free_slot_waits_for_one() -> None:
    with FakeServer([Say(TEXT, hang=40), "ok"]) as server:
        with httpx.stream(
            "POST", f"{server.url}/chat/completions", json={"messages": [{"role": "user", "content": "a"}], "stream": True}, trust_env=False
        ) as busy:
            pieces = busy.iter_raw()
            assert any(b"Clause" in piece for piece in pieces)
            assert [slot["is_processing"] for slot in get(server, "/slots").json()] == [True]
            assert failure(server).kind == "idle"
        assert ask(server).text == "ok"
    with FakeServer([Say(TEXT, hang=40), "ok"], slots=2) as server:
        assert failure(server).kind == "idle"
        assert ask(server).text == "ok"
        assert get(server, "/props").json()["total_slots"] == 2


def test_tokens_are_counted_in_the_forms_of_llama_server_and_of_vllm() -> None:
    with FakeServer(window=4096) as server:
        assert len(post(server, "/tokenize", {"content": "x" * 9})["tokens"]) == 3
        assert post(server, "/tokenize", {"model": "m", "prompt": "x" * 9}) == {"count": 3, "max_model_len": 4096, "tokens": [0, 1, 2]}
        chat = {"messages": [{"role": "user", "content": "hi"}]}
        assert post(server, "/tokenize", chat)["count"] == tokens(post(server, "/apply-template", chat)["prompt"])
        assert post(server, "/tokenize", {})["error"]["code"] == 400


def test_a_template_leaves_the_assistants_last_message_open_only_where_it_continues() -> None:
    chat = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "one, two"}]}
    for continues, end in ((True, "assistant\none, two"), (False, "one, two<|im_end|>\n<|im_start|>assistant\n")):
        with FakeServer(continues=continues) as server:
            assert post(server, "/apply-template", chat)["prompt"].endswith(end)


def test_a_body_that_is_no_request_is_refused_and_no_traceback() -> None:
    with FakeServer() as server:
        for body in (b"{", b"[1]", b'{"messages": 7}', b""):
            assert httpx.post(f"{server.url}/chat/completions", content=body, trust_env=False, verify=False).status_code == 400
