"""One question to one agent: render, fit, replay or call, parse; ask again with the broken rule, at most twice."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nightmill.calls.backends import Backend
from nightmill.calls.fit import Fitted, fit
from nightmill.calls.outcome import GROWTH, GiveUp, after
from nightmill.calls.prompts import Section, load_skill, messages, render
from nightmill.calls.store import CallStore
from nightmill.errors import BadReply, Stopped
from nightmill.providers.base import NoVerdict, Reply, Request
from nightmill.run.events import CallFinished, CallStarted, Note, ReplyRefused
from nightmill.run.trees import sha

if TYPE_CHECKING:
    from nightmill.calls.replies import ReplyFormat
    from nightmill.graph.session import Session
    from nightmill.graph.stage import Stage

TRIES = 3
"""One answer and two more, each asked with something changed."""

RETRY_TEMPERATURE = 0.3
"""Added per re-ask (capped at 1): the same prompt at the same temperature tends to break the same rule."""


@dataclass(frozen=True)
class Question:
    stage: Stage
    skill: str
    role: str
    template: str
    reply: type[ReplyFormat]
    facts: Mapping[str, Any]
    sections: Mapping[str, str]
    task: Mapping[str, Any] = field(default_factory=dict)
    vary: int = 0
    """Raises seed and temperature from the start: a later attempt must differ from an earlier one."""

    def label(self, number: int) -> str:
        """`contract:1#1`, or `implement:tax/security_reviewer#2` for an agent that is not the stage's own."""
        who = self.stage.name if self.skill == self.stage.skill else f"{self.stage.name}/{self.skill}"
        return f"{who}#{number}"


def ask(session: Session, question: Question, asked: MutableMapping[str, int]) -> Any:
    """The parsed reply. `asked` counts the questions per skill in this execution of the stage.

    Raises BadReply after TRIES broken replies; OutOfBudget, NoProvider, Waiting, ConfigError, Stopped for what is not the model's fault.
    """
    skill = load_skill(question.skill)
    facts = {"verdicts": skill.verdicts, "example": skill.text, **question.facts}
    feedback = ""
    broken = BadReply("no reply")
    for attempt in range(TRIES):
        asked[question.skill] = number = asked.get(question.skill, 0) + 1
        reply, request = _answer(session, question, facts, feedback, attempt, question.label(number))
        try:
            return question.reply.parse(reply.text, facts)
        except BadReply as error:
            broken = error
            feedback = str(error)
            session.run.events.emit(ReplyRefused(stage=question.stage.name, label=request.label, key=request.key, rule=feedback))
    raise broken


@dataclass(frozen=True)
class Turn:
    """A question as it is put this time, before it is fitted to a window: the same turn has the same answer, whoever stands ready."""

    label: str
    sections: tuple[Section, ...]
    model: str
    temperature: float
    seed: int
    max_tokens: int
    take: int
    context: int | None

    @property
    def key(self) -> str:
        """SHA-256, hex; the label is no part of it."""
        texts = [[s.name, s.text] for s in self.sections]
        return sha(
            json.dumps([texts, self.model, self.temperature, self.seed, self.max_tokens, self.take, self.context], ensure_ascii=False)
        )


def _answer(
    session: Session, question: Question, facts: Mapping[str, Any], feedback: str, attempt: int, label: str
) -> tuple[Reply, Request]:
    """A finished reply to this very question: from the store, without any server, or from the provider, as the outcome table says."""
    store = CallStore(session.run.calls)
    backend = session.backends.of(question.role)
    tries: dict[str, int] = {}
    changed = {"seed": 0, "max_tokens": 1}
    loading_since: float | None = None
    while True:
        session.check_stop()
        turn = _turn(session, question, backend, facts, feedback, attempt, label, changed)
        if known := store.recall(turn.key):
            request, reply = known
            _ended(session, question, request, backend, reply, replayed=request.key in session.budget.keys)
            return reply, request
        sent: Request | None = None
        try:
            fitted = _fitted(session, backend, turn)
            sent = _request(turn, fitted)
            store.remember(turn.key, sent)
            if answered := store.get(sent):
                _ended(session, question, sent, backend, answered, replayed=sent.key in session.budget.keys)
                return answered, sent
            return _call(session, question, store, backend, sent, fitted), sent
        except NoVerdict as error:
            tries[error.kind] = tries.get(error.kind, 0) + 1
            if sent is not None:
                _ended(session, question, sent, backend, None, outcome=error.kind, detail=error.detail[:300])
            if error.kind == "loading" and loading_since is None:
                loading_since = time.monotonic()
            waited = time.monotonic() - loading_since if loading_since is not None and error.kind == "loading" else None
            step = after(error, tries[error.kind], provider=backend.provider.name, waited_s=waited)
            if isinstance(step, GiveUp):
                raise step.error from error
            changed |= {
                "seed": changed["seed"] + (step.change != "nothing"),  # half the window may be the limit already
                "max_tokens": changed["max_tokens"] * (GROWTH if step.change == "max_tokens" else 1),
            }
            again = f"{label}: {backend.provider.name}: {error.detail}: asking again in {step.seconds:.0f} s"
            session.run.events.emit(Note(stage=question.stage.name, text=again))
            _wait(session, step.seconds)


def _turn(
    session: Session,
    question: Question,
    backend: Backend,
    facts: Mapping[str, Any],
    feedback: str,
    attempt: int,
    label: str,
    changed: Mapping[str, int],
) -> Turn:
    variables = {
        **question.sections,
        **question.task,
        "skill": load_skill(question.skill).text,
        "format": question.reply.format(facts),
        "feedback": feedback,
    }
    model = backend.model
    step = attempt + question.vary + changed["seed"]
    return Turn(
        label=label,
        sections=tuple(render(question.template, variables)),
        model=model.model,
        temperature=round(min(max(model.temperature, 1.0), model.temperature + RETRY_TEMPERATURE * step), 3),
        seed=model.seed + step,
        max_tokens=model.max_tokens * changed["max_tokens"],
        take=session.run.take(question.stage.name),
        context=model.context,
    )


def _fitted(session: Session, backend: Backend, turn: Turn) -> Fitted:
    return fit(list(turn.sections), session.backends.window(backend), turn.max_tokens, backend.provider.count)


def _request(turn: Turn, fitted: Fitted) -> Request:
    return Request(
        model=turn.model,
        messages=messages(fitted.sections),
        temperature=turn.temperature,
        seed=turn.seed,
        max_tokens=fitted.max_tokens,
        label=turn.label,
        take=turn.take,
    )


def _call(session: Session, question: Question, store: CallStore, backend: Backend, request: Request, fitted: Fitted) -> Reply:
    cost = fitted.prompt_tokens + request.max_tokens
    session.budget.reserve(cost)
    partial = store.open_partial(request)

    def on_text(piece: str) -> None:
        partial.add(piece)
        if session.console:
            session.console.tokens(question.stage.name, request.label, piece)

    try:
        session.run.events.emit(
            CallStarted(
                stage=question.stage.name,
                label=request.label,
                key=request.key,
                provider=backend.provider.name,
                model=request.model,
                prompt_tokens=fitted.prompt_tokens,
                window=session.backends.window(backend),
                left_out=fitted.left_out,
            )
        )
        reply = backend.provider.complete(request, on_text, session.stopping)
        store.put(request, reply)
        _ended(session, question, request, backend, reply)
        return reply
    finally:
        partial.close()
        session.budget.release(cost)


def _ended(
    session: Session,
    question: Question,
    request: Request,
    backend: Backend,
    reply: Reply | None,
    *,
    outcome: str = "ok",
    detail: str = "",
    replayed: bool = False,
) -> None:
    """Tells how a call ended; without a reply it gave no verdict."""
    session.run.events.emit(
        CallFinished(
            stage=question.stage.name,
            label=request.label,
            key=request.key,
            provider=backend.provider.name,
            model=(reply.model if reply else "") or request.model,
            outcome=outcome,
            detail=detail,
            replayed=replayed,
            prompt_tokens=reply.prompt_tokens if reply else None,
            cached_tokens=reply.cached_tokens if reply else None,
            completion_tokens=reply.completion_tokens if reply else None,
            seconds=reply.seconds if reply else 0.0,
        )
    )


def _wait(session: Session, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if session.stopping():
            raise Stopped("stopped while waiting for a provider; run doit again to go on")
        time.sleep(min(0.2, left))
