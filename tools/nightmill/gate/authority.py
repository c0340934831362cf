"""The locked tests are those that were proved, and all of them judge: what they ask is counted, and what is missing turns the gate red."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from nightmill.gate.records import Diagnostic, GateRecord, StepRecord, TestOutcome
from nightmill.gate.verdict import decide
from nightmill.run.trees import Tree, sha

STEP = "locked tests"
"""Name of the step that compares the tests that judged with those that were proved."""


@dataclass(frozen=True)
class Asked:
    """What one test asks, as its text has it."""

    assertions: int = 0
    """Assertions that can fail: of a condition that is no constant, of an exception, of a test framework."""
    skips: int = 0
    xfails: int = 0
    timeouts: tuple[float, ...] = ()
    """Seconds, ascending."""


Census = dict[str, Asked]
"""Test id without parameters → what it asks. A test file's own path stands for what lies outside of its tests."""


@runtime_checkable
class Counting(Protocol):
    """A language pack that can tell what a test file asks."""

    def census(self, path: str, text: str) -> Census: ...


def census(pack: object, tests: Tree) -> Census:
    """Of all files of a tree (paths from the tree's root); empty for a pack that cannot count."""
    if not isinstance(pack, Counting):
        return {}
    return {id: asked for path in sorted(tests) for id, asked in pack.census(path, tests[path].decode("utf-8", "replace")).items()}


def weakened(before: Census, now: Census) -> dict[str, str]:
    """Test id → in what it asks less than `before`, one line. A test that is gone asks nothing; new ones weaken nothing."""
    found = {}
    for id, old in before.items():
        new = now.get(id)
        if new is None:
            if "::" in id:
                found[id] = "is gone"
        elif less := _less(old, new):
            found[id] = less
    return found


def _less(old: Asked, new: Asked) -> str:
    parts = [f"{old.assertions} → {new.assertions} assertions"] if new.assertions < old.assertions else []
    parts += [f"{old.skips} → {new.skips} skips"] if new.skips > old.skips else []
    parts += [f"{old.xfails} → {new.xfails} xfails"] if new.xfails > old.xfails else []
    if len(new.timeouts) < len(old.timeouts) or any(n > o for o, n in zip(old.timeouts, new.timeouts, strict=False)):
        parts.append(f"timeouts {_seconds(old.timeouts)} → {_seconds(new.timeouts)}")
    return ", ".join(parts)


def _seconds(values: tuple[float, ...]) -> str:
    return " and ".join(f"{value:g} s" for value in values) or "none"


def counted(what: Census) -> dict[str, int]:
    """The whole in figures: tests, assertions, skips, xfails."""
    return {
        "tests": sum("::" in id for id in what),
        "assertions": sum(a.assertions for a in what.values()),
        "skips": sum(a.skips for a in what.values()),
        "xfails": sum(a.xfails for a in what.values()),
    }


_SETTINGS = re.compile(rb"^\[\s*(?:tool:pytest|pytest|tool\.pytest[\w.\"]*)\s*\]", re.M)
_SETTINGS_FILES = (".cfg", ".toml", ".ini")


def steering(forbidden: Callable[[str], str | None], tree: Tree) -> dict[str, str]:
    """Path → how a file of the tree would steer a test run that, other than ours, reads it."""
    found = {path: why for path in sorted(tree) if (why := forbidden(path))}
    settings = (path for path in sorted(tree) if path.endswith(_SETTINGS_FILES) and _SETTINGS.search(tree[path]))
    return {path: f"{path} holds settings of the test runner" for path in settings} | found


def held_to(record: GateRecord, tests: Tree, proved: Mapping[str, str], expected: Collection[str], asked: Census, who: str) -> GateRecord:
    """`record` with a step that says whether `tests`, which judged, are the `proved` ones (path → hash) and every `expected` test ran.

    `who` changed them, should they differ. Both kinds of paths are from the tree's root.
    """
    now = {path: sha(data) for path, data in tests.items()}
    changed = sorted(path for path in {*now, *proved} if now.get(path) != proved.get(path))
    diagnostics = tuple(Diagnostic(file=path, line=0, message=f"is not the file that was proved: {who}") for path in changed)
    lost = _lost(record, expected)
    figures = counted(asked)
    whole = ", ".join(f"{n} {name}" for name, n in figures.items())
    detail = f"{len(changed)} files are not as they were proved" if changed else f"{len(lost)} of {len(expected)} proved tests did not run"
    bad = bool(changed or lost)
    status = "failed" if bad else "passed"
    step = StepRecord.model_validate(
        {"name": STEP, "status": status, "detail": detail if bad else whole, "diagnostics": diagnostics, "tests": lost}
    )
    return _with(record, step)


def all_ran(record: GateRecord, expected: Collection[str]) -> GateRecord:
    """`record`, red when an `expected` test did not judge: code must not choose how many tests it is put to."""
    lost = _lost(record, expected)
    detail = f"{len(lost)} of {len(expected)} proved tests did not run"
    return _with(record, StepRecord(name=STEP, status="failed", detail=detail, tests=lost)) if lost else record


def _lost(record: GateRecord, expected: Collection[str]) -> tuple[TestOutcome, ...]:
    ran = {test.id for test in record.tests}
    complete = any(step.name == "test" and step.status in ("passed", "failed") for step in record.steps)
    message = "was proved on the stubs, and was not there to judge this tree"
    return tuple(TestOutcome(id=id, outcome="error", message=message) for id in sorted(expected) if complete and id not in ran)


def _with(record: GateRecord, step: StepRecord) -> GateRecord:
    steps = (*record.steps, step)
    verdict, reason = decide(steps)
    return record.model_copy(update={"steps": steps, "verdict": verdict, "reason": reason})
