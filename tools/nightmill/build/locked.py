"""Whether the locked tests still ask what they asked when the stage `tests` wrote them. Paths are from the tree's root."""

from __future__ import annotations

from nightmill.gate.authority import Census, census, weakened
from nightmill.gate.languages.base import LanguagePack, under_acceptance
from nightmill.run.trees import Tree, sha

BY_HAND = "a person's edit"
"""No stage but `tests` writes into the folder of the locked tests, and no implementer may: who else changes them is a person."""
WRITER = "tests"


def edited(written: Tree, tests: Tree) -> tuple[str, ...]:
    """Files that are not as the stage wrote them: changed, added or deleted by a person."""
    before, now = under_acceptance(written), under_acceptance(tests)
    return tuple(sorted(path for path in {*before, *now} if before.get(path) != now.get(path)))


def softened(pack: LanguagePack, written: Tree, tests: Tree) -> dict[str, str]:
    """Test id → in what it asks less than when the stage wrote it."""
    return weakened(asked_by(pack, written), asked_by(pack, tests))


def asked_by(pack: LanguagePack, tests: Tree) -> Census:
    """What the test files among the locked files ask."""
    return census(pack, {path: data for path, data in under_acceptance(tests).items() if pack.is_test_file(path)})


def locks(tests: Tree) -> dict[str, str]:
    """Path → hash, of everything beside the tests too: a conftest.py decides with them."""
    return {path: sha(data) for path, data in under_acceptance(tests).items()}
