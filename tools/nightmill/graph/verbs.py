"""doit's own verbs from anywhere inside a run directory, and the questions and answers of hand edits: why, keep, redo, merge."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from doit.doit_cmd import DoitMain

from nightmill.build.merge import three_way_marked
from nightmill.errors import NightmillError, UsageError, Waiting
from nightmill.graph import session as sessions
from nightmill.graph.commands import stages_of
from nightmill.graph.context import Ctx
from nightmill.graph.execute import stamp_persons_text
from nightmill.graph.facts import Check, check
from nightmill.graph.loader import RunLoader
from nightmill.graph.session import Session
from nightmill.graph.stage import Stage
from nightmill.run.atomic import write_atomic
from nightmill.run.events import Event, StageFinished, StageStarted
from nightmill.run.lock import hold
from nightmill.run.record import file_name

COMMANDS = {
    "run": "nightmill.graph.run_command:Run",
    "list": "nightmill.graph.commands:List",
    "info": "nightmill.graph.commands:Info",
    "forget": "nightmill.graph.commands:Forget",
}


def doit(arguments: Sequence[str], *, talkative: bool = False, watch: Callable[[Event], None] | None = None) -> int:
    """Runs doit with the run directory around the working directory; `watch` is told of every event in place of a console.

    Raises UsageError when there is no run directory.
    """
    sessions.open_here()
    return int(DoitMain(RunLoader(talkative, watch), extra_config={"COMMAND": dict(COMMANDS)}).run(list(arguments)) or 0)


def why(session: Session, names: Sequence[str]) -> list[str]:
    """For each named stage, or each that is not as it was made: its state and the facts that differ, old → new.

    The closing reports are judged when the rest is done, so they are left out while something else is stale.
    """
    found = [(s, check(session, s)) for s in (_chosen(session, names) if names else stages_of(session))]
    if not names and any(not c.up_to_date for s, c in found if not s.closing):
        found = [(s, c) for s, c in found if not s.closing]
    told = [(s, c) for s, c in found if names or c.state != "fresh"]
    lines = [line for s, c in told for line in (f"{s.name}: {c.state}", *(f"    {reason}" for reason in c.why))]
    return lines or ["every stage is up to date"]


def keep(session: Session, name: str) -> str:
    """The person's text is right for the inputs as they stand."""
    with hold(session.run.lock):
        stage, found = _edited(session, name, "keep")
        stamp_persons_text(session, stage)
    return f"{name}: your text of {', '.join(found.edits)} is kept; what depends on it is made from it"


def redo(session: Session, name: str) -> str:
    """Sets what is there aside and asks the model afresh at the next run."""
    with hold(session.run.lock):
        (stage,) = _chosen(session, [name])
        name = stage.name
        aside = session.run.ledger.set_aside(name, stage.makes)
        session.run.stamps.forget(name)
        take = session.run.take(name) + 1
        write_atomic(session.run.state / "takes" / file_name(name), str(take).encode())
    where = "".join(f"\n    {path} is kept as .nightmill/objects/{digest[:2]}/{digest[2:]}" for path, digest in aside.items())
    return f"{name} is made afresh at the next doit{where}"


def merge(session: Session, name: str) -> str:
    """Remakes a held stage and merges the result into the person's text, with the last text we made as base.

    Raises Waiting when both changed the same lines: the merged text with conflict markers is then in NAME.proposed.
    """
    with hold(session.run.lock):
        stage, found = _edited(session, name, "merge")
        name, run = stage.name, session.run
        ctx = Ctx(session, stage)
        run.events.emit(StageStarted(stage=name, why="nightmill merge"))
        try:
            stage.body(ctx)
        except NightmillError as error:
            run.events.emit(StageFinished(stage=name, status="held", reason=str(error)))
            raise
        finally:
            session.close()
        made = run.ledger.clean(ctx.content)
        merged, conflicts = _merged(session, stage, made)
        if conflicts:
            texts = {path: text for path, text in merged.items() if text is not None}
            proposed = run.ledger.propose(name, stage.makes, texts)
            both = f"{name}: {', '.join(conflicts)} changed on both sides"
            run.events.emit(StageFinished(stage=name, status="held", reason=both))
            raise Waiting(f"{both}: settle the marks in {proposed}, copy it over, then nightmill keep {name}")
        run.journal.append([("made", name, path, run.objects.put(data)) for path, data in made.items()])
        run.ledger.write_persons(name, merged)
        stamp_persons_text(session, stage)
        run.events.emit(StageFinished(stage=name, status="kept", reason="merged into a person's text"))
    return f"{name}: merged into your text of {', '.join(found.edits)}"


def _merged(session: Session, stage: Stage, made: dict[str, bytes]) -> tuple[dict[str, bytes | None], list[str]]:
    run = session.run
    stamp = run.stamps.get(stage.name)
    bases = dict(stamp.product) if stamp and stamp.by == "stage" else {}
    bases = {e.path: e.sha for e in run.journal if e.act == "made" and e.stage == stage.name} | bases
    merged: dict[str, bytes | None] = {}
    conflicts: list[str] = []
    for path in {*made, *run.ledger.current(stage.makes)}:
        mine = (run.root / path).read_bytes() if (run.root / path).is_file() else None
        base = run.objects.get(bases[path]) if path in bases else None
        theirs = made.get(path)
        if mine in (base, theirs):
            merged[path] = theirs
        elif theirs == base:
            merged[path] = mine
        else:
            merged[path], count = three_way_marked(mine or b"", base or b"", theirs or b"", ("yours", "before", "remade"))
            conflicts += [path] * bool(count)
    return merged, sorted(conflicts)


def _edited(session: Session, name: str, verb: str) -> tuple[Stage, Check]:
    (stage,) = _chosen(session, [name])
    found = check(session, stage)
    if not found.edits:
        raise UsageError(f"{name}: nothing to {verb}: {', '.join(stage.makes)} is as nightmill made it")
    if stage.measured:
        raise UsageError(f"{name}: {', '.join(stage.makes)} says what commands measured: nightmill redo {name}")
    return stage, found


def _chosen(session: Session, names: Sequence[str]) -> list[Stage]:
    stages = {s.name: s for s in stages_of(session)}
    by_target = {target.rstrip("/"): s for s in stages.values() for target in s.makes}
    chosen = []
    for name in names:
        stage = stages.get(name) or by_target.get(name.rstrip("/"))
        if stage is None:
            raise UsageError(f"no stage {name} in this run: nightmill list shows them")
        chosen.append(stage)
    return chosen
