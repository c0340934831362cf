"""One stage from stale to made: run the body, publish its product, stamp it. The only caller of stage bodies."""

from __future__ import annotations

import time

from nightmill.errors import BadReply, NightmillError, StageFailed, Stopped, Waiting
from nightmill.graph.context import Ctx
from nightmill.graph.facts import Check, check, facts_of
from nightmill.graph.session import Session
from nightmill.graph.stage import Stage
from nightmill.run.events import StageFinished, StageStarted
from nightmill.run.record import Stamp

RERUNS = 3
"""How often a stage runs again because its inputs were edited while it ran."""


def execute(session: Session, stage: Stage) -> None:
    """Brings one stage up to date. Raises NightmillError for everything that is not a bug."""
    found = check(session, stage)
    if found.state == "kept":
        adopt(session, stage, found)
        return
    if found.state == "held":
        _hold(session, stage, "; ".join(found.why))
    session.check_stop()
    for need in stage.needs:
        if need != "source/" and not (session.run.root / need).exists():
            raise StageFailed(f"{stage.name} needs {need}, which is not there: run doit to make what is missing")
    session.run.events.emit(StageStarted(stage=stage.name, why="; ".join(found.why)[:500]))
    started = time.monotonic()
    end: dict[str, str] = {"status": "failed"}
    try:
        _make(session, stage)
        end = {"status": "made"}
    except Stopped as error:
        end = {"status": "stopped", "reason": str(error), "error": type(error).__name__}
        raise
    except Waiting as error:
        end = {"status": "waiting", "reason": str(error), "error": type(error).__name__}
        raise
    except NightmillError as error:
        end |= {"reason": str(error), "error": type(error).__name__}
        raise
    except Exception as error:
        end |= {"reason": f"bug: {type(error).__name__}: {error}"}
        raise
    finally:
        session.run.events.emit(StageFinished.model_validate({"stage": stage.name, **end, "seconds": time.monotonic() - started}))


def adopt(session: Session, stage: Stage, found: Check) -> None:
    """Keeps a person's text; one that was there before the stage ever ran gets a stamp, so that later changes of its inputs are seen."""
    if session.run.stamps.get(stage.name) is None:
        stamp_persons_text(session, stage)
        session.run.events.emit(StageFinished(stage=stage.name, status="kept", reason="; ".join(found.why)))


def stamp_persons_text(session: Session, stage: Stage) -> None:
    """Records that what lies there is a person's, and right for the inputs as they stand."""
    run = session.run
    run.stamps.put(Stamp(stage.name, facts_of(session, stage), run.ledger.current(stage.makes), len(run.journal), by="person"))


def _hold(session: Session, stage: Stage, why: str) -> None:
    session.run.events.emit(StageFinished(stage=stage.name, status="held", reason=why))
    ways = f" Your text is right: nightmill keep {stage.name}; remake it: nightmill redo {stage.name}; both: nightmill merge {stage.name}"
    raise Waiting(f"{stage.name} is held ({why})." + ("" if stage.measured else ways))


def _make(session: Session, stage: Stage) -> None:
    for _ in range(RERUNS):
        before = facts_of(session, stage)
        ctx = Ctx(session, stage)
        try:
            stage.body(ctx)
        except BadReply as error:
            raise StageFailed(f"the model's reply was refused three times: {error}") from error
        except NightmillError:
            if ctx.content:
                _publish(session, stage, ctx)
            raise
        after = facts_of(session, stage)
        if _inputs(before) == _inputs(after):
            break
        for data in session.run.ledger.clean(ctx.content).values():
            session.run.objects.put(data)
    else:
        raise Waiting(f"the inputs of {stage.name} were edited {RERUNS} times while it ran: run doit again when they stand")
    product = _publish(session, stage, ctx)
    session.run.stamps.put(Stamp(stage.name, after, product, len(session.run.journal)))


def _inputs(facts: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in facts.items() if k != "evidence"}


def _publish(session: Session, stage: Stage, ctx: Ctx) -> dict[str, str]:
    run = session.run
    published = run.ledger.publish(stage.name, stage.makes, ctx.content, run.stamps.get(stage.name))
    if published.proposed:
        _hold(session, stage, f"edited by a person while it ran; the new text is in {published.proposed}")
    return published.product
