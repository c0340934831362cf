"""Runs inside the sandbox: pytest over the locked tests, and a report of what each test did that only this file should be able to write.

    python -P -s run_tests.py KEY REPORT SECONDS FOLDER [seed=N] [only=FILE] [first] [traced]

KEY      file with the key of this run, removed before any tested code is imported
REPORT   file to create; a line is `HMAC JSON`, the HMAC running over all JSON texts so far: no line can be added, changed or dropped
         without the key. Events in order: started, collected, then per test start and result; start also for each file
         before its import, broken for one that does not collect;
         at last finished, with pytest's exit status. Without that line the run counts for nothing.
SECONDS  after which one test, or the import of one file, is interrupted; it then fails like any other
FOLDER   the tests, relative to the working directory, which is the root of the tested tree
seed     runs the files in an order that depends on N and their names alone, and the tests of each from the last to the first: of any two
         tests in one file, where order matters most, each comes before the other once
only     runs those whose ids stand in FILE, a JSON list
first    ends at the first test that does not pass
traced   adds to each result which functions of the tree the test called, in this process

pytest and all it needs are imported first; only then does the tree become importable, behind the standard library and before site-packages:
a `json.py`, `pytest.py` or `conftest.py` in the tree replaces nothing. No configuration, plugin or cache is read from the tree.

Not guaranteed: the tested code shares this process. Code that searches the interpreter's memory for this plugin, or replaces pytest's
functions or its own tests' assertions at run time, can lie. It cannot do so by accident, nor from outside of the process.

Standard library and pytest only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

import pytest

MESSAGE_LIMIT = 2000
TRACEBACK_LIMIT = 4000

OPTIONS = (
    *("-q", "--no-header", "--no-summary", "--tb=short", "--show-capture=no", "--color=no", "-c", "/dev/null"),
    *("--import-mode=importlib", "--continue-on-collection-errors"),
    *(f"-pno:{plugin}" for plugin in ("cacheprovider", "doctest", "pastebin", "junitxml")),
)


class TimedOut(BaseException):
    """One test took too long. Not an Exception, so that a broad handler in the tested code does not swallow it."""


class Report:
    """The report file: an open descriptor and the running HMAC. A forked child of a test has neither right."""

    def __init__(self, path: str, key: bytes) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._mac = hmac.new(key, digestmod="sha256")
        self._pid = os.getpid()

    def write(self, event: str, **facts: object) -> None:
        if os.getpid() != self._pid:
            return
        text = json.dumps({"event": event, **facts}).encode()
        self._mac.update(text + b"\n")
        line = self._mac.hexdigest().encode() + b" " + text + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]


class Plugin:
    """Turns pytest's hooks into report lines."""

    def __init__(self, report: Report, root: str, folder: str, seconds: float, manner: dict[str, str]) -> None:
        self._report, self._root, self._folder, self._seconds = report, os.path.realpath(root) + os.sep, folder, seconds
        self._seed = manner.get("seed", "")
        self._only = frozenset(json.loads(Path(manner["only"]).read_bytes())) if "only" in manner else None
        self._touched: set[str] | None = set() if "traced" in manner else None
        self._seen: dict[str, dict[str, object]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_load_initial_conftests(self) -> Generator[None, Any, Any]:
        """A conftest of the tests that cannot be imported is named like any other broken file."""
        name = f"{self._folder}/conftest.py"
        self._report.write("start", id=name)
        try:
            with self._alarm():
                return (yield)
        except BaseException as error:
            cause = getattr(error, "cause", error)  # pytest wraps it in its own, private exception
            self._report.write("broken", id=name, outcome="error", **self._raised(cause, cause.__traceback__))
            raise pytest.UsageError(f"{name} cannot be imported") from error

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """An import that leaves (`sys.exit`) or never ends breaks its own file only."""
        self._report.write("start", id=collector.nodeid)
        sys.modules.pop(collector.nodeid.removesuffix(".py").replace("/", "."), None)  # tested code may have put its own there
        try:
            with self._alarm():
                report = yield
        except (SystemExit, KeyboardInterrupt) as leaving:
            error: BaseException | None = leaving
            report = pytest.CollectReport(collector.nodeid, "failed", f"{type(leaving).__name__} while importing this file", [])
        else:
            call = getattr(report, "call", None)
            error = call.excinfo.value if call is not None and call.excinfo else None
            while isinstance(error, pytest.Collector.CollectError) and error.__cause__ is not None:
                error = error.__cause__
        if report.outcome != "passed":
            outcome = "skipped" if report.outcome == "skipped" else "error"
            facts = self._raised(error, error.__traceback__) if error else {}
            self._report.write("broken", id=report.nodeid, outcome=outcome, **facts, traceback=_shown(report, error))
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._only is not None:
            items[:] = [item for item in items if item.nodeid in self._only]
        if self._seed:
            items.reverse()
            items.sort(key=lambda item: self._place(item.nodeid.split("::", 1)[0]))

    def _place(self, file: str) -> bytes:
        return hashlib.sha256(f"{self._seed} {file}".encode("utf-8", "replace")).digest()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        for item in items:
            self._report.write("broken", id=item.nodeid, outcome="skipped", message="deselected")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._report.write("collected", ids=[item.nodeid for item in session.items])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._seen.pop(nodeid, None)
        self._report.write("start", id=nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        with self._alarm(), self._tracing():
            yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        with self._alarm(), self._tracing():
            yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        with self._alarm():
            yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keeps the worst phase of each test: a failure stands, a later phase that merely passed changes nothing."""
        report = yield
        outcome = _outcome(report)
        seen = self._seen.get(item.nodeid)
        if seen is None or (outcome != "passed" and seen["outcome"] in ("passed", "xfailed", "xpassed", "skipped")):
            value = call.excinfo.value if call.excinfo else None
            facts = self._raised(value, value.__traceback__) if value else {}
            self._seen[item.nodeid] = {**facts, "outcome": outcome, "traceback": _shown(report, value)}
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        facts = self._seen.get(nodeid, {"outcome": "error", "message": "pytest made no report of it"})
        if self._touched is not None:
            facts = {**facts, "touched": sorted(self._touched)}
            self._touched.clear()
        self._report.write("result", id=nodeid, **facts)

    @contextmanager
    def _alarm(self) -> Iterator[None]:
        def interrupt(number: int, frame: FrameType | None) -> None:
            raise TimedOut(f"still running after {self._seconds:g} s")

        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def _tracing(self) -> Iterator[None]:
        touched = self._touched
        if touched is None:
            yield
            return
        seen: set[int] = set()

        def entered(frame: FrameType, event: str, argument: object) -> None:
            code = frame.f_code
            if event == "call" and id(code) not in seen:
                seen.add(id(code))
                if path := self._inside(code.co_filename):
                    touched.add(f"{path}::{code.co_qualname}")

        threading.setprofile(entered)
        sys.setprofile(entered)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _inside(self, name: str) -> str:
        """A file of the tree, relative to it; "" for others, and for code that comes from no file (`<string>`)."""
        path = os.path.realpath(name)
        return path[len(self._root) :] if path.startswith(self._root) and not name.startswith("<") else ""

    def _raised(self, error: BaseException, trace: TracebackType | None) -> dict[str, object]:
        """What was raised, and the innermost frame inside the tree."""
        file, line, function = "", 0, ""
        while trace is not None:
            code = trace.tb_frame.f_code
            if path := self._inside(code.co_filename):
                file, line, function = path, trace.tb_lineno, code.co_qualname
            trace = trace.tb_next
        if isinstance(error, SyntaxError) and (path := self._inside(error.filename or "")):
            file, line, function = path, error.lineno or 0, ""
        return {"exception": type(error).__name__, "message": _text(error), "file": file, "line": line, "function": function}


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    if report.failed:
        return "failed" if report.when == "call" else "error"
    return report.outcome


def _text(error: BaseException) -> str:
    if isinstance(error, pytest.FixtureLookupError):
        return f"fixture {error.argname!r} not found"
    try:
        return str(error)[:MESSAGE_LIMIT]
    except Exception as broken:  # a hostile or sloppy __str__ is the tested code's affair
        return f"<its text cannot be shown: {type(broken).__name__}>"


def _shown(report: pytest.TestReport | pytest.CollectReport, error: BaseException | None) -> str:
    """The traceback as pytest prints it, cut in the middle; of a syntax error only the line it is in."""
    if report.outcome != "failed":
        return ""
    text = "".join(traceback.format_exception_only(error)) if isinstance(error, SyntaxError) else report.longreprtext
    half = TRACEBACK_LIMIT // 2
    return text if len(text) <= TRACEBACK_LIMIT else f"{text[:half]}\n…\n{text[-half:]}"


def make_importable(root: str) -> None:
    """Puts the tree on sys.path behind the standard library and before site-packages."""
    places = (i for i, entry in enumerate(sys.path) if Path(entry).name in ("site-packages", "dist-packages"))
    sys.path.insert(next(places, len(sys.path)), root)


def main(key_file: str, report_file: str, seconds: str, folder: str, *words: str) -> Any:
    key = Path(key_file).read_bytes()
    Path(key_file).unlink()
    report, root = Report(report_file, key), str(Path.cwd())
    del key
    report.write("started", pytest=pytest.__version__, python=sys.version.split()[0])
    sys.argv = ["pytest"]
    sys.modules["__main__"] = ModuleType("__main__")
    make_importable(root)
    manner = {name: value for name, _, value in (word.partition("=") for word in words)}
    options = [*OPTIONS, *(["-x"] if "first" in manner else []), f"--rootdir={root}", f"--confcutdir={Path(root, folder)}", folder]
    status = int(pytest.main(options, plugins=[Plugin(report, root, folder, float(seconds), manner)]))
    report.write("finished", exit=status)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(status)  # exit handlers and threads of the tested code have no say after the summary


if __name__ == "__main__":
    main(*sys.argv[1:])
