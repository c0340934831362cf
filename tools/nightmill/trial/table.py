"""Many results as a table, and two columns of them compared task by task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from nightmill.trial.result import Result

Column = tuple[str, str, int]
"""(model, strategy, tries): what is the same in all results of a column."""


def column(found: Result) -> Column:
    return (found.model, found.strategy, found.tries)


@dataclass(frozen=True)
class Paired:
    """Tasks that both columns have, by who solved them; `p`: exact two-sided sign test on those that one alone solved."""

    both: int
    first: int
    second: int
    neither: int

    @property
    def p(self) -> float:
        n = self.first + self.second
        tail = sum(comb(n, k) for k in range(min(self.first, self.second) + 1))
        return min(1.0, tail / 2.0 ** (n - 1))


def paired(first: Iterable[Result], second: Iterable[Result]) -> Paired:
    one, two = {r.task: r.solved for r in first}, {r.task: r.solved for r in second}
    pairs = [(one[task], two[task]) for task in one.keys() & two.keys()]
    return Paired(pairs.count((True, True)), pairs.count((True, False)), pairs.count((False, True)), pairs.count((False, False)))


def columns(results: Iterable[Result]) -> dict[Column, list[Result]]:
    """By column in the order of the results; of several results for one task the last."""
    found: dict[Column, dict[str, Result]] = {}
    for item in results:
        found.setdefault(column(item), {})[item.task] = item
    return {key: list(by_task.values()) for key, by_task in found.items()}


def false_done(results: Iterable[Result]) -> list[str]:
    """Tasks that were called solved and were not green when the gate was run afresh."""
    return sorted(r.task for r in results if r.solved and r.verified is False)


def lines(found: Mapping[Column, Sequence[Result]]) -> list[str]:
    """The table, and for each two columns their comparison."""
    most = max((tries for _, _, tries in found), default=0)
    head = ["model", "strategy", "tasks", *(f"≤{k}" for k in range(1, most + 1)), "solved", "tokens/solved", "s/task", "false done"]
    rows = [head, *(_row(key, results, most) for key, results in found.items())]
    widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
    shown = [
        "  ".join(cell.ljust(w) if n < 2 else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))) for row in rows
    ]
    keys = list(found)
    for a, key in enumerate(keys):
        for other in keys[a + 1 :]:
            shown += ["", *_compared(_name(key, other), _name(other, key), paired(found[key], found[other]))]
    return shown


def _row(key: Column, results: Sequence[Result], most: int) -> list[str]:
    model, strategy, tries = key
    solved = [r for r in results if r.solved]
    within = [str(sum(r.attempts <= k for r in solved)) if k <= tries else "" for k in range(1, most + 1)]
    share = f"{100 * len(solved) / len(results):.1f} %"
    each = f"{sum(r.tokens for r in results) / len(solved):.0f}" if solved else "-"
    seconds = f"{median(r.seconds for r in results):.1f}"
    return [model, strategy, str(len(results)), *within, share, each, seconds, str(len(false_done(results)))]


def _name(key: Column, other: Column) -> str:
    """What tells a column from the other one."""
    parts = [str(mine) for mine, its in zip(key, other, strict=True) if mine != its]
    return " ".join(parts)


def _compared(first: str, second: str, pairs: Paired) -> list[str]:
    both = f"{first} against {second}, by task: both {pairs.both}, only {first} {pairs.first}, only {second} {pairs.second}"
    return [f"{both}, neither {pairs.neither}; sign test p = {pairs.p:.3f}"]
