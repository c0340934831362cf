"""Interrupted answers: where they are cut, how they are joined, and whether a server goes on with them at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_server import FakeServer, Http, Recorded, Rule, Say, closed_port, error
from nightmill.providers.base import Message, NoVerdict, Reply, Request, Terms
from nightmill.providers.continuation import AGAIN, LEAST, LOSS, Joint, StartedOver, cut
from nightmill.providers.openai_compat import OpenAICompat

REQUEST = Request("fake-model", (Message("user", "Write it."),), 0.0, 7, 400, "tests:core#1")
WHOLE = (
    "Here are the files that you asked for.\n\nshop/till.py\n```python\ndef gross(net: int) -> int:\n"
    '    """Tax is a fifth of the net sum and is rounded down."""\n    return net + net // 5\n```\n\nThat is all, nothing else changed.\n'
)
HALF = cut(WHOLE[:170])


def ignore(_: str) -> None: ...


def go_on() -> bool:
    return False


def client(url: str) -> OpenAICompat:
    return OpenAICompat("fake", url, api_key=None, idle_s=3, connect_s=3, first_token_s=5)


def resume(server: FakeServer, begun: str = HALF, on_text: Callable[[str], None] = ignore, provider: OpenAICompat | None = None) -> Reply:
    return (provider or client(server.url)).complete(REQUEST, on_text, go_on, Terms(resume=begun))


def refused(server: FakeServer, begun: str = HALF) -> NoVerdict:
    with pytest.raises(NoVerdict) as caught:
        resume(server, begun)
    assert caught.value.kind == "restarted"
    return caught.value


class Other(FakeServer):
    """With routes of its own: path → the JSON that it answers."""

    def __init__(self, routes: Mapping[str, Any], scenario: Any = ("ok",), **given: Any) -> None:
        super().__init__(scenario, **({"window": None} | given))
        self.own = routes

    def answer(self, request: Recorded) -> Any:
        if request.path not in self.own:
            return super().answer(request)
        self.requests.append(request)
        value = self.own[request.path]
        return (value if isinstance(value, Http) else Http(200, json.dumps(value).encode(), {"Content-Type": "application/json"})), ""


TEXT = st.lists(
    st.sampled_from(["word", "x1", "if", "=", "(", ")", " ", "  ", "\n", "\n\n", "    ", "é", "世界", ".", "```"]), max_size=80
).map("".join)


@given(TEXT | st.text(max_size=300))
def test_a_cut_is_a_beginning_that_ends_in_no_white_space_and_stays_where_it_is(text: str) -> None:
    kept = cut(text)
    assert text.startswith(kept) and kept == kept.rstrip()
    assert not kept or len(kept) >= LEAST
    assert kept.startswith(cut(kept))


@given(TEXT)
def test_a_cut_between_words_is_followed_by_one_space(text: str) -> None:
    kept = cut("a beginning of more than thirty-two letters " + text + " some words")
    assert kept.endswith("some")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("too short to be worth it", ""),
        ("def gross(net: int) -> int:\n    return net + ne", "def gross(net: int) -> int:\n    return net +"),
        ("x" * 40 + "\n" + "y" * (LOSS + 1), "x" * 40),
        ("far away words" + "." * 40 + "\n\n" + "1," * LOSS, "far away words" + "." * 40),
        ("| 1 | 2 |\n" * 9 + "| 1", "| 1 | 2 |\n" * 9 + "|"),
        ("one space, two  spaces and a line that ends \n", "one space, two  spaces and a line that"),
        ("no boundary anywhere".replace(" ", "_") * 9, ""),
    ],
)
def test_the_cut_is_before_a_single_space_or_else_at_the_end_of_a_line(text: str, kept: str) -> None:
    assert cut(text) == kept


def join(begun: str, sent: str, at: list[int]) -> str:
    joint = Joint(begun)
    places = sorted({0, len(sent), *(n % (len(sent) + 1) for n in at)})
    return "".join(joint.feed(sent[a:b]) for a, b in pairwise(places)) + joint.finish()


CUTS = st.lists(st.integers(0, 10_000), max_size=20)
BEGUN = st.text(st.characters(categories=["Lu", "Ll", "Nd"], max_codepoint=0x7F) | st.just(" "), min_size=LEAST, max_size=200)


@given(BEGUN.map(str.rstrip).filter(str.strip), st.text(max_size=80), CUTS, st.booleans())
def test_what_the_server_repeats_is_taken_away_whatever_the_cuts(begun: str, rest: str, cuts: list[int], trimmed: bool) -> None:
    rest = " \u2026" + rest  # nothing that the beginning could begin with
    assert join(begun, (begun.lstrip() if trimmed else begun) + rest, cuts) == rest
    assert join(begun, rest, cuts) == rest


def test_a_rest_that_begins_a_little_like_the_whole_is_kept() -> None:
    begun = "The first clause says that nothing is rounded, and the"
    assert join(begun, "The first of all", [3, 7]) == "The first of all"
    assert join(begun, "The first", [3]) == "The first"
    assert join(begun, "", []) == ""
    assert join(begun, " \n ", [1]) == " \n "
    said_twice = " nothing is rounded, and the sum neither"
    assert join(begun, said_twice, [9]) == said_twice


@given(CUTS, st.booleans())
def test_a_continuation_that_starts_over_or_says_the_end_again_is_noticed(cuts: list[int], echo: bool) -> None:
    again = WHOLE[: AGAIN + 10] + "but differently from here on, with other words"
    end = HALF[-AGAIN - 5 :]
    lines = "\n".join(HALF.splitlines()[-2:])
    assert len(lines) < len(HALF) and HALF.endswith(lines)
    for sent in (again, end + " and so on for a while", "\n" + lines + " and so on for a while"):
        with pytest.raises(StartedOver):
            join(HALF, (HALF if echo else "") + sent, cuts)


def test_rows_that_the_text_itself_repeats_are_no_repetition() -> None:
    begun = "| input | expected |\n" + "| true | false | and a cell with some more words |\n" * 3
    rest = "\n" + "| true | false | and a cell with some more words |\n" * 3
    assert join(begun.rstrip(), rest, [10]) == rest


@pytest.mark.parametrize("echo", [True, False])
def test_a_resumed_answer_is_the_same_as_one_in_one_piece(echo: bool) -> None:
    pieces: list[str] = []
    with FakeServer([Say(WHOLE, chunk=5)], echo=echo) as server:
        reply = resume(server, on_text=pieces.append)
    assert (reply.text, reply.resumed) == (WHOLE, len(HALF))
    assert HALF + "".join(pieces) == WHOLE
    (call,) = server.calls
    assert call.messages[-1] == {"role": "assistant", "content": HALF}
    assert "continue_final_message" not in call.body  # llama-server showed that it needs none


def test_white_space_at_the_end_is_not_sent_and_the_count_says_so() -> None:
    with FakeServer([Say(WHOLE)]) as server:
        assert resume(server, HALF + "\n \n").resumed == len(HALF)
        assert server.calls[0].prefix == HALF


@pytest.mark.parametrize("at", [40, 75, 120])
def test_fences_thinking_and_loops_are_judged_over_the_seam(at: int) -> None:
    page = "```html\n<p>a page that speaks of thinking\n<think>\nis a tag there\n</think>\n```\n" + "The same sentence again.\n" * 2
    with FakeServer([Say(page, chunk=3)]) as server:
        assert resume(server, page[:at].rstrip()).text == page
    line = "The value is returned as it is.\n"
    looping = line * 9 + "The value is"
    with FakeServer([Say(line * 50, chunk=8)]) as server, pytest.raises(NoVerdict) as caught:
        resume(server, looping)
    assert caught.value.kind == "loop"
    assert len(caught.value.partial) < len(line) * 14


@pytest.mark.parametrize("tokenize", [True, False])
def test_a_resumed_answer_gets_as_many_tokens_as_were_left(tokenize: bool) -> None:
    short = replace(REQUEST, max_tokens=50)
    cut_off: list[str] = []
    with FakeServer([Say(WHOLE * 3)], counts=True, tokenize=tokenize) as server:
        for terms in (Terms(), Terms(resume=HALF)):
            with pytest.raises(NoVerdict, match="max_tokens = 50") as caught:
                client(server.url).complete(short, ignore, go_on, terms)
            cut_off.append(caught.value.partial)
    assert abs(len(cut_off[0]) - len(cut_off[1])) <= 4
    with FakeServer([Say(WHOLE)]) as server:
        client(server.url).complete(replace(REQUEST, max_tokens=9), ignore, go_on, Terms(resume=HALF))
        assert server.calls[0].body["max_tokens"] == 1


def test_an_answer_interrupted_again_gives_all_that_is_there() -> None:
    with FakeServer([Say(WHOLE, chunk=4)], rules=[Rule("drop", {"after": 40})]) as server:
        provider = client(server.url)
        with pytest.raises(NoVerdict) as caught:
            resume(server, provider=provider)
        assert caught.value.kind == "dropped" and caught.value.partial == WHOLE[: len(HALF) + 40]
        assert resume(server, cut(caught.value.partial), provider=provider).text == WHOLE


@pytest.mark.parametrize(
    ("fault", "says"),
    [("restart_continuation", "began the answer again"), ("repeat_continuation", "repeated the end"), ("reasoning_only", "thinking")],
)
def test_a_continuation_that_is_none_is_told_and_nothing_of_it_is_kept(fault: str, says: str) -> None:
    with FakeServer([Say(WHOLE)], rules=[Rule(fault)]) as server:
        caught = refused(server)
    assert says in caught.detail and caught.partial == ""


def test_a_refused_beginning_is_remembered() -> None:
    with FakeServer([Say(WHOLE)], rules=[Rule("refuse_continuation")]) as server:
        provider = client(server.url)
        assert provider.continues("fake-model")
        with pytest.raises(NoVerdict, match="enable_thinking") as caught:
            resume(server, provider=provider)
        assert caught.value.kind == "restarted"
        assert not provider.continues("fake-model")
        with pytest.raises(NoVerdict, match="does not continue"):
            resume(server, provider=provider)
        assert provider.complete(REQUEST, ignore, go_on).text == WHOLE
    assert len(server.calls) == 2


def test_a_template_that_ends_the_turn_does_not_continue_and_nothing_is_decoded_to_know_that() -> None:
    with FakeServer([Say(WHOLE)], continues=False) as server:
        provider = client(server.url)
        assert [provider.continues("fake-model") for _ in range(3)] == [False] * 3
        assert [r.path for r in server.requests] == ["/apply-template"] * 2
        assert "does not continue" in refused(server).detail
    with FakeServer([Say(WHOLE)]) as server:
        provider = client(server.url)
        assert [provider.continues("fake-model") for _ in range(3)] == [True] * 3
        assert [r.path for r in server.requests] == ["/apply-template"]


def test_a_template_that_needs_the_fields_gets_them() -> None:
    def template(request: Recorded) -> Http:
        end = "" if request.wants("continue_final_message") else "<|im_end|>\n<|im_start|>assistant\n"
        return Http(200, json.dumps({"prompt": request.messages[-1]["content"] + end}).encode())

    class Strict(FakeServer):
        def answer(self, request: Recorded) -> Any:
            return (template(request), "") if request.path == "/apply-template" else super().answer(request)

    with Strict([Say(WHOLE)]) as server:
        assert resume(server).text == WHOLE
    assert server.calls[-1].body["continue_final_message"] is True
    assert server.calls[-1].body["add_generation_prompt"] is False


def words_after(request: Recorded, extra: int = 2) -> str:
    """The next of the words that the probe asks to repeat."""
    words = request.messages[0]["content"].rpartition(": ")[2].split()
    begun = request.prefix.split()
    return " ".join(words[len(begun) : len(begun) + extra])


@pytest.mark.parametrize(
    ("says", "goes_on"),
    [
        (lambda r: " " + words_after(r), True),
        (lambda r: words_after(r), True),
        (lambda r: r.prefix + " " + words_after(r), True),
        (lambda r: " " + words_after(r, 1)[:4], True),
        (lambda r: words_after(r)[:1], False),
        (lambda r: " ".join(r.prefix.split()[:3]), False),
        (lambda r: "Here are the words:", False),
        (lambda r: "", False),
        (lambda r: r.prefix, False),
    ],
)
def test_a_server_without_templates_is_tried_with_a_few_tokens(says: Callable[[Recorded], str], goes_on: bool) -> None:
    with FakeServer(lambda request: Say(says(request), finish="length"), window=None, continues=False) as server:
        provider = client(server.url)
        assert [provider.continues("fake-model") for _ in range(2)] == [goes_on] * 2
    (call,) = server.calls
    assert call.body["continue_final_message"] is True and call.body["temperature"] == 0 and call.body["max_tokens"] < 10
    assert call.label == "probe:continue"


def test_a_strict_server_that_refuses_the_fields_is_asked_without_them() -> None:
    def strict(request: Recorded) -> Any:
        if "continue_final_message" in request.body:
            return error(422, "extra fields not permitted")
        return Say(" " + words_after(request)) if request.label == "probe:continue" else Say(WHOLE[len(HALF) :])

    with FakeServer(strict, window=None, continues=False) as server:
        assert resume(server).text == WHOLE
    with FakeServer(lambda _: error(400, "the last message must be the user's"), window=None) as server:
        assert not client(server.url).continues("fake-model")
    assert len(server.calls) == 2


def test_what_cannot_be_learnt_now_is_not_remembered() -> None:
    assert not client(f"http://127.0.0.1:{closed_port()}").continues("any")
    with FakeServer([Say(WHOLE)], loading=1) as server:
        provider = client(server.url)
        assert [provider.continues("fake-model") for _ in range(2)] == [False, True]
    with FakeServer([Say(WHOLE)], loading=1) as server, pytest.raises(NoVerdict) as caught:
        resume(server)
    assert caught.value.kind == "loading"
