"""`nightmill providers [--watch]`: every backend, whether it answers, how it has been doing, and each term of its score.

Takes no lock and writes nothing, so that it can be left open beside a run in another terminal.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nightmill.calls.health import Health, Vitals
from nightmill.calls.live import Looker, Seen
from nightmill.calls.router import BACKING_OFF, Ranked, Router, depth
from nightmill.config import ROLES, ModelConfig, RunConfig
from nightmill.errors import UsageError
from nightmill.lines import count, listed, one_line, seconds
from nightmill.paths import find_run, working_directory
from nightmill.run.follow import Follower
from nightmill.run.rundir import RunDir
from nightmill.stream import SafeStream

EVERY_S = 2.0
"""Between two refreshes of `--watch`. A choice of ours."""
LONGEST_EVERY_S = 3600.0
_HOME, _TO_LINE_END, _BELOW, _ALL = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"
"""What a terminal is told: cursor to the top; erase the rest of the line, everything below, everything."""

Cells = tuple[str, ...]
Key = tuple[str, str]
"""Provider and model, as run.yaml names them."""


@dataclass(frozen=True)
class Served:
    """A backend and the roles that it may answer for."""

    model: ModelConfig
    roles: tuple[str, ...]

    @property
    def key(self) -> Key:
        return self.model.provider, self.model.model


def providers(options: argparse.Namespace) -> int:
    """The verb. `options.watch`: bool; `options.every`: seconds, None for EVERY_S. Returns 0, also when it is interrupted while watching.

    Raises UsageError outside of a run directory or for a senseless number of seconds, ConfigError for a broken run.yaml.
    """
    every = EVERY_S if options.every is None else options.every
    if not 0 < every <= LONGEST_EVERY_S:
        raise UsageError(f"--every {every:g}: give seconds above 0 and up to {LONGEST_EVERY_S:.0f}")
    run = RunDir(find_run(working_directory()))
    run.require_kinds()
    view = View(run)
    if not options.watch:
        sys.stdout.write("\n".join(view.lines()) + "\n")
        return 0
    try:
        _watch(view, every)
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    return 0


class View:
    """What is to be shown now, again and again."""

    def __init__(self, run: RunDir) -> None:
        self._config = run.config
        self._root = run.root
        self._follower = Follower(run.state / "events.jsonl")
        self._health = Health()
        self._looker = Looker(run.config, run.root)
        self.backends = served(run.config)

    def lines(self) -> list[str]:
        """Takes up to calls.live.DEADLINE_S. Raises UsageError when the run directory was taken away."""
        if not self._root.is_dir():
            raise UsageError(f"{self._root} is gone: it was deleted or moved")
        seen = self._looker.look(sorted({one.model.provider for one in self.backends}))
        events, anew = self._follower.read()
        if anew:
            self._health = Health()
        for event in events:
            self._health.add(event)
        return board(self._config, self._health, seen, time.time())


def served(config: RunConfig) -> list[Served]:
    """Every distinct backend of run.yaml in its order; one that no role can reach has no roles."""
    roles: dict[Key, list[str]] = {}
    models: dict[Key, ModelConfig] = {}
    for model in (model for listed_models in config.models.values() for model in listed_models):
        models.setdefault((model.provider, model.model), model)
    for role in ROLES:
        for model in config.candidates(role):
            roles.setdefault((model.provider, model.model), []).append(role)
    return [Served(model, tuple(dict.fromkeys(roles.get(key, ())))) for key, model in models.items()]


def board(config: RunConfig, health: Health, seen: Mapping[str, Seen], now: float) -> list[str]:
    """The lines; what servers and models say in them is made safe to print. `seen`: by name of a provider; `now` is Unix time."""
    lines = _states(served(config), health, seen, now)
    lines += ["", "score in points, a minute of waiting each; the lowest is asked first: price + latency + quality + backoff + errors", ""]
    return lines + _scores(config, Router(health))


def _states(backends: Sequence[Served], health: Health, seen: Mapping[str, Seen], now: float) -> list[str]:
    rows: list[Cells] = [("backend", "state", "p50", "errors", "backoff", "quality", "window", "calls", "used", "roles")]
    below: list[list[str]] = [[]]
    for one in backends:
        vitals, live = health.of(*one.key), seen[one.model.provider]
        state = "backing off" if live.state == "up" and vitals.backoff >= BACKING_OFF else live.state
        rows.append(
            (
                _name(one.model),
                state,
                "-" if vitals.latency_s is None else seconds(vitals.latency_s),
                f"{vitals.error_rate:.2f}",
                f"{vitals.backoff:.1f}",
                f"{vitals.quality:.2f}",
                _window(one.model, live, vitals),
                f"{vitals.calls:,}",
                "never" if vitals.last_used is None else _ago(now - vitals.last_used),
                listed(one.roles) or "none",
            )
        )
        trouble = vitals.trouble
        last = f"last trouble {_ago(now - trouble.at)}: {listed((trouble.kind, trouble.detail), ': ')}" if trouble else ""
        below.append([f"    {one_line(text)}" for text in (f"{state}: {live.why}" if live.why else "", last) if text])
    return [line for row, more in zip(_table(rows, right=range(2, 8)), below, strict=True) for line in (row, *more)]


def _scores(config: RunConfig, router: Router) -> list[str]:
    """Roles that have the same backends and the same depth stand together, the deepest work first."""
    groups: dict[tuple[int, tuple[ModelConfig, ...]], list[str]] = {}
    for role in sorted(ROLES, key=depth, reverse=True):
        groups.setdefault((depth(role), config.candidates(role)), []).append(role)
    rows: list[Cells] = [("roles", "depth", "backend", "price", "latency", "quality", "backoff", "errors", "score", "")]
    for (deep, models), roles in groups.items():
        for place, ranked in enumerate(router.order(models, roles[0])):
            head = (listed(roles), str(deep)) if place == 0 else ("", "")
            rows.append((*head, f"{place + 1}. {_name(ranked.model)}", *_terms(ranked), "its turn to be tried" if ranked.explored else ""))
    return _table(rows, right=(1, *range(3, 9)))


def _terms(ranked: Ranked) -> Cells:
    score = ranked.score
    return tuple(f"{term:.2f}" for term in (score.price, score.latency, score.quality, score.backoff, score.errors, score.total))


def _name(model: ModelConfig) -> str:
    return one_line(f"{model.provider}/{model.model}", 60)


def _window(model: ModelConfig, live: Seen, vitals: Vitals) -> str:
    """Tokens: what the server tells now, within what is configured; else what it last was; else what is configured; else `?`."""
    configured = model.context if isinstance(model.context, int) else None
    if live.window:
        return f"{min(live.window, configured or live.window):,}"
    if vitals.window:
        return f"{vitals.window:,} last known"
    return f"{configured:,} as configured" if configured else "?"


def _ago(age: float) -> str:
    return f"{seconds(max(age, 0.0))} ago"


def _table(rows: Sequence[Cells], *, right: Iterable[int]) -> list[str]:
    """Columns padded to their widest cell; those in `right` end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = ["<"] * len(widths)
    for column in right:
        aligned[column] = ">"
    return ["  ".join(f"{cell:{a}{w}}" for cell, a, w in zip(row, aligned, widths, strict=True)).rstrip() for row in rows]


def _watch(view: View, every: float) -> None:
    """Until the person interrupts it or nobody reads any more: redraws a terminal; elsewhere a block of lines for each refresh."""
    stream = SafeStream(sys.stdout)
    redraw, first = stream.isatty(), True
    while not stream.gone:
        began = time.monotonic()
        lines = [f"{time.strftime('%H:%M:%S')}  {count(len(view.backends), 'backend')}, every {every:g} s", "", *view.lines()]
        if redraw:
            columns, height = stream.size()
            drawn = "".join(f"{line[: columns - 1]}{_TO_LINE_END}\n" for line in lines[: height - 1])
            stream.write((_ALL if first else "") + _HOME + drawn + _BELOW)
        else:
            stream.write("\n".join(lines) + "\n\n")
        first = False
        time.sleep(max(0.0, began + every - time.monotonic()))
