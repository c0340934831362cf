"""What can go wrong, and what each kind means to the person and to cron.

    NightmillError                 one line with the remedy, never a traceback
    ├── UsageError        exit 3   wrong command, unknown stage, malformed file written by the person
    ├── ConfigError       exit 78  run.yaml or the environment cannot work as it stands
    │   └── SandboxMissing         model-written code could not be isolated
    ├── MachineError      exit 78  the disk is full, a directory is read-only, a tool is missing
    ├── RunLocked         exit 75  another process works in this run directory
    ├── Waiting           exit 75  a person (hold, gate) or a server that is still loading
    ├── OutOfBudget       exit 76  a cap of run.yaml is reached; the best result is kept
    ├── NoProvider        exit 77  nobody could answer
    │   └── NoUsableReply          somebody answered, but never with a whole reply (cut off, empty, endless)
    ├── StageFailed       exit 1   the work itself failed; the best result is kept
    │   └── BadReply               a reply broke a rule of its format; its text is that rule
    └── Stopped           exit 130 a signal; everything finished is kept

Anything else that escapes is a bug of ours: traceback, exit 2.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_BUG = 2

EXIT_WORDS = {
    0: "done",
    1: "failed",
    2: "bug",
    3: "usage",
    75: "waiting",
    76: "out of budget",
    77: "no provider",
    78: "configuration",
    130: "stopped",
}
"""Exit code → the word in `summary.json`."""

SEVERITY = (0, 75, 1, 76, 77, 3, 78, 2, 130)
"""When several things happened in one run, the exit code is the last of these that occurred."""


class NightmillError(Exception):
    """An error the person can act on: its text is one line naming cause and remedy."""

    exit_code = 1


class UsageError(NightmillError):
    exit_code = 3


class ConfigError(NightmillError):
    exit_code = 78


class SandboxMissing(ConfigError):
    pass


class MachineError(NightmillError):
    exit_code = 78


class RunLocked(NightmillError):
    exit_code = 75


class Waiting(NightmillError):
    exit_code = 75


class OutOfBudget(NightmillError):
    exit_code = 76


class NoProvider(NightmillError):
    exit_code = 77


class NoUsableReply(NoProvider):
    """Every reply was cut off, empty or endless: nothing that could be judged, so nobody is charged."""


class StageFailed(NightmillError):
    exit_code = 1


class BadReply(StageFailed):
    """A reply broke a rule of its format. The text is the rule, phrased to the model that must try again."""


class Stopped(NightmillError):
    exit_code = 130


def worst(codes: list[int]) -> int:
    """The exit code of a run in which all of `codes` occurred (see SEVERITY)."""
    return max(codes, key=SEVERITY.index, default=0)


_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space and run doit again",
    errno.EDQUOT: "the disk quota is used up: free some space and run doit again",
    errno.EROFS: "the file system is read-only: move the run directory or remount it",
    errno.EACCES: "permission denied: give yourself access to it",
    errno.EPERM: "not permitted: check the owner and mode",
    errno.EFBIG: "a file may not grow so large here: raise ulimit -f",
    errno.EMFILE: "too many open files: raise ulimit -n",
    errno.ENFILE: "too many open files in the whole system: close some programs",
    errno.ENOMEM: "out of memory: close some programs",
    errno.EIO: "the disk reports an I/O error: check it before going on",
}


@contextmanager
def machine_trouble() -> Iterator[None]:
    """Turns an OSError that is the machine's fault (full, read-only, forbidden) into a MachineError with its remedy."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0)
        if remedy is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        raise MachineError(f"{where}{remedy}") from error
