"""How tests are to be run: once as they are declared, or twice under different circumstances; all of them, or some."""

from __future__ import annotations

from dataclasses import dataclass

from nightmill.run.trees import Tree, tree_hash

SURROUNDINGS = {"TZ": "<+14>-14", "LANG": "C", "LC_ALL": "C"}
"""The environment of a second run, where it differs from the first: fourteen hours east of Greenwich, and no language. The zone is written
as a rule, since a sandbox may have no table of zones. A pack adds what its language knows, such as another order of hashes."""


@dataclass(frozen=True)
class Manner:
    """What a pack is asked for. What it cannot do it leaves out; what it did stands in the step's record."""

    seed: int = 0
    """Not 0: a second run follows in the same workspace, in SURROUNDINGS, its tests in an order that this number makes."""
    only: tuple[str, ...] = ()
    """Ids of the tests to run; empty for all."""
    first: bool = False
    """Whether to end at the first test that does not pass."""
    traced: bool = False
    """Whether to note which functions of the tree each test calls, in `TestOutcome.touched`."""


PLAIN = Manner()


def twice(acceptance: Tree) -> Manner:
    """The manner in which tests are judged as a whole. The same tests are always shuffled in the same way: a verdict can be repeated."""
    return Manner(seed=int(tree_hash(acceptance)[:8], 16) or 1)
