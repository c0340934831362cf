"""A stage as a doit task: stamps decide whether it is up to date, doit decides the order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from doit.exceptions import TaskFailed

from nightmill.errors import NightmillError, UsageError, machine_trouble
from nightmill.graph.execute import execute
from nightmill.graph.facts import check
from nightmill.graph.session import Session
from nightmill.graph.stage import SOURCE, Stage


class StageFail(TaskFailed):  # type: ignore[misc]  # doit has no type hints
    """A stage did not end well; `exit_code` says how (nightmill.errors)."""

    def __init__(self, error: NightmillError) -> None:
        super().__init__(str(error), report=False)
        self.exit_code = error.exit_code


class Fresh:
    """doit's `uptodate`: asks the stamps; as text it is the reason, so that `doit info STAGE` tells why."""

    def __init__(self, session: Session, stage: Stage) -> None:
        self.session = session
        self.stage = stage
        self.reason = ""

    def __call__(self) -> bool:
        found = check(self.session, self.stage)
        self.reason = "; ".join(found.why)
        if found.state == "kept" and self.session.run.stamps.get(self.stage.name) is None:
            return False
        return found.up_to_date

    def __repr__(self) -> str:
        return self.reason or "up to date"


class Action:
    """doit's action: brings the stage up to date and turns what a person can act on into a failure with an exit code."""

    def __init__(self, session: Session, stage: Stage) -> None:
        self.session = session
        self.stage = stage
        self.__name__ = stage.name

    def __call__(self) -> StageFail | None:
        """`doit strace` would run stages too, beside whoever holds the run's lock: refused."""
        try:
            if not self.session.locked:
                raise UsageError(f"{self.stage.name} runs only under doit's `run`")
            with machine_trouble():
                execute(self.session, self.stage)
        except NightmillError as error:
            return StageFail(error)
        return None


def tasks(session: Session, stages: Sequence[Stage]) -> Iterator[dict[str, Any]]:
    """doit's task dictionaries, in pipeline order; a stage depends on the stages that make its needs."""
    maker = {target: stage.name for stage in stages for target in stage.makes}
    groups: dict[str, list[str]] = {}
    for stage in stages:
        group, colon, _ = stage.name.partition(":")
        if colon and group not in {s.name for s in stages}:
            groups.setdefault(group, []).append(stage.name)
    for stage in stages:
        needs = ["source.lock" if need == SOURCE else need for need in stage.needs]
        yield {
            "basename": stage.name,
            "doc": stage.doc,
            "actions": [Action(session, stage)],
            "uptodate": [Fresh(session, stage)],
            "targets": [target.rstrip("/") for target in stage.makes],
            "task_dep": list(dict.fromkeys(maker[need] for need in needs if need in maker and maker[need] != stage.name)),
            "io": {"capture": False},
            "verbosity": 2,
            "meta": {"needs": [*stage.needs, *stage.optional], "roles": list(stage.roles)},
        }
    for group, members in groups.items():
        yield {"basename": group, "doc": f"All of {group}:*", "actions": None, "task_dep": members}
