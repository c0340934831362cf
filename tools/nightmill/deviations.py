"""`deviations.md`: what reviewers and checks noticed and nobody fixed, and what is left unproven."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nightmill.clauses import Unproven, natural
from nightmill.lines import one_line
from nightmill.run.events import Finding

LIMIT = 1500
"""Characters of one finding; a model that repeats itself does not fill the page."""
UNPROVEN_HEADING = "## Not proven"
_HEAD = """# Deviations

What reviewers and checks noticed and nobody fixed. None of it stopped the run; read it before you use the result.
"""


def render_deviations(findings: Iterable[Finding], unproven: Iterable[Unproven] = ()) -> str:
    """Markdown. Sources in the order of their names, findings by place, then text; the same remark of one source appears once."""
    grouped: dict[str, set[tuple[str, str, str]]] = {}
    for f in findings:
        grouped.setdefault(_cell(f.source) or "unknown", set()).add((_cell(f.where), _cell(f.verdict), _cell(f.text)))
    parts = [_HEAD]
    if not grouped:
        parts.append("None.\n")
    for source in sorted(grouped):
        bullets = [_bullet(*finding) for finding in sorted(grouped[source], key=_order)]
        parts.append(f"## {source}\n\n" + "\n".join(bullets) + "\n")
    left = list(dict.fromkeys(f"- **{_cell(u.what)}**: {_cell(u.why)}" for u in unproven))
    parts.append(f"{UNPROVEN_HEADING}\n\n" + ("\n".join(left) if left else "None.") + "\n")
    return "\n".join(parts)


def _order(finding: tuple[str, str, str]) -> tuple[bool, list[tuple[int, int, str]], str, str]:
    """Findings without a place come last."""
    where, verdict, text = finding
    return not where, natural(where), text, verdict


def _bullet(where: str, verdict: str, text: str) -> str:
    head = " ".join(part for part in (f"**{where}**" if where else "", f"({verdict})" if verdict else "") if part)
    return f"- {head}: {text}" if head else f"- {text}"


def _cell(text: str) -> str:
    """One line that shows as it was written: a model's `<!--` must not hide what follows it."""
    return re.sub(r"`[^`]+`|<(?=[A-Za-z/!?])", lambda m: m[0] if m[0].startswith("`") else r"\<", one_line(text, LIMIT))
