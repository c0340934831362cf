"""One call to one backend: reserved, told, streamed to disk, continued where an earlier one broke off, and settled."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nightmill.calls.backends import Backend, another, title
from nightmill.calls.fit import Fitted, unread
from nightmill.calls.speeds import patience
from nightmill.calls.store import CallStore
from nightmill.calls.turn import Question
from nightmill.config import OpenAIProvider
from nightmill.errors import OutOfBudget, Stopped
from nightmill.providers.base import NoVerdict, Reply, Request, Spent, Terms
from nightmill.providers.continuation import cut
from nightmill.run.events import CallFinished, CallStarted

if TYPE_CHECKING:
    from nightmill.graph.session import Session

POLL_S = 0.2


@dataclass(frozen=True)
class Ending:
    """How a call ended: with a reply, or without a verdict."""

    reply: Reply | None = None
    error: NoVerdict | None = None
    replayed: bool = False
    next: str = ""
    bound: tuple[int, int] = (0, 0)
    """Tokens of prompt and answer to reckon with where the server gives no counts."""

    @property
    def spent(self) -> Spent:
        return self.reply or (self.error.spent if self.error else Spent())


def call(session: Session, question: Question, store: CallStore, backend: Backend, request: Request, fitted: Fitted) -> Reply:
    """Asks, and stores the reply before anything else happens. Raises NoVerdict, OutOfBudget, Stopped."""
    tokens, money = fitted.prompt_tokens + request.max_tokens, backend.model.price.of(fitted.prompt_tokens, request.max_tokens)
    session.budget.reserve(tokens, money, question.stage.name)
    try:
        resume = _resumable(store, backend, request)
        session.run.events.emit(
            CallStarted(
                stage=question.stage.name,
                label=request.label,
                key=request.key,
                provider=backend.provider.name,
                model=request.model,
                prompt_tokens=fitted.prompt_tokens,
                max_tokens=request.max_tokens,
                window=session.backends.window(backend),
                left_out=fitted.left_out,
                resumed=len(resume),
                cost=backend.model.price.of(fitted.prompt_tokens, 0),
            )
        )
        reply = _streamed(session, question, store, backend, request, fitted, resume)
        if why := unread(fitted, reply.prompt_tokens if not resume else None, lambda text: session.backends.tokens(backend, text)):
            error = NoVerdict("truncated", f"{why}: it was cut without a word")
            error.spent = reply
            raise error
        store.put(request, reply)
        tell(session, question, request.label, request, backend, Ending(reply=reply, bound=(fitted.prompt_tokens, request.max_tokens // 2)))
        return reply
    finally:
        session.budget.release(tokens, money)


def _resumable(store: CallStore, backend: Backend, request: Request) -> str:
    """The beginning of the answer that an interrupted call has left, where this backend can go on from it."""
    begun = cut(store.partial(request))
    return begun if begun and backend.provider.continues(request.model) else ""


def _streamed(
    session: Session, question: Question, store: CallStore, backend: Backend, request: Request, fitted: Fitted, resume: str
) -> Reply:
    partial = store.open_partial(request, resume)
    redactor = session.run.redactor
    trickle = redactor.trickle()

    def on_text(piece: str) -> None:
        partial.add(trickle.add(piece))
        if session.console:
            session.console.tokens(question.stage.name, request.label, piece)

    def ended() -> bool:
        return session.stopping() or bool(session.budget.expired())

    try:
        ahead = session.budget.reserved - fitted.prompt_tokens - request.max_tokens
        first_token_s, idle_s = patience(fitted.prompt_tokens, session.speeds.of(*backend.known), ahead)
        if isinstance(backend.config, OpenAIProvider):
            first_token_s, idle_s = backend.config.first_token_s or first_token_s, backend.config.idle_s or idle_s
        terms = Terms(first_token_s, idle_s, resume, on_thought=lambda _: partial.spoil())
        reply = backend.provider.complete(request, on_text, ended, terms)
        text, reasoning, model, finish = map(redactor.known, (reply.text, reply.reasoning, reply.model, reply.finish))
        return _credible(replace(reply, text=text, reasoning=reasoning, model=model, finish=finish), session.backends.window(backend))
    except Stopped:
        if not session.stopping() and (why := session.budget.expired()):
            raise OutOfBudget(why) from None
        raise
    finally:
        partial.add(trickle.end())
        partial.close()


def _credible(reply: Reply, window: int) -> Reply:
    """Without counts that cannot be: no prompt and no answer is larger than the window that holds both."""
    if max(reply.prompt_tokens or 0, reply.completion_tokens or 0) <= window:
        return reply
    return replace(reply, prompt_tokens=None, cached_tokens=None, evaluated_tokens=None, completion_tokens=None)


def tell(session: Session, question: Question, label: str, request: Request | None, backend: Backend, ending: Ending) -> None:
    """Records how a call ended. No `request`: the backend failed before it could be put to it."""
    reply, error, spent = ending.reply, ending.error, ending.spent
    named = backend.model.model
    answered = (reply.model if reply else "") or named
    tokens = spent.prompt_tokens or ending.bound[0], spent.completion_tokens or ending.bound[1]
    session.run.events.emit(
        CallFinished(
            stage=question.stage.name,
            label=label,
            key=request.key if request else "",
            provider=backend.provider.name,
            model=title(answered),
            named=named if another(named, answered) else "",
            outcome=error.kind if error else "ok",
            detail=error.detail[:300] if error else "",
            remedy=error.remedy if error else "",
            replayed=ending.replayed,
            prompt_tokens=spent.prompt_tokens,
            cached_tokens=spent.cached_tokens,
            evaluated_tokens=spent.evaluated_tokens,
            completion_tokens=spent.completion_tokens,
            seconds=spent.seconds,
            first_token_s=spent.first_token_s,
            cost=0.0 if ending.replayed else backend.model.price.of(*tokens),
            resumed=reply.resumed if reply else 0,
            next=ending.next,
            role=question.role,
        )
    )


def wait_until(session: Session, moment: float) -> None:
    """Until `moment` of the monotonic clock. Raises Stopped, OutOfBudget."""
    while (left := moment - time.monotonic()) > 0:
        if session.stopping():
            raise Stopped("stopped while waiting for a provider; run doit again to go on")
        if why := session.budget.expired():
            raise OutOfBudget(why)
        time.sleep(min(POLL_S, left))
