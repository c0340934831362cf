"""doit's reading verbs in a run directory. `list` and `info` take no lock; `forget` does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from doit.cmd_forget import Forget as DoitForget
from doit.cmd_info import Info as DoitInfo
from doit.cmd_list import List as DoitList

from nightmill.errors import UsageError
from nightmill.graph.facts import check
from nightmill.graph.oneline import OneLine
from nightmill.graph.pipeline import expand
from nightmill.graph.session import Session
from nightmill.graph.stage import Stage
from nightmill.paths import load_dodo
from nightmill.run.lock import hold


def stages_of(session: Session) -> list[Stage]:
    """This run's stages as its files stand."""
    dodo = load_dodo()
    return expand(dodo.pipeline_of(session.run.config.pipeline), session)


class List(OneLine, DoitList):  # type: ignore[misc]  # doit has no type hints
    name = "list"


class Info(OneLine, DoitInfo):  # type: ignore[misc]
    name = "info"

    def _execute(self, pos_args: Any, hide_status: bool = False) -> int:
        for name in pos_args:
            if name not in {t.name for t in self.task_list}:
                raise UsageError(f"no stage {name}: doit list shows them")
        DoitInfo._execute(self, pos_args, hide_status)
        return 0

    def get_reasons(self, reasons: Any) -> str:
        lines = [f" * {line}" for fresh, _, _ in reasons["uptodate_false"] for line in str(fresh).split("; ")]
        return "\n".join(lines) or DoitInfo.get_reasons(reasons)


class Forget(OneLine, DoitForget):  # type: ignore[misc]
    """Stamps are the truth, so forgetting a stage forgets its stamp. Journalled calls stay: running again costs no tokens."""

    name = "forget"
    sel_tasks: list[str] | None

    def _execute(self, forget_sub: bool, forget_disable_default: bool, forget_all: bool) -> None:
        if self.sel_default_tasks and not self.sel_tasks:
            self.sel_tasks = [t.name for t in self.task_list]
        session = self.loader.session
        with hold(session.run.lock):
            self._forget(session, forget_sub, forget_disable_default, forget_all)

    def _forget(self, session: Session, forget_sub: bool, forget_disable_default: bool, forget_all: bool) -> None:
        DoitForget._execute(self, forget_sub, forget_disable_default, forget_all)
        if self.sel_default_tasks and forget_disable_default and not forget_all:
            return
        chosen = None if forget_all or self.sel_default_tasks else set(self._with_subtasks(self.sel_tasks or [], forget_sub))
        for stage in stages_of(session):
            if chosen is not None and stage.name not in chosen:
                continue
            found = check(session, stage)
            if found.state == "held":
                kept = f"{stage.name} stays held: {found.why[0]}: nightmill keep, redo or merge {stage.name}\n"
                self.outstream.write(kept)
            else:
                session.run.stamps.forget(stage.name)

    def _with_subtasks(self, names: Iterable[str], deep: bool) -> list[str]:
        tasks = {t.name: t for t in self.task_list}
        found: list[str] = []
        pending = list(names)
        while pending:
            name = pending.pop()
            if name not in found:
                found.append(name)
                if deep or not tasks[name].actions:
                    pending += tasks[name].task_dep
        return found
