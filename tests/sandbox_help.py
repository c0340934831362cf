"""What the sandbox tests share: the real sandbox of this machine, hostile programs as text, and a look at the processes left behind."""

from __future__ import annotations

import functools
import sys
import textwrap
import time
from pathlib import Path

from nightmill.gate.sandbox import Limits, Ran, Sandbox, find

SMALL = Limits(wall_s=10, memory_mb=256, output_kb=256, disk_mb=64, file_mb=32, processes=64)


@functools.cache
def sandbox() -> Sandbox:
    return find(python=Path(sys.executable))


def program(text: str, limits: Limits = SMALL, box: Sandbox | None = None) -> Ran:
    """Run a Python program in a fresh work directory."""
    box = box or sandbox()
    with box.workdir({"program.py": textwrap.dedent(text).encode()}) as work:
        return box.run([box.python(Path(sys.executable)), "program.py"], work, limits=limits)


def prints(text: str, limits: Limits = SMALL) -> list[str]:
    """The lines a program prints; it must end by itself, without an error."""
    ran = program(text, limits)
    assert (ran.exit, ran.killed) == (0, None), ran
    return ran.output.decode().splitlines()


def processes_with(token: str) -> list[str]:
    """Command lines on this machine that contain `token`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if token in line:
            found.append(line)
    return found


def gone_within(seconds: float, token: str) -> list[str]:
    """What is left of the processes that carry `token`, as soon as nothing is or the time is over."""
    until = time.monotonic() + seconds
    while (left := processes_with(token)) and time.monotonic() < until:
        time.sleep(0.02)
    return left
