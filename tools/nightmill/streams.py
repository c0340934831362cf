"""Standard streams that cannot fail a run: closed ones become /dev/null, unprintable characters are escaped."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper


def steady() -> None:
    """Call it before any file is opened: a file of the run must not get the number of a closed standard stream."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor, not a path
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """After the reader of a pipe has left: what is still to be flushed goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
