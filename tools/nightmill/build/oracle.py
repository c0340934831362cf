"""V1 is an oracle: what a call gives is seen by making it in the sandbox, never believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from nightmill.gate.languages.base import under_acceptance
from nightmill.gate.proof import row
from nightmill.gate.quality import QualityGate
from nightmill.run.trees import Tree


@dataclass(frozen=True)
class Seen:
    """`results`: call → the result it gave twice in a row. `ran`: whether any call reached the program; `why` says what else happened."""

    results: dict[str, str]
    ran: bool
    why: str = ""


def observe(gate: QualityGate, tree: Tree, calls: Sequence[str], beside: Tree | None = None) -> Seen:
    """Makes each call on `tree`, twice: in order, and in reverse order, so that a call that another one influences is noticed.

    A call whose result differs, holds today's date, is no plain value, or never came is not in the results. `beside`: the other files of
    the program, which it may read.
    """
    calls = tuple(dict.fromkeys(calls))
    if not calls:
        return Seen({}, ran=True)
    ids = {f"T{number}": call for number, call in enumerate(calls, 1)}
    orders = (ids, dict(reversed(ids.items())))
    steps = [gate.test({**(beside or {}), **tree}, under_acceptance(gate.pack.probe(order, tree))) for order in orders]
    told = [{row(t.id): t.message for t in step.tests if t.outcome == "failed" and t.exception == "AssertionError"} for step in steps]
    results, today = {}, date.today().isoformat()
    for id, call in ids.items():
        first, second = (gate.pack.seen(messages.get(id, "")) for messages in told)
        if first is not None and first == second and today not in first:
            results[call] = first
    ran = any(told)
    broken = next((f"{t.exception}: {t.message}" for t in steps[0].tests if t.exception not in ("", "AssertionError")), steps[0].detail)
    return Seen(results, ran, "" if ran else " ".join(broken.split())[:200])
