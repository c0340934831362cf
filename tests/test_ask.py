"""One question to one agent, through a real session and the scripted provider: replay, asking again, budgets, faults, threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_server import FakeServer
from nightmill.calls.outcome import GROWTH
from nightmill.calls.replies import Review
from nightmill.errors import BadReply, ConfigError, NightmillError, NoProvider, NoUsableReply, OutOfBudget, Stopped
from nightmill.graph.context import Ctx
from nightmill.graph.session import Session
from nightmill.providers.base import USUAL, Reply, Request, Terms
from nightmill.providers.scripted import Scripted
from nightmill.run.events import read_events
from runs import DOIT, run
from small_runs import configure, make, opened, scratch, small_run

GOOD, RUBBISH = "VERDICT: APPROVED\n", "Certainly! Everything looks wonderful to me.\n"


def body(ctx: Ctx) -> None:
    """Never run: these tests ask by themselves."""


STAGE = make(
    *("look", body, ("mission.md",), ("look.md",)),
    skill="contract_reviewer",
    template="contract_review.md.j2",
    role="architect",
    reply=Review,
)


class Recording(Scripted):
    """The scripted provider, which also remembers what it was asked."""

    def __init__(self, folder: Path, before: Callable[[int], None]) -> None:
        super().__init__("scripted", folder)
        self.requests: list[Request] = []
        self.before = before

    def complete(self, request: Request, on_text: Callable[[str], None], stopping: Callable[[], bool], terms: Terms = USUAL) -> Reply:
        self.requests.append(request)
        self.before(len(self.requests))
        return super().complete(request, on_text, stopping, terms)


def recording(session: Session, before: Callable[[int], None] = lambda n: None) -> list[Request]:
    """What the session's provider is asked from now on; `before(n)` is called ahead of its n-th answer."""
    provider = Recording(session.run.root / "replies", before)
    session.backends._open["scripted"] = provider
    return provider.requests


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as folder:
        yield small_run(folder / "run")


def reply(root: Path, text: str, name: str = "look") -> None:
    path = root / "replies" / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def ask(session: Session, **more: Any) -> Review:
    found: Review = Ctx(session, STAGE).ask(**more)
    return found


def events(root: Path, kind: str) -> list[Any]:
    return [e for e in read_events(root / ".nightmill" / "events.jsonl") if e.kind == kind]


def test_an_answer_is_parsed_stored_and_told_in_two_events(root: Path) -> None:
    reply(root, GOOD)
    assert ask(opened(root)).approved
    (started,), (finished,) = events(root, "call_started"), events(root, "call_finished")
    assert started.key == finished.key and (finished.outcome, finished.replayed, finished.label) == ("ok", False, "look#1")
    stored = json.loads((root / ".nightmill/calls" / f"{started.key}.json").read_text())
    assert stored["reply"]["text"] == GOOD and stored["request"]["label"] == "look#1"
    assert [p.suffix for p in (root / ".nightmill/calls").iterdir()] == [".json"]


def test_the_same_question_is_answered_from_the_store_whoever_is_there_to_answer(root: Path) -> None:
    reply(root, GOOD)
    ask(opened(root))
    (root / "replies/look.md").unlink()
    session = opened(root)
    assert ask(session).approved
    assert [e.replayed for e in events(root, "call_finished")] == [False, True]
    assert session.budget.calls == opened(root).budget.calls == 1


def test_a_finished_call_is_replayed_although_its_server_is_gone(root: Path) -> None:
    with FakeServer([GOOD], window=8192) as server:
        configure(root, **over_http(server.url))
        assert ask(opened(root)).approved
    session = opened(root)
    assert ask(session).approved
    assert [e.replayed for e in events(root, "call_finished")] == [False, True]


def over_http(url: str) -> dict[str, Any]:
    return {"providers": {"local": {"url": url}}, "models": {"default": {"provider": "local", "model": "m", "max_tokens": 1000}}}


def test_a_damaged_stored_call_is_asked_again(root: Path) -> None:
    reply(root, GOOD)
    ask(opened(root))
    (stored,) = (root / ".nightmill/calls").iterdir()
    stored.write_bytes(stored.read_bytes()[:40])
    session = opened(root)
    assert ask(session).approved
    assert session.budget.calls == 2 and json.loads(stored.read_text())["reply"]["text"] == GOOD


def test_redo_asks_the_same_question_afresh(root: Path) -> None:
    reply(root, GOOD)
    ask(opened(root))
    (root / ".nightmill/takes").mkdir()
    (root / ".nightmill/takes/look").write_text("1")
    session = opened(root)
    asked = recording(session)
    ask(session)
    assert [request.take for request in asked] == [1]


def test_a_broken_rule_is_asked_again_with_the_rule_and_something_changed_but_not_the_bad_text(root: Path) -> None:
    reply(root, RUBBISH, "look.1")
    reply(root, GOOD, "look.2")
    session = opened(root)
    asked = recording(session)
    assert ask(session).approved
    first, second = asked
    assert [request.label for request in asked] == ["look#1", "look#2"]
    assert second.messages[-1].content.startswith(first.messages[-1].content)
    added = second.messages[-1].content[len(first.messages[-1].content) :]
    assert "Your reply has no verdict" in added and "wonderful" not in added
    assert second.seed != first.seed and second.temperature > first.temperature
    assert [(e.label, e.rule[:25]) for e in events(root, "reply_refused")] == [("look#1", "Your reply has no verdict")]


def test_it_is_asked_again_at_most_twice_and_a_restart_does_not_ask_at_all(root: Path) -> None:
    reply(root, RUBBISH)
    for calls in (3, 0):
        session = opened(root)
        asked = recording(session)
        with pytest.raises(BadReply, match="no verdict"):
            ask(session)
        assert len(asked) == calls
        assert len({(r.seed, r.temperature) for r in asked}) == calls
    assert opened(root).budget.calls == 3


def test_the_temperature_of_a_retry_stays_sensible(root: Path) -> None:
    for configured, used in ((0.2, [0.2, 0.5, 0.8]), (0.8, [0.8, 1.0, 1.0]), (1.5, [1.5, 1.5, 1.5])):
        configure(root, models={"default": {"provider": "scripted", "model": f"m{configured}", "temperature": configured}})
        reply(root, RUBBISH)
        session = opened(root)
        asked = recording(session)
        with pytest.raises(BadReply):
            ask(session)
        assert [request.temperature for request in asked] == used


def test_questions_are_numbered_per_agent_in_one_execution_of_a_stage(root: Path) -> None:
    reply(root, RUBBISH, "look.2")
    reply(root, GOOD)
    reply(root, GOOD, "look/security_reviewer")
    session = opened(root)
    asked = recording(session)
    ctx = Ctx(session, STAGE)
    for number, skill in enumerate(["", "", "security_reviewer", "", "security_reviewer"]):
        ctx.ask(skill=skill, sections={"contract": f"C{number}: differs"})
    assert [r.label for r in asked] == ["look#1", "look#2", "look#3", "look/security_reviewer#1", "look#4", "look/security_reviewer#2"]
    Ctx(session, STAGE).ask(sections={"contract": "C9: another execution"})
    assert asked[-1].label == "look#1"


def test_a_reviewer_is_asked_of_the_reviewers_model_and_the_stage_of_its_own(root: Path) -> None:
    model = {"provider": "scripted", "model": "m"}
    configure(root, models={"default": model, "reviewer": model | {"model": "r"}, "architect": model | {"model": "a", "seed": 7}})
    reply(root, GOOD)
    reply(root, GOOD, "look/ip_counsel")
    session = opened(root)
    asked = recording(session)
    ask(session, vary=2)
    ask(session, skill="ip_counsel")
    assert [(r.model, r.seed, r.temperature) for r in asked] == [("a", 9, 0.8), ("r", 1, 0.2)]


def test_a_larger_prompt_than_the_window_is_cut_by_section_and_the_event_says_so(root: Path) -> None:
    configure(root, models={"default": {"provider": "scripted", "model": "m", "max_tokens": 300, "context": 2500}})
    reply(root, GOOD)
    session = opened(root)
    asked = recording(session)
    ask(session, sections={"source": "x = 1\n" * 3000})
    (request,), (started,) = asked, events(root, "call_started")
    assert (started.left_out, started.window) == (("source",), 2500)
    assert "The source did not fit here" in request.messages[-1].content
    assert started.prompt_tokens + request.max_tokens <= 2500


def test_what_cannot_fit_is_never_sent(root: Path) -> None:
    configure(root, models={"default": {"provider": "scripted", "model": "m", "max_tokens": 300, "context": 400}})
    session = opened(root)
    asked = recording(session)
    with pytest.raises(ConfigError, match="the window is 400"):
        ask(session)
    assert asked == [] and events(root, "call_started") == []


# -- budgets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caps", "said"),
    [({"calls": 1}, r"1 of 1 calls; raise budgets\.calls"), ({"tokens": 4000}, r"raise budgets\.tokens"), ({"minutes": 0}, r"minutes")],
)
def test_a_cap_stops_before_the_call_that_would_exceed_it(root: Path, caps: dict[str, int], said: str) -> None:
    configure(root, budgets=caps)
    reply(root, GOOD)
    session = opened(root)
    asked = recording(session)
    with pytest.raises(OutOfBudget, match=said) as caught:
        for number in range(10):
            ask(session, sections={"contract": f"C{number}: differs"})
    assert caught.value.exit_code == 76
    assert len(asked) == {"calls": 1, "tokens": len(asked), "minutes": 0}[next(iter(caps))] < 10
    assert session.budget.tokens <= 4000
    with pytest.raises(OutOfBudget):
        ask(opened(root), sections={"contract": "C99: after a restart"})


def test_a_used_up_budget_does_not_stop_a_replay(root: Path) -> None:
    configure(root, budgets={"calls": 1})
    reply(root, GOOD)
    assert ask(opened(root)).approved and ask(opened(root)).approved


def test_a_raised_cap_goes_on_where_it_stopped(root: Path) -> None:
    configure(root, budgets={"calls": 1})
    reply(root, RUBBISH, "look.1")
    reply(root, GOOD, "look.2")
    with pytest.raises(OutOfBudget):
        ask(opened(root))
    configure(root, budgets={"calls": 2})
    session = opened(root)
    asked = recording(session)
    assert ask(session).approved
    assert [request.label for request in asked] == ["look#2"]


def test_failed_calls_count_too_because_they_cost_time_and_tokens(root: Path) -> None:
    reply(root, "<!-- scripted: error=unauthorized -->\n")
    session = opened(root)
    with pytest.raises(NoProvider):
        ask(session)
    assert session.budget.calls == opened(root).budget.calls == 1


def test_a_crash_between_the_stored_call_and_its_event_is_counted_once(root: Path) -> None:
    reply(root, GOOD)
    ask(opened(root))
    log = root / ".nightmill/events.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if '"call_finished"' not in line))
    assert opened(root).budget.calls == 1, "a server was asked"
    for _ in range(3):
        session = opened(root)
        assert ask(session).approved
        assert session.budget.calls == opened(root).budget.calls == 1
    assert [e.replayed for e in events(root, "call_finished")] == [False, True, True]


def test_out_of_budget_ends_a_real_run_with_76_and_its_word_in_the_summary(demo_run: Path) -> None:
    path = demo_run / "run.yaml"
    path.write_text(path.read_text().replace("calls: null", "calls: 2"))
    done = run(demo_run, command=DOIT)
    assert done.code == 76
    assert "raise budgets.calls in run.yaml" in done.out + done.err
    summary = json.loads((demo_run / "summary.json").read_text())
    assert (summary["exit"], summary["word"]) == (76, "out of budget")
    assert len(done.asked) == 2 and len(run(demo_run).asked) == 0


# -- faults ------------------------------------------------------------------------------------


def failing(root: Path, directive: str, text: str = GOOD) -> tuple[NightmillError, list[Request]]:
    reply(root, f"<!-- scripted: {directive} -->\n{text}")
    session = opened(root)
    asked = recording(session)
    with pytest.raises(NightmillError) as caught:
        ask(session)
    assert not list((root / ".nightmill/calls").glob("*.json")), "a reply that is none was stored"
    return caught.value, asked


def test_a_cut_off_reply_is_asked_for_once_more_with_more_room(root: Path) -> None:
    error, asked = failing(root, "finish=length")
    assert isinstance(error, NoUsableReply) and "raise `max_tokens`" in str(error) and error.exit_code == 77
    assert [r.max_tokens for r in asked] == [1000, 1000 * GROWTH]
    assert [e.outcome for e in events(root, "call_finished")] == ["length", "length"]


@pytest.mark.parametrize(
    ("kind", "directive", "text"),
    [
        ("reasoning_only", "reasoning=1", GOOD),
        ("empty", "chunk=1", " \n"),
        ("loop", "chunk=400", "The program is right in this place.\n" * 200),
    ],
)
def test_an_empty_or_endless_reply_is_asked_for_with_another_seed(root: Path, kind: str, directive: str, text: str) -> None:
    error, asked = failing(root, directive, text)
    assert isinstance(error, NoUsableReply)
    assert [r.seed for r in asked] == [1, 2, 3] and len({r.temperature for r in asked}) == 3
    assert {r.label for r in asked} == {"look#1"} and {r.messages for r in asked} == {asked[0].messages}
    assert [e.outcome for e in events(root, "call_finished")] == [kind] * 3


@pytest.mark.parametrize(("kind", "error"), [("unauthorized", NoProvider), ("no_model", NoProvider), ("too_large", ConfigError)])
def test_what_no_retry_can_mend_is_told_at_once(root: Path, kind: str, error: type[NightmillError]) -> None:
    told, asked = failing(root, f"error={kind}")
    assert isinstance(told, error) and len(asked) == 1 and "scripted" in str(told)


def test_a_dropped_stream_is_asked_for_again_and_then_counts_as_any_answer(root: Path) -> None:
    reply(root, "<!-- scripted: cut=8 -->\n" + GOOD)
    session = opened(root)
    asked = recording(session, before=lambda n: reply(root, GOOD) if n == 2 else None)
    assert ask(session).approved
    assert len(asked) == 2 and asked[0].key == asked[1].key
    assert [e.outcome for e in events(root, "call_finished")] == ["dropped", "ok"]


@pytest.mark.parametrize(
    "directive", ["stall=60", "cut=8", "chunk=1 delay=5"], ids=["before a token", "between two tries", "in the stream"]
)
def test_a_stop_is_obeyed_at_once_and_loses_nothing_that_was_finished(root: Path, directive: str) -> None:
    reply(root, f"<!-- scripted: {directive} -->\n{GOOD}")
    session = opened(root)
    timer = threading.Timer(0.2, session.stop)
    timer.start()
    with pytest.raises(Stopped):
        ask(session)
    timer.join()
    assert not list((root / ".nightmill/calls").glob("*.json"))
    reply(root, GOOD)
    assert ask(opened(root)).approved


# -- threads -----------------------------------------------------------------------------------


def together(*tasks: Callable[[], Any]) -> list[Any]:
    """What each returned or raised."""
    results: list[Any] = [None] * len(tasks)

    def work(number: int) -> None:
        try:
            results[number] = tasks[number]()
        except NightmillError as error:
            results[number] = error

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def test_calls_in_flight_count_against_the_cap(root: Path) -> None:
    configure(root, budgets={"calls": 2})
    reply(root, f"<!-- scripted: stall=0.3 -->\n{GOOD}")
    session = opened(root)
    asked = recording(session)
    results = together(*[lambda n=n: ask(session, sections={"contract": f"C{n}: differs"}) for n in range(4)])
    assert sorted(type(r).__name__ for r in results) == ["OutOfBudget", "OutOfBudget", "Review", "Review"]
    assert len(asked) == session.budget.calls == 2


def test_threads_that_ask_at_the_same_time_get_their_own_answers_and_are_all_counted(root: Path) -> None:
    for n in range(6):
        reply(root, f"<!-- scripted: chunk=3 delay=0.001 -->\nVERDICT: REJECTED\n- C{n}: this one\n", f"look/s{n}")
    session = opened(root)
    stages = [STAGE.bind(name=f"look/s{n}") for n in range(6)]
    results = together(*[lambda s=s: Ctx(session, s).ask(sections={"contract": s.name}) for s in stages])
    assert [r.findings[0].where for r in results] == [f"C{n}" for n in range(6)]
    assert session.budget.calls == opened(root).budget.calls == 6
    assert session.budget._reserved == session.budget._in_flight == 0


def test_two_threads_with_the_same_question_both_get_the_answer(root: Path) -> None:
    reply(root, f"<!-- scripted: chunk=2 delay=0.005 -->\n{GOOD}")
    session = opened(root)
    assert [r.approved for r in together(lambda: ask(session), lambda: ask(session))] == [True, True]
    assert [p.suffix for p in (root / ".nightmill/calls").iterdir()] == [".json"]
