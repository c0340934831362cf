"""`doit` in a run directory: take the lock, bring planning stages up to date, run the rest, close with the reports."""

from __future__ import annotations

import fnmatch
import os
import sqlite3
import sys
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from doit.cmd_run import Run as DoitRun
from doit.cmdparse import DefaultUpdate
from doit.control import TaskControl
from doit.dependency import DatabaseException
from doit.task import Stream

from nightmill import __version__
from nightmill.calls.speed_memory import remember
from nightmill.errors import EXIT_BUG, EXIT_WORDS, MachineError, NightmillError, Stopped, UsageError, machine_trouble, worst
from nightmill.graph.commands import stages_of
from nightmill.graph.facts import check
from nightmill.graph.oneline import OneLine
from nightmill.graph.outlook import Outlook
from nightmill.graph.pipeline import note_plan_problems
from nightmill.graph.preflight import preflight
from nightmill.graph.runner import QuietReporter, SerialRunner, ThreadRunner
from nightmill.graph.session import Session
from nightmill.graph.signals import orderly_stop
from nightmill.graph.stage import Stage
from nightmill.run.atomic import sweep
from nightmill.run.events import RunEnded, RunStarted
from nightmill.run.lock import hold

PLANNING_PASSES = 4
"""A plan that changes the stages before it could ask for another pass; it settles after one or two."""


class Run(OneLine, DoitRun):  # type: ignore[misc]  # doit has no type hints
    """Replaces doit's `run`. Exit codes: nightmill.errors."""

    name = "run"

    def execute(self, params: Any, args: Any) -> int:
        self.loader.setup(params)
        return self._run(params, [_relative(self.loader.session.run.root, name) for name in args])

    def _run(self, params: Any, args: list[str]) -> int:
        if params["num_process"] < 0:
            raise UsageError(f"-n {params['num_process']}: give the number of stages that may run at once")
        session: Session = self.loader.session
        self.codes: list[int] = []
        self.report = QuietReporter()
        with hold(session.run.lock), orderly_stop(session.stop):
            session.locked = True
            session.run.ledger.rescue_left()
            sweep(session.run.root)
            stages = stages_of(session)
            if not args and not params["always"] and all(_settled(session, s) for s in stages):
                _say(f"nothing to do: all {len(stages)} stages are up to date")
                return 0
            _require_known(stages, args)
            preflight(session, stages)
            session.talkative |= "verbosity" in params._non_default_keys and (params["verbosity"] or 0) > 0
            session.open_console()
            try:
                return self._work(session, params, args)
            finally:
                session.close()

    def _work(self, session: Session, params: Any, args: list[str]) -> int:
        from nightmill.graph.ending import finish

        session.run.events.emit(RunStarted(pid=os.getpid(), version=__version__, command=" ".join(["doit", *args])))
        try:
            with machine_trouble():
                self._passes(session, params, args)
        except NightmillError as error:
            self.codes.append(error.exit_code)
            self.report.failures.append(("run", str(error)))
        except Exception:
            self.report.bugs.append(traceback.format_exc())
            self.codes.append(EXIT_BUG)
        code = Stopped.exit_code if session.stopping() else worst(self.codes)
        failures = dict.fromkeys(f"{name}: {text}" for name, text in self.report.failures)
        reason = "; ".join(list(failures)[:3])
        if self.report.bugs:
            session.close()
            print("\n".join(self.report.bugs), file=sys.stderr)  # noqa: T201
        session.run.events.emit(RunEnded(exit=code, word=EXIT_WORDS[code], reason=reason))
        finish(session, stages_of(session), code, self.report.blocked)
        remember(session.run.config, session.speeds.measured())
        return code

    def _passes(self, session: Session, params: Any, args: list[str]) -> None:
        outlook = Outlook(session, args, everything=params["always"], alone=params["single"])
        outlook.tell(stages_of(session))
        self._plan_first(session, params, args)
        stages = stages_of(session)
        if not session.stopping():
            if not self.codes:
                outlook.tell(stages)
                _require_known(stages, args, of_plan=True)
                note_plan_problems(session)
                self._pass(session, params, args or [s.name for s in stages if not s.closing])
            elif not args:
                self._pass(session, params, _beside_the_plan(stages, self.report.failed))
        if not args and not session.stopping():
            for stage in (s for s in stages if s.closing):  # one after the other: the report quotes deviations.md
                self._pass(session, params, [stage.name])

    def _plan_first(self, session: Session, params: Any, args: list[str]) -> None:
        """Runs the stages that shape the graph until they stand. Every pass makes the tasks again from the plan as it is."""
        for _ in range(PLANNING_PASSES):
            stages = stages_of(session)
            planners = [s for s in stages if s.plans]
            if not planners or (args and not _reaches(stages, planners, args)):
                return
            if all(_settled(session, s) for s in _closure(stages, planners)):
                return
            self._pass(session, params, [s.name for s in planners])
            if self.codes or session.stopping():
                return

    def _pass(self, session: Session, params: Any, names: Sequence[str]) -> None:
        if not names:
            return
        session.show(stages_of(session))
        clone = DefaultUpdate()
        clone.update(params)
        clone._non_default_keys = set(params._non_default_keys)
        self.dep_manager = None
        try:
            DoitRun.execute(self, clone, list(names))
        except (DatabaseException, sqlite3.Error) as error:
            session.run.database.unlink(missing_ok=True)
            cause = " ".join(str(error).split())[:120]
            raise MachineError(f".nightmill/doit.db could not be used ({cause}); a cache only, removed now: run doit again") from error

    def _execute(self, always: bool = False, continue_: bool = False, num_process: int = 0, single: bool = False) -> int:
        self.control = TaskControl(self.task_list)
        self.control.process(self.sel_tasks)
        if single:
            for name in self.control.selected_tasks:
                self.control.tasks[name].task_dep = []
        arguments = [self.dep_manager, self.report, continue_, always, Stream(2)]
        runner = ThreadRunner(*arguments, num_process) if num_process else SerialRunner(*arguments)
        runner.session, runner.codes = self.loader.session, self.codes
        return int(runner.run_all(self.control.task_dispatcher()))


def _settled(session: Session, stage: Stage) -> bool:
    """Up to date, and known to be: a person's file that was there first still wants its stamp."""
    return check(session, stage).up_to_date and session.run.stamps.get(stage.name) is not None


def _closure(stages: Sequence[Stage], chosen: Sequence[Stage]) -> list[Stage]:
    """The chosen stages and all that their needs come from, in pipeline order."""
    wanted = {s.name for s in chosen}
    needed = {need for s in chosen for need in s.needs} | {"source.lock"}
    for stage in reversed(stages):
        if stage.name in wanted or needed & set(stage.makes):
            wanted.add(stage.name)
            needed |= set(stage.needs)
    return [s for s in stages if s.name in wanted]


def _relative(root: Path, name: str) -> str:
    """A target as the stages name it: `./v2/` and `/path/of/run/v2` are `v2`."""
    path = Path(os.path.normpath(name))
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _require_known(stages: Sequence[Stage], args: Sequence[str], *, of_plan: bool = False) -> None:
    """Raises UsageError on what names no stage, group or target. Milestones count as known until the plan has been made (`of_plan`)."""
    names = {s.name for s in stages} | {s.name.partition(":")[0] for s in stages} | {t.rstrip("/") for s in stages for t in s.makes}
    for name in args:
        unplanned = not of_plan and (":" in name or "*" in name)
        if not unplanned and not (fnmatch.filter(names, name) if "*" in name else name in names):
            raise UsageError(f"no stage or file {name} in this run: doit list shows the stages")


def _beside_the_plan(stages: Sequence[Stage], failed: Collection[str]) -> list[str]:
    """What can go on when the plan could not be brought up to date: what stands neither behind it nor behind a stage that has failed."""
    behind = {s.name for s in stages if any(p.plans or p.name in failed for p in _closure(stages, [s]))}
    return [s.name for s in stages if not s.closing and s.name not in behind]


def _reaches(stages: Sequence[Stage], planners: Sequence[Stage], args: Sequence[str]) -> bool:
    """Whether what the person chose stands behind a plan, or is not known yet (a milestone's name)."""
    known = {s.name: s for s in stages} | {target.rstrip("/"): s for s in stages for target in s.makes}
    chosen = [known[name] for name in args if name in known]
    if len(chosen) < len(args):
        return True
    return any(p in _closure(stages, [s]) and p is not s for s in chosen for p in planners)


def _say(text: str) -> None:
    if sys.stdout.isatty():
        print(text)  # noqa: T201
