"""Runs inside the sandbox: the test runner once, and once more in the same workspace under other circumstances.

    python -P -s run_twice.py RUNNER KEY REPORT ENDS SECONDS FOLDER SEED NAME=VALUE...

RUNNER   the script that runs the tests, see `_pytest_report.py`
KEY      file with the key of both runs, removed before the first; each run gets a key of its own that is made from it
REPORT   where the runs report: REPORT.1 and REPORT.2
ENDS     file to create; for each run that came to an end a line `HMAC NUMBER CODE`, the code as subprocess tells it
SEED     the second run's order; the `NAME=VALUE` are its environment where it differs

What the first run leaves in the workspace and in /tmp is there in the second: a test that passes only once is found. This process outlives
tested code, so it lets nobody read its memory. Standard library only.
"""

from __future__ import annotations

import ctypes
import hmac
import os
import subprocess
import sys
from pathlib import Path

PR_SET_DUMPABLE = 4
"""From <sys/prctl.h>; at 0 no process of the same user may attach to this one or open its /proc/PID/mem."""


def derived(key: bytes, number: int) -> bytes:
    """The key of one run: nothing that tested code can find there says anything about the other's."""
    return hmac.new(key, b"%d" % number, "sha256").hexdigest().encode()


def create(path: str, data: bytes) -> None:
    """A new file; raises OSError when anything is there."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.write(fd, data)
    os.close(fd)


def main(runner: str, key_file: str, report: str, ends_file: str, seconds: str, folder: str, seed: str, *changes: str) -> int:
    key = Path(key_file).read_bytes()
    Path(key_file).unlink()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    ends, code = os.open(ends_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), 0
    changed = {**os.environ, **dict(change.split("=", 1) for change in changes)}
    for number, environment, words in ((1, dict(os.environ), []), (2, changed, [f"seed={seed}"])):
        create(key_file, derived(key, number))
        command = [sys.executable, "-P", "-s", runner, key_file, f"{report}.{number}", seconds, folder, *words]
        code = subprocess.run(command, env=environment, check=False).returncode
        text = b"%d %d" % (number, code)
        os.write(ends, hmac.new(key, text, "sha256").hexdigest().encode() + b" " + text + b"\n")
        if code < 0:  # by a signal: so the whole, as if there were no process in between
            os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
