"""Runs the locked tests of a Python tree in its workspace, once or twice, and makes their step's record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nightmill.gate.languages import _python_syntax as syntax
from nightmill.gate.languages._python_report import read_report, step_of_tests
from nightmill.gate.languages._python_twice import step_of_both
from nightmill.gate.languages.base import ACCEPTANCE, PRIVATE, Bench
from nightmill.gate.limits import Ran
from nightmill.gate.manner import SURROUNDINGS, Manner
from nightmill.gate.records import StepRecord

_HERE = Path(__file__).parent
KEY = f"{PRIVATE}/key"
"""File that holds the key of the next test run."""
_REPORT, _ENDS = f"{PRIVATE}/report.jsonl", f"{PRIVATE}/ends"
_REPORT_LIMIT, _ENDS_LIMIT = 64 * 2**20, 4096
_RUNNER, _DRIVER, _ASKED = "/nightmill/run_tests.py", "/nightmill/run_twice.py", "/nightmill/only.json"

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "TZ": "UTC",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
}

_OTHER = {**SURROUNDINGS, "PYTHONHASHSEED": "4242"}
_CHANGES = tuple(f"{name}={value}" for name, value in _OTHER.items())


def run_tests(bench: Bench, python: tuple[str, ...], is_test_file: Callable[[str], bool]) -> StepRecord:
    """`python` is the interpreter with its options.

    The tests lie under a read-only mount of their own, so that imported code cannot rewrite those that come after it.
    """
    seconds, manner = f"{max(1.0, bench.limits.wall_s / 4):g}", bench.manner  # one hanging test leaves time for the others
    locked = {path: data for path, data in bench.laid.items() if path.startswith(f"{ACCEPTANCE}/")}
    with (
        bench.sandbox.workdir({path.removeprefix(f"{ACCEPTANCE}/"): data for path, data in locked.items()}) as shield,
        bench.sandbox.workdir({"only.json": json.dumps(manner.only).encode()}) as asked,
    ):
        bind = {_RUNNER: _HERE / "_pytest_report.py", f"{bench.work.inside}/{ACCEPTANCE}": shield.path}
        if manner.seed:
            bind[_DRIVER] = _HERE / "_run_twice.py"
            bench = replace(bench, limits=replace(bench.limits, wall_s=2 * bench.limits.wall_s))
            command = (*python, _DRIVER, _RUNNER, KEY, _REPORT, _ENDS, seconds, ACCEPTANCE, str(manner.seed), *_CHANGES)
        else:
            bind |= {_ASKED: asked.path / "only.json"} if manner.only else {}
            command = (*python, _RUNNER, KEY, _REPORT, seconds, ACCEPTANCE, *_words(manner))
        ran = bench.run(command, bind=bind, env=ENVIRONMENT)
    tests = (syntax.tests(path, locked[path].decode("utf-8", "replace")) for path in locked if is_test_file(path))
    return _step(bench, ran, command, [] if manner.only else [test for names in tests for test in names])


def _step(bench: Bench, ran: Ran, command: tuple[str, ...], declared: list[str]) -> StepRecord:
    manner, key = bench.manner, bench.laid[KEY]
    if not manner.seed:
        return step_of_tests(ran, read_report(bench.work.read(_REPORT, _REPORT_LIMIT), key, declared, first=manner.first), command)
    reports = (bench.work.read(f"{_REPORT}.1", _REPORT_LIMIT), bench.work.read(f"{_REPORT}.2", _REPORT_LIMIT))
    ends = bench.work.read(_ENDS, _ENDS_LIMIT)
    return step_of_both(ran, reports, ends, key, command, declared, seed=manner.seed, surroundings=_CHANGES)


def _words(manner: Manner) -> list[str]:
    """`manner` as arguments of the runner."""
    only = [f"only={_ASKED}"] if manner.only else []
    return only + [word for word, meant in (("first", manner.first), ("traced", manner.traced)) if meant]
