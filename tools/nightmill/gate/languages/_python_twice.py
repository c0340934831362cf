"""Reads what `_run_twice.py` left: how each of the two runs ended, although the sandbox saw only one command."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import replace

from nightmill.gate.languages._python_report import read_report, step_of_tests
from nightmill.gate.languages._run_twice import derived
from nightmill.gate.limits import Ran
from nightmill.gate.records import StepRecord
from nightmill.gate.twice import ended, merged


def step_of_both(
    ran: Ran,
    reports: tuple[bytes | None, bytes | None],
    ends: bytes | None,
    key: bytes,
    command: tuple[str, ...],
    declared: Sequence[str],
    *,
    seed: int,
    surroundings: tuple[str, ...],
) -> StepRecord:
    """The test step of two runs. Without a first one that came to its end there is nothing to compare, and it stands alone.

    Where nothing says how the first one ended, although nothing ended the whole, tested code has meddled: then no test counts.
    """
    codes = _codes(ends or b"", key)
    first = step_of_tests(_ran(ran, codes.get(1)), read_report(reports[0], derived(key, 1), declared), command)
    if 1 not in codes and first.status == "passed":
        return first.model_copy(update={"status": "incomplete", "detail": "nothing says how the first of two runs ended"})
    if not ended(first):
        return first
    second = step_of_tests(_ran(ran, codes.get(2)), read_report(reports[1], derived(key, 2), declared), command)
    return merged(first, second.model_copy(update={"seed": seed, "surroundings": surroundings, "command": ()}))


def _codes(data: bytes, key: bytes) -> dict[int, int]:
    """Number of the run → how subprocess tells its end. A line that is not ours is no line."""
    found = {}
    for line in data.split(b"\n")[:2]:
        tag, _, text = line.partition(b" ")
        if hmac.compare_digest(tag, hmac.new(key, text, "sha256").hexdigest().encode()):
            number, _, code = text.partition(b" ")
            found[int(number)] = int(code)
    return found


def _ran(ran: Ran, code: int | None) -> Ran:
    """One of two runs as a command of its own; one that did not end is what the whole is."""
    if code is None:
        return ran
    return replace(ran, exit=code if code >= 0 else None, signal=-code if code < 0 else None, killed=None)
