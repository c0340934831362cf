"""baseline: what the old program's own build and tests say, so that a failure that was there before is never charged to anybody."""

from __future__ import annotations

import json

from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage


@stage(needs=["source/"], makes="baseline.json", config=["gates.wall_s", "gates.memory_mb"])
def baseline(ctx: Ctx) -> None:
    """Build the old program and run its own tests, in the sandbox."""
    source = ctx.source()
    tests = {path: data for path, data in source.items() if ctx.pack.tests_in(path, data.decode("utf-8", "replace"))}
    record = ctx.gate({path: data for path, data in source.items() if path not in tests}, tests or None)
    failed = sorted(t.id for t in record.tests if t.outcome not in ("passed", "xfailed", "skipped"))
    told = {
        "verdict": record.verdict,
        "reason": record.reason,
        "passed": sorted(record.passed),
        "failed": failed,
        "protections": record.protections,
    }
    ctx.write(json.dumps(told, indent=1, ensure_ascii=False))
    if failed:
        ctx.note(f"{len(failed)} of the old program's own tests fail: {', '.join(failed[:5])}")
