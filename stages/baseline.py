"""baseline: what the old program's own build and tests say, for whoever wants to know what was red before."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from nightmill.gate.languages.base import LanguagePack
from nightmill.graph.context import Ctx
from nightmill.graph.stage import GATES, stage
from nightmill.run.trees import Tree


@stage(needs=["source/"], makes="baseline.json", config=GATES, measured=True)
def baseline(ctx: Ctx) -> None:
    """Build the old program and run its own tests, in the sandbox."""
    source = ctx.source()
    record = ctx.gate(source, own_tests(ctx.pack, source) or None)
    outcomes: dict[str, list[str]] = {"passed": [], "failed": [], "error": [], "skipped": []}
    for test in record.tests:
        outcomes.setdefault(test.outcome, []).append(test.id)
    told = {"built": record.built, "reason": record.reason, "tests": outcomes, "protections": record.protections}
    ctx.write(json.dumps(told, indent=1, ensure_ascii=False))
    if bad := outcomes["failed"] + outcomes["error"]:
        ctx.note(f"{len(bad)} of the old program's own tests are red here: {', '.join(bad[:5])}")
        what = f"{len(bad)} of {len(record.tests)} own tests of the old program were red before anything was changed"
        ctx.finding("baseline", f"{what}, and are not charged to v2: {', '.join(bad[:12])}")
    elif not record.built:
        ctx.finding("baseline", f"the old program does not build here, so its own tests say nothing: {record.reason}")


def own_tests(pack: LanguagePack, source: Tree) -> dict[str, bytes]:
    """The old program's test files, and what stands in their directories; at the top only the tests and their conftest.py."""
    tests = [path for path in source if pack.is_test_file(path) and pack.tests_in(path, source[path].decode("utf-8", "replace"))]
    if not tests:
        return {}
    folders = tuple(f"{parent}/" for path in tests if (parent := PurePosixPath(path).parent.as_posix()) != ".")
    return {path: data for path, data in source.items() if path in tests or path.startswith(folders) or path == "conftest.py"}


def passed_before(text: str) -> list[str]:
    """Ids of the old program's own tests that passed on it, from what baseline.json holds; none when it has another shape."""
    try:
        found = json.loads(text)["tests"]["passed"]
    except (ValueError, KeyError, TypeError):
        return []
    return [id for id in found if isinstance(id, str)] if isinstance(found, list) else []
