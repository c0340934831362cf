"""A question to a role with several models, and to one whose answer was interrupted: who answers, and that nobody is charged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_server import FakeServer, Rule, Say, closed_port, error, loading, too_large
from nightmill.calls.store import CallStore
from nightmill.errors import ConfigError, MachineError, NoProvider, NoUsableReply, OutOfBudget
from nightmill.graph.preflight import preflight
from nightmill.graph.session import Session
from small_runs import configure, opened, scratch, small_run
from test_ask import GOOD, RUBBISH, ask, events

LONG = "VERDICT: REJECTED\n" + "".join(f"- C1: remark number {n} speaks of something that is wrong in this place\n" for n in range(40))


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as folder:
        yield small_run(folder / "run")


def several(root: Path, *urls: str, budgets: dict[str, Any] | None = None, provider: dict[str, Any] | None = None, **model: Any) -> None:
    """run.yaml whose default role may be answered by a model `m0` at the first address, by `m1` at the second, and so on."""
    names = {f"p{n}": {"url": url, **(provider or {})} for n, url in enumerate(urls)}
    models = [{"provider": name, "model": f"m{n}", "max_tokens": 500, **model} for n, name in enumerate(names)]
    configure(root, providers=names, models={"default": models}, budgets=budgets or {})


def outcomes(root: Path) -> list[tuple[str, str]]:
    return [(e.provider, e.outcome) for e in events(root, "call_finished")]


# -- several models -------------------------------------------------------------------------------


def test_when_the_preferred_model_cannot_answer_another_does_at_once_and_nobody_is_charged(root: Path) -> None:
    with FakeServer([error(500, "out of memory")], model="m0") as first, FakeServer([GOOD], model="m1") as second:
        several(root, first.url, second.url)
        started = time.monotonic()
        assert ask(opened(root)).approved
        assert time.monotonic() - started < 1.5, "it waited for the broken one"
    assert outcomes(root) == [("p0", "server_error"), ("p1", "ok")]
    assert not events(root, "reply_refused")
    assert events(root, "call_finished")[0].next.startswith("asked again in")


def test_a_server_that_is_not_there_does_not_stop_a_role_that_has_another(root: Path) -> None:
    with FakeServer([GOOD], model="m1") as second:
        several(root, f"http://127.0.0.1:{closed_port()}", second.url)
        assert ask(opened(root)).approved
    assert outcomes(root) == [("p0", "unreachable"), ("p1", "ok")]


def test_when_all_are_given_up_the_line_names_each_of_them(root: Path) -> None:
    with FakeServer([error(401, "no")]) as first, FakeServer([error(402, "pay")]) as second:
        several(root, first.url, second.url)
        with pytest.raises(NoProvider) as caught:
            ask(opened(root))
    assert "p0" in str(caught.value) and "p1" in str(caught.value) and "\n" not in str(caught.value)
    assert outcomes(root) == [("p0", "unauthorized"), ("p1", "no_quota")]


def test_models_that_never_come_to_an_end_are_no_usable_reply_although_there_are_two(root: Path) -> None:
    with FakeServer([Say("VERDICT", finish="length")]) as first, FakeServer([Say("VERDICT", finish="length")]) as second:
        several(root, first.url, second.url)
        with pytest.raises(NoUsableReply):
            ask(opened(root))
    assert [name for name, _ in outcomes(root)] == ["p0", "p0", "p1", "p1"], "more room is tried where it was cut, first"


def test_a_model_whose_window_is_too_small_is_kept_out_of_the_call(root: Path) -> None:
    with FakeServer([GOOD], model="m0", window=2600) as small, FakeServer([GOOD], model="m1", window=32768) as large:
        several(root, small.url, large.url)
        session = opened(root)
        assert ask(session, sections={"contract": "C1: all stays. " * 1000}).approved
        assert ask(session, sections={"contract": "C1: a short one."}).approved
        assert len(small.calls) == 1 and len(large.calls) == 1


def test_a_model_that_would_not_see_everything_comes_after_one_that_does(root: Path) -> None:
    with FakeServer([GOOD], model="m0", window=2600) as small, FakeServer([GOOD], model="m1", window=32768) as large:
        several(root, small.url, large.url)
        assert ask(opened(root), sections={"source": "x = 1\n" * 3000}).approved
        assert not small.calls and len(large.calls) == 1
    assert events(root, "call_started")[0].left_out == ()


def test_a_prompt_that_fits_nowhere_names_every_window(root: Path) -> None:
    with FakeServer([GOOD], window=512) as one, FakeServer([GOOD], window=700) as two:
        several(root, one.url, two.url)
        with pytest.raises(ConfigError, match=r"p0, model m0: .*window is 512.*p1, model m1: .*window is 700"):
            ask(opened(root), sections={"contract": "C1: all stays. " * 1000})
        assert not one.calls and not two.calls


def test_an_answer_of_any_of_the_models_is_found_again_without_a_server(root: Path) -> None:
    with FakeServer([error(500, "no")]) as first, FakeServer([GOOD]) as second:
        several(root, first.url, second.url)
        assert ask(opened(root)).approved
    session = opened(root)
    assert ask(session).approved
    assert events(root, "call_finished")[-1].replayed and session.budget.calls == 2


def test_a_move_to_a_remote_provider_must_be_allowed_in_writing(root: Path) -> None:
    several(root, "http://127.0.0.1:1", "https://api.example.com/v1")
    with pytest.raises(ConfigError, match=r"api\.example\.com.*remote: allow"):
        preflight(opened(root), [])
    several(root, "http://127.0.0.1:1", "https://api.example.com/v1", provider={"remote": "allow"})
    preflight(opened(root), [])


def test_another_model_than_the_one_named_is_told(root: Path) -> None:
    with FakeServer([GOOD], model="some-other-7b") as server:
        several(root, server.url)
        assert ask(opened(root)).approved
    (done,) = events(root, "call_finished")
    assert (done.model, done.named) == ("some-other-7b", "m0")


# -- the window -----------------------------------------------------------------------------------


def test_a_key_that_the_server_gives_as_its_name_is_in_no_file_of_the_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "Qz7pX9mLk3vN8rT2yW5"
    monkeypatch.setenv("MODEL_ACCESS", key)
    with FakeServer([Say(GOOD, model=key)]) as server:
        several(root, server.url, provider={"api_key_env": "MODEL_ACCESS"})
        assert ask(opened(root)).approved
    assert [path.name for path in root.rglob("*") if path.is_file() and key.encode() in path.read_bytes()] == []


def test_a_prompt_that_the_server_cut_in_silence_stops_the_run_and_charges_nobody(root: Path) -> None:
    with FakeServer([GOOD], window=None, max_model_len=32768, truncate=2048, counts=True) as server:
        several(root, server.url)
        with pytest.raises(ConfigError, match="OLLAMA_CONTEXT_LENGTH"):
            ask(opened(root), sections={"source": "value = value + 1\n" * 2000})
        assert len(server.calls) == 1
    assert outcomes(root) == [("p0", "truncated")] and not events(root, "reply_refused")
    assert not list((root / ".nightmill/calls").glob("*.json"))


def test_silent_truncation_is_seen_without_a_tokenizer_too(root: Path) -> None:
    with FakeServer([GOOD], window=None, max_model_len=32768, truncate=2048, counts=True, tokenize=False) as server:
        several(root, server.url)
        with pytest.raises(ConfigError, match=r"truncated|cut without a word"):
            ask(opened(root), sections={"source": "value = value + 1\n" * 2000})


def test_a_prompt_of_few_tokens_a_byte_is_not_mistaken_for_a_cut_one(root: Path) -> None:
    with FakeServer([GOOD], window=None, max_model_len=131072, counts=True, tokenize=False) as server:
        several(root, server.url)
        assert ask(opened(root), sections={"source": "ﬁ€ﬁ€ﬁ€ﬁ€\n" * 2000}).approved  # the fake counts characters: up to 12 bytes a token
    assert outcomes(root)[-1] == ("p0", "ok")


def test_a_server_that_came_back_with_a_smaller_window_is_fitted_again(root: Path) -> None:
    with FakeServer([too_large(), GOOD], window=16384) as server:
        several(root, server.url)
        session = opened(root)
        session.backends.window(session.backends.of("architect")[0])
        server.settings = server.settings.__class__(**{**vars(server.settings), "window": 4096})
        assert ask(session).approved
    assert outcomes(root) == [("p0", "too_large"), ("p0", "ok")]


# -- an answer that was interrupted ---------------------------------------------------------------


def partial_of(root: Path) -> str:
    files = list((root / ".nightmill/calls").glob("*.partial"))
    return files[0].read_text() if files else ""


def test_a_broken_connection_is_continued_and_the_whole_equals_the_answer_in_one_piece(root: Path) -> None:
    with FakeServer([Say(LONG, drop=900), LONG]) as server:
        several(root, server.url)
        found = ask(opened(root))
        second = server.calls[-1].body["messages"]
    assert second[-1]["role"] == "assistant" and LONG.startswith(second[-1]["content"]) and len(second[-1]["content"]) > 850
    assert len(found.findings) == 40 and partial_of(root) == ""
    started = events(root, "call_started")
    assert started[0].resumed == 0 and started[1].resumed > 850 and started[0].key == started[1].key


def test_what_a_killed_process_had_received_is_continued_by_the_next(root: Path) -> None:
    with FakeServer([Say(LONG, drop=900), error(401, "not now"), LONG]) as server:
        several(root, server.url)
        with pytest.raises(NoProvider):
            ask(opened(root))
        kept = partial_of(root)
    assert LONG.startswith(kept) and len(kept) > 850
    with FakeServer([LONG]) as server:
        several(root, server.url)
        assert len(ask(opened(root)).findings) == 40
        assert server.calls[-1].body["messages"][-1]["content"] == kept[: len(server.calls[-1].body["messages"][-1]["content"])]


@pytest.mark.parametrize("kind", ["link", "directory"])
def test_what_lies_at_the_place_of_a_begun_answer_is_neither_sent_nor_written_through(root: Path, tmp_path: Path, kind: str) -> None:
    with FakeServer([Say(LONG, drop=900), error(401, "not now"), LONG]) as server:
        several(root, server.url)
        with pytest.raises(NoProvider):
            ask(opened(root))
    (partial,) = (root / ".nightmill/calls").glob("*.partial")
    partial.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("- C1: " + "my own text\n" * 90)
    before = elsewhere.read_text()
    partial.symlink_to(elsewhere) if kind == "link" else partial.mkdir()
    with FakeServer([LONG]) as server:
        several(root, server.url)
        if kind == "link":
            assert len(ask(opened(root)).findings) == 40
        else:
            with pytest.raises(MachineError, match="should be a file: move away"):
                ask(opened(root))
        assert server.calls[-1].body["messages"][-1]["role"] == "user"
    assert elsewhere.read_text() == before


def test_a_server_that_cannot_continue_starts_over(root: Path) -> None:
    with FakeServer([Say(LONG, drop=900), LONG], continues=False) as server:
        several(root, server.url)
        assert len(ask(opened(root)).findings) == 40
        assert server.calls[-1].body["messages"][-1]["role"] == "user"
    assert [e.resumed for e in events(root, "call_started")] == [0, 0]


@pytest.mark.parametrize("fault", ["restart_continuation", "repeat_continuation", "refuse_continuation"])
def test_a_continuation_that_begins_again_is_asked_for_whole(root: Path, fault: str) -> None:
    with FakeServer([LONG], rules=[Rule("drop", {"after": 900}, last=1), Rule(fault, first=2, last=2)]) as server:
        several(root, server.url)
        assert len(ask(opened(root)).findings) == 40
        assert server.calls[-1].body["messages"][-1]["role"] == "user"
    assert [kind for _, kind in outcomes(root)] == ["dropped", "restarted", "ok"]
    assert not events(root, "reply_refused")


def test_a_server_that_loads_costs_nothing_of_what_was_received(root: Path) -> None:
    with FakeServer([Say(LONG, drop=900), loading(), error(401, "no")], continues=False) as server:
        several(root, server.url)
        with pytest.raises(NoProvider):
            ask(opened(root))
    assert LONG.startswith(partial_of(root)) and len(partial_of(root)) > 850


def test_counts_that_cannot_be_are_not_believed(root: Path) -> None:
    with FakeServer([Say(GOOD, usage={"prompt_tokens": 900_000, "completion_tokens": 5})]) as server:
        several(root, server.url)
        session = opened(root)
        assert ask(session).approved
    assert events(root, "call_finished")[0].prompt_tokens is None and session.budget.tokens < 4000


def test_a_cap_on_money_without_any_price_is_refused(root: Path) -> None:
    several(root, "http://127.0.0.1:1", budgets={"money": 2})
    with pytest.raises(ConfigError, match="no model has a `price:`"):
        preflight(opened(root), [])


def test_a_cap_on_money_ends_before_the_call_that_would_exceed_it(root: Path) -> None:
    with FakeServer([GOOD], counts=True) as server:
        several(root, server.url, budgets={"money": 0.02}, price={"input": 5, "output": 10})
        session = opened(root)
        with pytest.raises(OutOfBudget, match=r"budgets\.money"):
            for number in range(20):
                ask(session, sections={"contract": f"C{number}: differs"})
        assert 0 < session.budget.money <= 0.02 and session.budget.money == pytest.approx(opened(root).budget.money)


def test_a_server_that_is_not_back_yet_costs_nothing_of_what_was_received(root: Path) -> None:
    with FakeServer([Say(LONG, drop=900), error(401, "no")]) as server:
        several(root, server.url)
        with pytest.raises(NoProvider):
            ask(opened(root))
    kept = partial_of(root)
    several(root, f"http://127.0.0.1:{closed_port()}", budgets={"minutes": opened(root).budget.minutes + 0.02}, context=8192)
    with pytest.raises(OutOfBudget):
        ask(opened(root))
    assert partial_of(root) == kept != ""


def test_a_joined_answer_that_breaks_a_rule_is_asked_again_whole_before_anybody_is_charged(root: Path) -> None:
    begun = "This begins as something quite different from what was asked for, and it goes on for a while. " * 4
    with FakeServer([Say(begun, drop=300), begun + " " + RUBBISH, GOOD]) as server:
        several(root, server.url)
        assert ask(opened(root)).approved
        assert len(server.calls) == 3
    assert not events(root, "reply_refused")
    assert any("asked again whole" in e.text for e in events(root, "note"))


def test_an_answer_that_began_with_thoughts_is_not_continued(root: Path) -> None:
    with FakeServer([Say(LONG, think="let me see " * 20, drop=900), LONG]) as server:
        several(root, server.url)
        assert len(ask(opened(root)).findings) == 40
        assert server.calls[-1].body["messages"][-1]["role"] == "user"
    assert partial_of(root) == ""


# -- time -----------------------------------------------------------------------------------------


def hurry(root: Path, server: FakeServer, minutes: float) -> Session:
    several(root, server.url, budgets={"minutes": minutes})
    session = opened(root)
    assert session.budget.expired() == ""
    return session


def test_a_budget_of_time_ends_a_call_in_its_middle_and_keeps_what_came(root: Path) -> None:
    with FakeServer([Say(LONG, chunk=20, delay=0.05)]) as server:
        session = hurry(root, server, 0.02)
        with pytest.raises(OutOfBudget, match=r"budgets\.minutes"):
            ask(session)
        assert server.hung_up.wait(5)
    assert LONG.startswith(partial_of(root)) and len(partial_of(root)) > 100
    with FakeServer([LONG]) as server:
        several(root, server.url)
        assert len(ask(opened(root)).findings) == 40
        assert server.calls[-1].body["messages"][-1]["role"] == "assistant"


def test_a_budget_of_time_ends_a_wait(root: Path) -> None:
    with FakeServer([loading()]) as server, pytest.raises(OutOfBudget):
        ask(hurry(root, server, 0.02))


def test_a_partial_with_half_a_character_at_its_end_is_read_without_it(root: Path) -> None:
    session = opened(root)
    store = CallStore(session.run.calls)
    from nightmill.providers.base import Message, Request

    request = Request("m", (Message("user", "x"),), 0.2, 1, 10, "look#1")
    part = store.open_partial(request)
    part.add("Käse")
    part.close()
    path = next((root / ".nightmill/calls").glob("*.partial"))
    path.write_bytes(path.read_bytes() + "ä".encode()[:1])
    assert store.partial(request) == "Käse"


def test_a_secret_that_a_model_repeats_is_stored_nowhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = "pl4in-" + "v4lue-of-the-environment"
    monkeypatch.setenv("DEPLOY_TOKEN", value)
    said = LONG.replace("remark number 3 ", f"the value {value} ")
    with FakeServer([Say(said, chunk=5, drop=700), said]) as server:
        several(root, server.url)
        assert len(ask(opened(root)).findings) == 40
    assert not [p for p in root.rglob("*") if p.is_file() and value.encode() in p.read_bytes()]
