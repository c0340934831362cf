"""A finished reply to one question, from the store or from whoever of the role's models can give it, as the outcome table says."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nightmill.calls.backends import Backend
from nightmill.calls.call import Ending, call, tell, wait_until
from nightmill.calls.outcome import GiveUp, Wait, after
from nightmill.calls.store import CallStore
from nightmill.calls.turn import Put, Question, Turn
from nightmill.errors import ConfigError, NightmillError, NoProvider, NoUsableReply, Waiting
from nightmill.providers.base import NoVerdict, Reply, Request
from nightmill.run.events import Note

if TYPE_CHECKING:
    from nightmill.graph.session import Session


@dataclass
class Line:
    """One backend's part in one question. Times are of the monotonic clock."""

    backend: Backend
    tries: dict[str, int] = field(default_factory=dict)
    seeds: int = 0
    doublings: int = 0
    rests_until: float = 0.0
    loading_since: float | None = None
    alone: bool = False
    """The next try is this one's as well: another backend would not be helped by what was learnt."""
    error: NightmillError | None = None
    """Why it is given up for this question."""

    def turn(self, put: Put) -> Turn:
        return Turn.of(put, self.backend.model, self.seeds, self.doublings)

    def first_turn(self, put: Put) -> Turn:
        """As it is put before anything was learnt: what a later process looks for."""
        return Turn.of(put, self.backend.model, 0, 0)


def answer(session: Session, question: Question, put: Put) -> tuple[Reply, Request]:
    """From the store, without any server, if any of the role's models has answered this before; else by calls, one after the other.

    Raises OutOfBudget, NoProvider, Waiting, ConfigError, Stopped.
    """
    store = CallStore(session.run.calls)
    lines = [Line(backend) for backend in session.backends.of(question.role)]
    while True:
        session.check_stop()
        for line in lines:
            if known := store.recall(line.turn(put).key):
                request, reply = known
                tell(session, question, put.label, request, line.backend, Ending(reply=reply, replayed=request.key in session.budget.keys))
                return reply, request
        line = _next(session, question, put, lines)
        if found := _try(session, question, store, line, put, several=len(lines) > 1):
            return found


def _next(session: Session, question: Question, put: Put, lines: list[Line]) -> Line:
    """Waits until a backend is ready. The best one; one that sees the whole prompt before one that would not."""
    while True:
        left = [line for line in lines if line.error is None]
        if not left:
            raise _verdict([line.error for line in lines if line.error])
        now = time.monotonic()
        left = [line for line in left if line.alone] or left
        ready = {id(line.backend.model): line for line in left if line.rests_until <= now}
        if not ready:
            wait_until(session, min(line.rests_until for line in left))
            continue
        if len(lines) == 1:
            return lines[0]
        return _best(session, question, put, ready)


def _best(session: Session, question: Question, put: Put, ready: dict[int, Line]) -> Line:
    """The router's choice among those that see the whole prompt; among all, where none does."""
    left, first = dict(ready), None
    while left:
        model = session.router.order([line.backend.model for line in left.values()], question.role)[0].model
        line = left.pop(id(model))
        first = first or line
        if _sees_all(session, line, put):
            return line
    assert first is not None
    return first


def _sees_all(session: Session, line: Line, put: Put) -> bool:
    """Whether the prompt fits without leaving anything out. A backend that cannot be asked is tried, and fails, in its turn."""
    try:
        return not line.turn(put).fitted(session, line.backend).left_out
    except NoVerdict:
        return True
    except ConfigError:
        return False


def _verdict(errors: list[NightmillError]) -> NightmillError:
    """What the run ends with when every backend was given up: what may pass by itself before what a person must mend."""
    if len(errors) == 1:
        return errors[0]
    told = "; ".join(str(e) for e in errors)
    if all(isinstance(e, NoUsableReply) for e in errors):
        return NoUsableReply(told)
    return next((kind for kind in (Waiting, NoProvider) if any(isinstance(e, kind) for e in errors)), ConfigError)(told)


def _try(session: Session, question: Question, store: CallStore, line: Line, put: Put, *, several: bool) -> tuple[Reply, Request] | None:
    """One call. None when it gave no verdict and another try, here or elsewhere, may."""
    backend = line.backend
    sent: Request | None = None
    try:
        turn = line.turn(put)
        fitted = turn.fitted(session, backend)
        sent = turn.request(fitted)
        for key in {turn.key, line.first_turn(put).key}:
            store.remember(key, sent)
        if known := store.get(sent):
            tell(session, question, put.label, sent, backend, Ending(reply=known, replayed=sent.key in session.budget.keys))
            return known, sent
        return call(session, question, store, backend, sent, fitted), sent
    except NoVerdict as error:
        _failed(session, question, store, line, put, sent, error)
        return None
    except ConfigError as error:
        if not several:
            raise
        line.error = ConfigError(f"{backend.provider.name}, model {backend.model.model}: {error}")  # another window may be large enough
        return None


def _failed(session: Session, question: Question, store: CallStore, line: Line, put: Put, sent: Request | None, error: NoVerdict) -> None:
    """Nobody is charged: the backend rests, is asked differently, or is given up for this question."""
    backend, kind = line.backend, error.kind
    if kind == "too_large" and not line.tries.get(kind) and session.backends.shrunk(backend):
        step_text = "its window is smaller than it was: fitted again"
        line.tries[kind] = 0
    else:
        line.tries[kind] = line.tries.get(kind, 0) + 1
        if kind == "loading" and line.loading_since is None:
            line.loading_since = time.monotonic()
        waited = time.monotonic() - line.loading_since if line.loading_since is not None and kind == "loading" else None
        step = after(error, line.tries[kind], provider=backend.provider.name, waited_s=waited)
        line.alone = isinstance(step, Wait) and not step.rotate
        if isinstance(step, GiveUp):
            line.error = step.error
            step_text = "given up for this question"
        else:
            line.seeds += step.change in ("seed", "max_tokens")  # half the window may be the limit already
            line.doublings += step.change == "max_tokens"
            line.rests_until = time.monotonic() + step.seconds
            step_text = f"asked again in {step.seconds:.0f} s" if step.seconds else "asked again"
    if sent is not None and kind in TAINTED:
        store.drop_partial(sent)
    tell(session, question, put.label, sent, backend, Ending(error=error, next=step_text))
    text = f"{put.label}: {backend.provider.name}: {error.detail}: {step_text}"
    session.run.events.emit(Note(stage=question.stage.name, text=text))


TAINTED = frozenset({"loop", "refusal", "empty", "reasoning_only", "restarted", "truncated", "bad_utf8", "garbage", "html"})
"""After these, what had been received of the answer is nothing to go on from."""
