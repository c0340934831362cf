"""Runs inside the sandbox: the compiled locked tests, each in a process of its own, and a report that only this file can write.

    python -I -S run.py KEY REPORT SECONDS ONLY STOP FILE=PROGRAM …

KEY      file with the key of this run, removed before any tested code is started
REPORT   file to create; a line is `HMAC JSON`, the HMAC running over all JSON texts so far, as in the Python runner's report
SECONDS  after which the process of one test is killed; it then fails like any other
ONLY     JSON list of the ids to run, `[]` for all
STOP     `first` to end at the first test that does not pass, else `all`
FILE     a test file's path, and the program that Cargo made of it

Which tests there are, and which are ignored, the program says itself (`--list`) before any test runs. A test has passed when its process
said, over a pipe, with a word that it was told at its start, that the test came to its end in the way that it must (see
`_rust_suites._MODULE`), and libtest's own summary and exit status agree. A program that ends itself, or prints a summary, does neither.

Not guaranteed: the tested code shares the process of its test. Code that searches that process's memory can learn the word; so can code
that takes the place of a function of libc, which is why a tree that names such a thing is refused (`_rust_cargo.linkage`). A test that
returns a Result ends in the same way whether it is an error or not, so that there the summary alone decides. None of this can be done by
accident, nor from outside of the process.

Standard library only.
"""

from __future__ import annotations

import ctypes
import hmac
import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_DUMPABLE = 4
_KEPT = 64_000
"""Bytes of what one test printed."""
_TRACE = 4000
_SUMMARY = re.compile(rb"^test result: ok\. 1 passed; 0 failed; 0 ignored; 0 measured; \d+ filtered out", re.M)
_LISTED = re.compile(r"^(.+): test$")
_OVERFLOWED = b"has overflowed its stack"


class Report:
    """The report file: an open descriptor and the running HMAC."""

    def __init__(self, path: str, key: bytes) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._mac = hmac.new(key, digestmod="sha256")

    def write(self, event: str, **facts: object) -> None:
        text = json.dumps({"event": event, **facts}).encode()
        self._mac.update(text + b"\n")
        line = self._mac.hexdigest().encode() + b" " + text + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]


class Ended:
    """A process that is gone: how, what it printed, what it told over the pipe."""

    def __init__(self, code: int | None, output: bytes, told: bytes) -> None:
        self.code, self.output, self.told = code, output, told


def run(argv: list[str], seconds: float, words: tuple[str, ...] = ()) -> Ended:
    """`code` None: killed after `seconds`. `words` go to its standard input behind the place where it is to tell."""
    out, out_inside = os.pipe()
    told, told_inside = os.pipe()
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=out_inside, stderr=out_inside, pass_fds=(told_inside,), start_new_session=True
    )
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(" ".join((f"/proc/self/fd/{told_inside}", *words)).encode())
    with suppress(OSError):
        process.stdin.close()
    os.close(out_inside)
    os.close(told_inside)
    seen = {out: b"", told: b""}
    code = _wait(process, seen, seconds)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for fd in (out, told):
        os.set_blocking(fd, False)
        with suppress(BlockingIOError):
            for _ in range(64):  # what escaped from the session may print for ever
                if not (data := os.read(fd, 1 << 16)):
                    break
                seen[fd] = _kept(seen[fd] + data)
        os.close(fd)
    return Ended(code, seen[out], seen[told])


def _wait(process: subprocess.Popen[bytes], seen: dict[int, bytes], seconds: float) -> int | None:
    """Reads until the process has ended; one of its children may hold the pipes open."""
    until, waiting = time.monotonic() + seconds, list(seen)
    while time.monotonic() < until:
        ready, _, _ = select.select(waiting, [], [], 0.02 if waiting else 0)
        for fd in ready:
            data = os.read(fd, 1 << 16)
            seen[fd] = _kept(seen[fd] + data)
            if not data:
                waiting.remove(fd)
        if not ready or not waiting:
            code = process.poll()
            if code is not None:
                return code
            if not waiting:
                time.sleep(0.001)
    return process.poll()


def _kept(data: bytes) -> bytes:
    return data if len(data) <= _KEPT else data[: _KEPT // 2] + data[-_KEPT // 2 :]


def listed(program: str, seconds: float, *more: str) -> list[str] | None:
    """The names of a program's tests; None when it does not say."""
    ended = run([program, "--list", "--format", "terse", *more], seconds)
    if ended.code != 0:
        return None
    return [found[1] for line in ended.output.decode("utf-8", "replace").splitlines() if (found := _LISTED.match(line))]


def tried(program: str, name: str, seconds: float) -> dict[str, object]:
    """Outcome and facts of one test, run alone."""
    panic_word, end_word = secrets.token_hex(16), secrets.token_hex(16)
    ended = run([program, "--exact", name, "--test-threads=1", "--nocapture"], seconds, (panic_word, end_word))
    trace = ended.output.decode("utf-8", "replace")[-_TRACE:]
    panics = [line.split()[1:] for line in ended.told.decode("utf-8", "replace").splitlines() if line.startswith(panic_word + " panic ")]
    said = _panic(panics) | {"traceback": trace}
    last = next((line.split()[1:] for line in ended.told.decode("utf-8", "replace").splitlines() if line.startswith(end_word + " ")), None)
    if ended.code is None:
        return {**said, "outcome": "failed", "exception": "TimedOut", "message": f"still running after {seconds:g} s"}
    if ended.code < 0 or last is None:
        return {**said, **_gone(ended)}
    expects, panicked = last[0] == "1", last[2] == "1"
    as_asked = bytes.fromhex(last[1][1:]).decode("utf-8", "replace") in str(said.get("message", "")) if panicked else True
    if ended.code == 0 and expects == panicked and as_asked and _SUMMARY.search(ended.output):
        return {"outcome": "passed"}
    if ended.code == 101 and not panicked:
        what = "did not panic as expected" if expects else _returned(trace)
        return {"traceback": trace, "outcome": "failed", "exception": "Failed", "message": what}
    if ended.code == 101:
        return {**said, "outcome": "failed", "exception": "Panic"}
    return {
        **said,
        "outcome": "error",
        "exception": "Ended",
        "message": f"the process ended with exit {ended.code}, not as a test ends",
    }


def _panic(panics: list[list[str]]) -> dict[str, object]:
    """The last panic of the test's own thread, else of any: place and message."""
    own = [p for p in panics if len(p) == 6 and p[1] == "1"] or [p for p in panics if len(p) == 6]
    if not own:
        return {}
    _, _, line, column, file, text = own[-1]
    try:
        place, message = (bytes.fromhex(part[1:]).decode("utf-8", "replace") for part in (file, text))
        return {"message": message[:2000], "file": place, "line": int(line), "column": int(column)}
    except ValueError:
        return {}


def _gone(ended: Ended) -> dict[str, object]:
    assert ended.code is not None
    if ended.code < 0:
        overflowed = _OVERFLOWED in ended.output
        with suppress(ValueError):
            by = signal.Signals(-ended.code).name
            what = "its stack overflowed" if overflowed else f"the process was ended by {by}"
            return {"outcome": "error", "exception": "StackOverflow" if overflowed else "Ended", "message": what}
        return {"outcome": "error", "exception": "Ended", "message": f"the process was ended by signal {-ended.code}"}
    return {"outcome": "error", "exception": "Ended", "message": f"the process ended with exit {ended.code} before its test did"}


def _returned(trace: str) -> str:
    """What a test that returns a Result gave back."""
    found = re.findall(r"^Error: (.*)$", trace, re.M)
    return f"returned the error {found[-1]}" if found else "failed without a panic"


def main(key_file: str, report_file: str, limit: str, only: str, stop: str, *programs: str) -> int:
    key = Path(key_file).read_bytes()
    Path(key_file).unlink()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # no tested process can look into this one
    report, seconds, chosen = Report(report_file, key), float(limit), set(json.loads(only))
    report.write("started")
    bad, every = False, []
    for path, program in (pair.split("=", 1) for pair in programs):
        names, skipped = listed(program, seconds), listed(program, seconds, "--ignored")
        if names is None or skipped is None:
            bad = True
            report.write("broken", id=path, outcome="error", exception="Ended", message="the program does not list its tests")
            continue
        every += [(f"{path}::{n}", program, n, n in skipped) for n in names if not chosen or f"{path}::{n}" in chosen]
    report.write("collected", ids=[id for id, *_ in every])
    for id, program, name, ignored in every:
        report.write("start", id=id)
        facts = {"outcome": "skipped", "message": "#[ignore]"} if ignored else tried(program, name, seconds)
        bad = bad or facts["outcome"] != "passed"
        report.write("result", id=id, **facts)
        if bad and stop == "first":
            break
    exit = 1 if bad else 0 if every else 5
    report.write("finished", exit=exit)
    return exit


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
