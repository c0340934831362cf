"""`nightmill try` and `nightmill bench`: what the command line says."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from nightmill.build.strategies import STRATEGIES
from nightmill.errors import UsageError
from nightmill.scaffold import DEFAULT_URL
from nightmill.trial.setting import Setting, answered_by, from_file, setting


def settings(options: argparse.Namespace) -> list[Setting]:
    """One per model and strategy that was named. Raises UsageError, ConfigError."""
    if options.run_config and (options.provider or options.model or options.context):
        raise UsageError("--run-config names who answers: leave out --provider, --model and --context")
    if options.provider and not options.provider.startswith(("http://", "https://")):
        raise UsageError(f"--provider {options.provider}: give a URL such as {DEFAULT_URL}")
    if options.tries is not None and options.tries < 1:
        raise UsageError(f"--tries {options.tries}: give a number of attempts from 1")
    for name in _several(options.strategy):
        if name not in ("auto", *STRATEGIES):
            raise UsageError(f"--strategy {name}: there is none of this name; use auto, {', '.join(STRATEGIES)}")
    if options.run_config:
        raws = [from_file(options.run_config)]
    else:
        raws = [answered_by(options.provider or DEFAULT_URL, model, options.context) for model in _several(options.model) or ["default"]]
    made = [setting(raw, name, options.tries) for raw in raws for name in _several(options.strategy) or [None]]
    return list({(one.model, one.strategy): one for one in made}.values())


def _several(given: Any) -> list[Any]:
    return [] if given is None else list(dict.fromkeys(given)) if isinstance(given, list) else [given]


def try_one(options: argparse.Namespace) -> int:
    """Prints the result as one line of JSON; returns 0 only when it is solved."""
    from nightmill.trial.attempt import attempt, place
    from nightmill.trial.given import read_task
    from nightmill.trial.result import line

    (given,) = settings(options)
    task = read_task(options.task)
    with place(options.keep) as root:
        found, code = attempt(task, given, root, say)
    sys.stdout.write(line(found).decode())
    sys.stdout.flush()
    return code or (0 if found.solved else 76)


def bench(options: argparse.Namespace) -> int:
    from nightmill.trial.bench import run_all
    from nightmill.trial.given import tasks_in

    if options.limit is not None and options.limit < 1:
        raise UsageError(f"--limit {options.limit}: give a number of tasks from 1")
    tasks = [task for folder in options.folders for task in tasks_in(folder)]
    if not tasks:
        raise UsageError(f"no task in {', '.join(map(str, options.folders))}; see nightmill try --help for what a task is")
    names = [task.name for task in tasks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"two tasks are called {twice[0]}: give one of them another directory name")
    return run_all(tasks[: options.limit], settings(options), options.out, options.keep, say)


def say(text: str) -> None:
    """For a person, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
