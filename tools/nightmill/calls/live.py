"""Whether backends answer right now: a cheap question to all of them at once, with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from nightmill.config import OpenAIProvider, ProviderConfig, RunConfig, ScriptedProvider, api_key
from nightmill.errors import NightmillError
from nightmill.paths import expand
from nightmill.providers.alive import alive
from nightmill.providers.base import Kind, NoVerdict
from nightmill.providers.scripted import WINDOW
from nightmill.providers.wire import Wire

DEADLINE_S = 2.0
"""A server that does not answer within this time is shown as down. A choice of ours: one refresh of `--watch`."""

State = Literal["up", "loading", "down", "backing off"]
_STATES: Mapping[Kind, State] = {"loading": "loading", "rate_limited": "backing off"}
"""Kind of a NoVerdict → state; every other one is `down`."""


@dataclass(frozen=True)
class Seen:
    """`window` in tokens, None when the server does not tell; `why` is one line for what is not as it should be."""

    state: State
    window: int | None = None
    why: str = ""


class Looker:
    """Asks in threads of its own that hold nobody up: not each other, and not the end of the program. `root`: the run directory."""

    def __init__(self, config: RunConfig, root: Path) -> None:
        self._config, self._root = config, root
        self._running: dict[str, Future[Seen]] = {}

    def look(self, providers: Sequence[str]) -> dict[str, Seen]:
        """Takes DEADLINE_S at most, however many there are. One that still hangs from the last time is not asked a second time."""
        asked = {}
        for name in providers:
            running = self._running.get(name)
            work = partial(_look, name, self._config.providers[name], self._root)
            asked[name] = running if running and not running.done() else _in_thread(work)
        wait(asked.values(), DEADLINE_S)
        self._running = {name: future for name, future in asked.items() if not future.done()}
        late = Seen("down", why=f"no answer within {DEADLINE_S:g} s")
        return {name: late if name in self._running else future.result() for name, future in asked.items()}


def _look(name: str, config: ProviderConfig, root: Path) -> Seen:
    try:
        return _LOOK[type(config)](name, config, root)
    except NoVerdict as error:
        return Seen(_STATES.get(error.kind, "down"), why=error.detail)
    except NightmillError as error:
        return Seen("down", why=str(error))


def _look_openai(name: str, config: ProviderConfig, root: Path) -> Seen:
    """A wire of its own each time: one that is kept remembers routes that were missing once."""
    assert isinstance(config, OpenAIProvider)
    found = alive(Wire(name, config.url, api_key(config, root), DEADLINE_S))
    return Seen("up", found.window, "" if found.known else "something answers there, but not as a model server does")


def _look_scripted(name: str, config: ProviderConfig, root: Path) -> Seen:
    assert isinstance(config, ScriptedProvider)
    folder = expand(config.replies, root)
    if not folder.is_dir():
        return Seen("down", why=f"{folder} is not a directory")
    return Seen("up", WINDOW)


_LOOK: Mapping[type, Callable[[str, ProviderConfig, Path], Seen]] = {OpenAIProvider: _look_openai, ScriptedProvider: _look_scripted}


def _in_thread(work: Callable[[], Seen]) -> Future[Seen]:
    future: Future[Seen] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again by result()
            future.set_exception(error)

    threading.Thread(target=run, name="look", daemon=True).start()
    return future
