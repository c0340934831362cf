"""doit's loader plugin: finds the run directory, opens it, and takes the tasks from dodo.py without touching `sys.path`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from doit import loader as doit_loader
from doit.cmd_base import TaskLoader2
from doit.exceptions import InvalidDodoFile

from nightmill.errors import NightmillError
from nightmill.graph import session as sessions
from nightmill.paths import find_run, load_dodo
from nightmill.run.rundir import RunDir


class RunLoader(TaskLoader2):  # type: ignore[misc]  # doit has no type hints
    """Named in a run's `doit.cfg`. Commands read through it take no lock; our `run` command does."""

    def __init__(self, talkative: bool = False) -> None:
        super().__init__()
        self.session: sessions.Session | None = None
        self._talkative = talkative

    def setup(self, opt_values: Any) -> None:
        if self.session is not None:
            return
        try:
            root = find_run(Path.cwd())
            os.chdir(root)
            self.session = sessions.Session(RunDir(root), self._talkative)
            self.session.run.config  # noqa: B018 - a broken run.yaml is reported before anything else happens
        except NightmillError as error:
            raise InvalidDodoFile(str(error)) from error
        sessions.set_current(self.session)

    def load_doit_config(self) -> dict[str, Any]:
        assert self.session is not None
        self.session.run.state.mkdir(parents=True, exist_ok=True)
        config = dict(load_dodo().DOIT_CONFIG)
        config["dep_file"] = str(self.session.run.database.relative_to(self.session.run.root))
        return config

    def load_tasks(self, cmd: Any, pos_args: Any) -> list[Any]:
        return list(doit_loader.generate_tasks("pipeline", load_dodo().task_pipeline()))
