"""Whether the tests would notice: small faults are put into the final code, and the locked tests run on each. It decides nothing."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from nightmill.gate.faults import Mutant, Mutating
from nightmill.gate.manner import Manner
from nightmill.gate.quality import QualityGate
from nightmill.gate.records import StepRecord
from nightmill.run.trees import Tree, sha

if TYPE_CHECKING:
    from nightmill.gate.languages.base import LanguagePack

QUICK_S = 3.0
"""A suite that takes less runs to its end on every mutant, so that each test's part is seen; a longer one ends at the first failure."""
ENOUGH = 5
"""Mutants that a test must have met before it is said of it that it noticed none."""
Test = Callable[[Tree, Tree, Manner], StepRecord]
_AT_ONCE = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Tried:
    """What came of one mutant. `survived`: every test that could see it passed. `uncalled`: no test calls its function."""

    mutant: Mutant
    outcome: Literal["noticed", "survived", "uncalled", "undecided"]
    met: tuple[str, ...] = ()
    """Tests that ran on it to their end."""
    noticed: tuple[str, ...] = ()
    """Of these, the ones that did not pass."""
    why: str = ""


@dataclass(frozen=True)
class Trial:
    possible: int
    """Mutants there could have been."""
    tried: tuple[Tried, ...] = ()
    left: int = 0
    """Chosen, and not tried within the time."""
    callers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`file::function` → tests that call it."""
    trouble: str = ""
    """Why none was tried."""

    @property
    def blunt(self) -> tuple[str, ...]:
        """Tests that met at least ENOUGH mutants in functions they call, and noticed none."""
        met, noticed = defaultdict[str, int](int), {test for one in self.tried for test in one.noticed}
        for one in self.tried:
            for test in one.met:
                met[test] += test in self.callers.get(one.mutant.owner, ())
        return tuple(sorted(test for test, n in met.items() if n >= ENOUGH and test not in noticed))


def candidates(pack: LanguagePack, tree: Tree, old: Tree) -> list[Mutant]:
    """Every mutant of the functions that are new or not as the old tree has them."""
    if not isinstance(pack, Mutating):
        return []
    found: list[Mutant] = []
    for path in sorted(tree):
        if path.endswith(tuple(pack.suffixes)) and not pack.is_test_file(path):
            text, before = tree[path].decode("utf-8", "replace"), old.get(path, b"").decode("utf-8", "replace")
            changed: dict[str, bool] = {}
            for mutant in pack.mutants(path, text):
                name = mutant.function
                if name not in changed:
                    changed[name] = not before or pack.function(path, text, name) != pack.function(path, before, name)
                found += [mutant] if changed[name] else []
    return found


def chosen(every: Iterable[Mutant], count: int) -> list[Mutant]:
    """`count` of them, one per function in turn; which ones depends on the code alone."""
    by_function: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in every:
        by_function[mutant.owner].append(mutant)
    for mutants in by_function.values():
        mutants.sort(key=lambda m: sha(m.data))
    functions = sorted(by_function, key=sha)
    picked: list[Mutant] = []
    for turn in range(max(map(len, by_function.values()), default=0)):
        picked += [by_function[name][turn] for name in functions if turn < len(by_function[name])]
    return sorted(picked[:count], key=lambda m: (m.file, m.line, m.after))


def tried(
    gate: QualityGate,
    tree: Tree,
    acceptance: Tree,
    old: Tree,
    count: int,
    wall_s: float,
    check: Callable[[], None],
    tester: Callable[[QualityGate], Test] = lambda gate: gate.test,
) -> Trial:
    """Runs the tests on at most `count` mutants, and starts none after `wall_s` seconds. `check` raises when it is time to stop.

    `tree` must pass them. A run that meets the limit of time counts as noticed: a mutant may well never end. `tester` stands for the
    gate's own `test` where runs are remembered.
    """
    every = candidates(gate.pack, tree, old)
    if not isinstance(gate.pack, Mutating):
        return Trial(0, trouble=f"the {gate.pack.name} pack makes no mutants")
    picked = chosen(every, count)
    if not picked:
        return Trial(len(every), trouble="gates.mutants is 0" if every else "no function was changed that a fault could be put into")
    traced = tester(gate)(tree, acceptance, Manner(traced=True))
    if traced.status != "passed":
        return Trial(len(every), trouble=f"the tests do not pass on the unchanged code while their calls are watched: {_line(traced)}")
    callers: dict[str, list[str]] = defaultdict(list)
    for test in traced.tests:
        for name in test.touched:
            callers[name].append(test.id)
    blind = tuple(t.id for t in traced.tests if not any(name.split("/")[0] != "acceptance" for name in t.touched))
    limits = replace(gate.limits, wall_s=min(gate.limits.wall_s, max(10.0, 5 * traced.seconds)))
    run = tester(QualityGate(gate.pack, gate.sandbox, limits, gate.stopping))
    until, first = time.monotonic() + wall_s, traced.seconds > QUICK_S

    def one(mutant: Mutant) -> Tried | None:
        if time.monotonic() > until:
            return None
        check()
        tests = (*callers.get(mutant.owner, ()), *blind)
        if not tests:
            return Tried(mutant, "uncalled")
        only = () if len(tests) == len(traced.tests) else tests
        return _outcome(mutant, run({**tree, mutant.file: mutant.data}, acceptance, Manner(only=only, first=first)))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        done = list(pool.map(one, picked))
    ran = tuple(t for t in done if t)
    return Trial(len(every), ran, len(picked) - len(ran), {name: tuple(tests) for name, tests in callers.items()})


def _outcome(mutant: Mutant, step: StepRecord) -> Tried:
    met = tuple(t.id for t in step.tests if "::" in t.id)
    bad = tuple(t.id for t in step.tests if t.outcome != "passed" and "::" in t.id)
    if step.status == "passed":
        return Tried(mutant, "survived", met)
    if step.status == "failed":
        return Tried(mutant, "noticed", met, bad, "" if bad else _line(step))
    return Tried(mutant, "undecided", why=_line(step))


def _line(step: StepRecord) -> str:
    return step.detail.split("\n", 1)[0][:200]


def clauses_of(tests: Sequence[str], row: Callable[[str], str], clause: Mapping[str, str]) -> tuple[str, ...]:
    """The clauses that tests speak for: test → row → clause."""
    return tuple(dict.fromkeys(clause[r] for r in map(row, tests) if r in clause))
