"""Replies from files: which file answers, and the faults on demand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

import pytest

from nightmill.errors import Stopped, UsageError
from nightmill.providers.base import Kind, Message, NoVerdict, Reply, Request, Terms
from nightmill.providers.scripted import Directive, Scripted, split_directive


def request(label: str) -> Request:
    return Request("scripted", (Message("user", "x" * 400),), 0.0, 0, 1000, label)


def ask(folder: Path, label: str = "plan#1", pieces: list[str] | None = None) -> Reply:
    return Scripted("demo", folder).complete(request(label), (pieces if pieces is not None else []).append, lambda: False)


def failure(folder: Path, label: str = "plan#1") -> NoVerdict:
    with pytest.raises(NoVerdict) as caught:
        ask(folder, label)
    return caught.value


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_each_try_has_its_file_and_a_colon_becomes_a_dash(tmp_path: Path) -> None:
    write(tmp_path, "contract-1.1.md", "first")
    write(tmp_path, "contract-1.2.md", "second")
    write(tmp_path, "implement-core/SecurityReviewer.1.md", "review")
    assert ask(tmp_path, "contract:1#1").text == "first"
    assert ask(tmp_path, "contract:1#2").text == "second"
    assert ask(tmp_path, "implement:core/SecurityReviewer#1").text == "review"
    assert ask(tmp_path, "contract:1").text == "first"


def test_a_file_without_number_answers_every_try_that_has_none_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "plan.md", "always")
    write(tmp_path, "plan.2.md", "second")
    assert [ask(tmp_path, f"plan#{n}").text for n in (1, 2, 3)] == ["always", "second", "always"]


def test_a_missing_file_is_named_and_an_earlier_try_is_not_used(tmp_path: Path) -> None:
    write(tmp_path, "plan.1.md", "first")
    caught = failure(tmp_path, "plan#2")
    assert caught.kind == "no_model" and str(tmp_path / "plan.2.md") in caught.remedy
    assert failure(tmp_path / "nowhere").kind == "no_model"


@pytest.mark.parametrize("label", ["../plan#1", "a/../../plan#1", "/etc/passwd", "", "a//b#1", "..#1"])
def test_a_label_never_leads_out_of_the_folder(tmp_path: Path, label: str) -> None:
    write(tmp_path, "plan.1.md", "outside")
    write(tmp_path, "plan.md", "outside")
    (tmp_path / "in").mkdir()
    assert failure(tmp_path / "in", label).kind == "no_model"


def test_the_reply_streams_in_pieces_and_its_counts_are_marked_as_estimates(tmp_path: Path) -> None:
    write(tmp_path, "plan.md", "word " * 40)
    pieces: list[str] = []
    reply = ask(tmp_path, pieces=pieces)
    assert "".join(pieces) == reply.text == "word " * 40
    assert [len(piece) for piece in pieces] == [40] * 5
    assert (reply.prompt_tokens, reply.completion_tokens, reply.estimated) == (100, 50, True)
    provider = Scripted("demo", tmp_path)
    assert (provider.window("any"), provider.count("x" * 9)) == (131_072, 3)


def test_the_directive_is_no_part_of_the_reply_and_thinking_is_kept_apart(tmp_path: Path) -> None:
    write(tmp_path, "plan.md", "<!-- scripted: chunk=3 -->\n<think>hm</think>\nyes")
    pieces: list[str] = []
    reply = ask(tmp_path, pieces=pieces)
    assert (reply.text, reply.reasoning) == ("yes", "hm")
    assert max(map(len, pieces)) <= 3


@pytest.mark.parametrize(
    ("directive", "kind", "partial"),
    [
        ("cut=4", "dropped", "some"),
        ("cut=0", "dropped", ""),
        ("finish=length", "length", "some text"),
        ("error=503", "loading", ""),
        ("error=500", "server_error", ""),
        ("error=401", "unauthorized", ""),
        ("error=429", "rate_limited", ""),
        *((f"error={kind}", kind, "") for kind in get_args(Kind)),
        ("garbage=html", "html", ""),
        ("garbage=utf8", "bad_utf8", ""),
        ("garbage=json", "garbage", ""),
        ("reasoning=1", "reasoning_only", ""),
    ],
)
def test_faults_come_on_demand(tmp_path: Path, directive: str, kind: str, partial: str) -> None:
    write(tmp_path, "plan.md", f"<!-- scripted: {directive} -->\nsome text")
    caught = failure(tmp_path)
    assert (caught.kind, caught.partial) == (kind, partial)


def test_a_resumed_answer_goes_on_to_its_end_and_one_of_another_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "plan.md", "<!-- scripted: cut=30 -->\n" + "some words of an answer " * 4)
    interrupted = failure(tmp_path).partial
    pieces: list[str] = []
    provider = Scripted("demo", tmp_path)
    reply = provider.complete(request("plan#1"), pieces.append, lambda: False, Terms(resume=interrupted.rstrip()))
    assert reply.text == "some words of an answer " * 4
    assert interrupted.rstrip() + "".join(pieces) == reply.text and reply.resumed == len(interrupted.rstrip())
    with pytest.raises(NoVerdict) as caught:
        provider.complete(request("plan#1"), pieces.append, lambda: False, Terms(resume="other words"))
    assert caught.value.kind == "restarted"
    assert provider.continues("any")


def test_an_empty_file_is_an_empty_answer(tmp_path: Path) -> None:
    write(tmp_path, "plan.md", "")
    assert failure(tmp_path).kind == "empty"


def test_a_stall_and_a_slow_stream_take_their_time_and_end_on_a_stop(tmp_path: Path) -> None:
    write(tmp_path, "plan.1.md", "<!-- scripted: stall=0.2 -->\nok")
    write(tmp_path, "stall.1.md", "<!-- scripted: stall=60 -->\nok")
    write(tmp_path, "slow.1.md", "<!-- scripted: chunk=1 delay=0.02 -->\n" + "x" * 9999)
    assert ask(tmp_path).seconds >= 0.2
    for stage in ("stall", "slow"):
        stop_at = time.monotonic() + 0.2
        with pytest.raises(Stopped):
            Scripted("demo", tmp_path).complete(request(f"{stage}#1"), lambda _: None, lambda at=stop_at: time.monotonic() > at)  # type: ignore[misc]
        assert time.monotonic() - stop_at < 2


def test_all_directives_are_read() -> None:
    text = "<!-- scripted: stall=2 chunk=40 delay=0.01 cut=120 finish=length error=503 garbage=html reasoning=1 -->\r\nrest"
    assert split_directive(text, Path("f")) == (Directive(2.0, 40, 0.01, 120, "length", "503", "html", True), "rest")
    assert split_directive("<!-- scripted: -->", Path("f")) == (Directive(), "")
    assert split_directive("text\n<!-- scripted: cut=1 -->\n", Path("f")) == (Directive(), "text\n<!-- scripted: cut=1 -->\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("stal=2", "did you mean 'stall'"),
        ("zzz=1", "use stall, chunk"),
        ("stall=soon", "stall=soon"),
        ("stall=-1", "between 0 and"),
        ("stall=nan", "between 0 and"),
        ("chunk=0", "from 1"),
        ("cut=x", "cut=x"),
        ("error=200", "400 to 599"),
        ("error=unreachabel", "unreachable"),
        ("garbage=xml", "html"),
        ("reasoning=yes", "0 or 1"),
    ],
)
def test_a_mistaken_directive_names_file_and_remedy(tmp_path: Path, words: str, says: str) -> None:
    write(tmp_path, "plan.md", f"<!-- scripted: {words} -->\nok")
    with pytest.raises(UsageError) as caught:
        ask(tmp_path)
    assert says in str(caught.value) and "plan.md" in str(caught.value) and "\n" not in str(caught.value)


def test_a_reply_file_that_is_no_text_is_the_persons_mistake(tmp_path: Path) -> None:
    (tmp_path / "plan.1.md").write_bytes(b"caf\xe9")
    (tmp_path / "code.1.md").mkdir()
    for label in ("plan#1", "code#1"):
        with pytest.raises(UsageError, match="not a text file"):
            ask(tmp_path, label)
