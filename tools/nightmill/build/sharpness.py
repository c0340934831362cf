"""What mutants.json leaves unproven: faults in the final code that no test notices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightmill.clauses import Unproven

MUTANTS = "mutants"
"""The stage that makes mutants.json."""


def unnoticed(told: Mapping[str, Any] | None) -> list[Unproven]:
    """A line per survivor, and one for what kept mutants from being tried. `told`: what the file holds, or None when there is none."""
    if told is None:
        return []
    out = []
    if why := told.get("trouble"):
        out.append(Unproven(what="sharpness of the tests", why=f"no mutant was tried: {why}"))
    for one in told.get("survivors") or ():
        clauses = f" ({', '.join(one['clauses'])})" if one["clauses"] else ""
        seen = "no test notices" if one["callers"] else "no test was seen to call it, and none notices"
        change = f"`{one['before']}` becomes `{one['after']}` in line {one['line']}"
        out.append(Unproven(what=f"{one['file']}: {one['function']}{clauses}", why=f"{seen} when {change}"))
    return out
