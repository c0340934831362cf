"""What one command may use, and what came of it: the values every kind of sandbox shares."""

from __future__ import annotations

from dataclasses import dataclass

from nightmill.gate.records import Killed


@dataclass(frozen=True)
class Limits:
    """Bounds of one command together with everything it starts."""

    wall_s: float = 120.0
    memory_mb: int = 2048
    """Of one process (data segment) and, watched, of the whole tree. In-memory file systems come on top, at most `disk_mb` each."""
    output_kb: int = 1024
    """Kept of stdout and stderr together; four times as much ends the command."""
    disk_mb: int = 512
    """Of the work directory (watched), and of each of /tmp and the home directory (enforced)."""
    file_mb: int = 256
    """Of any single file."""
    processes: int = 256
    """Threads count as processes, as they do for the kernel."""


@dataclass(frozen=True)
class Ran:
    """A finished command. Exactly one of `exit` and `signal` is set, and when `killed` names a limit it is `signal`."""

    exit: int | None
    signal: int | None
    """Inside bubblewrap an exit status of 129…192 means signal 1…64, as in a shell."""
    killed: Killed | None
    output: bytes
    """stdout and stderr as they came; when `truncated`, their first and last part with a line between them that counts what is missing."""
    seconds: float
    truncated: bool


def never() -> bool:
    """The `stopping` of a run that nobody stops."""
    return False
