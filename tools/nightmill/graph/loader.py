"""doit's loader plugin: finds the run directory, opens it, and takes the tasks from dodo.py without touching `sys.path`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from doit import loader as doit_loader
from doit.cmd_base import TaskLoader2
from doit.exceptions import InvalidDodoFile

from nightmill.errors import NightmillError, machine_trouble
from nightmill.graph import session as sessions
from nightmill.paths import load_dodo
from nightmill.run.events import Event
from nightmill.streams import steady


class RunLoader(TaskLoader2):  # type: ignore[misc]  # doit has no type hints
    """Named in a run's `doit.cfg`. Commands read through it take no lock; our `run` command does."""

    def __init__(self, talkative: bool = False, watch: Callable[[Event], None] | None = None) -> None:
        super().__init__()
        steady()
        self.session: sessions.Session | None = None
        self._talkative, self._watch = talkative, watch

    def setup(self, opt_values: Any) -> None:
        if self.session is not None:
            return
        try:
            self.session = sessions.open_here(self._talkative, self._watch)
        except NightmillError as error:
            raise InvalidDodoFile(str(error)) from error

    def load_doit_config(self) -> dict[str, Any]:
        assert self.session is not None
        with machine_trouble():
            self.session.run.state.mkdir(parents=True, exist_ok=True)
            _drop_broken(self.session.run.database)
        config = dict(load_dodo().DOIT_CONFIG)
        config["dep_file"] = str(self.session.run.database.relative_to(self.session.run.root))
        return config

    def load_tasks(self, cmd: Any, pos_args: Any) -> list[Any]:
        return list(doit_loader.generate_tasks("pipeline", load_dodo().task_pipeline()))


def _drop_broken(database: Path) -> None:
    """Removes doit's database when it is none any more. It is a cache only: what is up to date is told by the stamps."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=0)) as connection:
            broken = connection.execute("PRAGMA quick_check").fetchone() != ("ok",)
    except sqlite3.OperationalError:
        return
    except sqlite3.DatabaseError:
        broken = True
    if broken:
        database.unlink(missing_ok=True)
