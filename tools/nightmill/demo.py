"""`nightmill demo`: the bundled example in a fresh run directory."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

from nightmill.errors import machine_trouble
from nightmill.scaffold import Answering, command, new_run

EXAMPLE = Path(__file__).parent / "example"


def prepare(base: Path, answering: Answering | None) -> Path:
    """Lays out the demo in `base/runs/demo` (or demo-2, …); scripted replies when nobody else answers. Returns the run directory."""
    root = next(path for n in itertools.count(1) if not (path := base / "runs" / ("demo" if n == 1 else f"demo-{n}")).exists())
    with machine_trouble():
        shutil.copytree(EXAMPLE / "v1", root / "v1", ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        if answering is None:
            shutil.copytree(EXAMPLE / "replies", root / "replies")
    mission = (EXAMPLE / "mission.md").read_text(encoding="utf-8")
    new_run(root, "v1", answering or Answering(model="scripted", replies="replies"), mission=mission)
    return root


def opening(root: Path, scripted: bool) -> str:
    if not scripted:
        return f"The demo runs in {root}."
    return (
        f"The demo runs in {root}. Its model is SCRIPTED: the replies are files written by hand (replies/), no model is asked.\n"
        "Everything else is real: stages, edits, sandbox, tests. For a real model: nightmill demo --provider URL --model ID"
    )


def closing(root: Path, code: int, *, scripted: bool) -> str:
    """Where the results are, and what to try next."""
    doit, nightmill = command("doit"), command("nightmill")
    if code:
        see = f"{root}/deviations.md and " if (root / "deviations.md").exists() else ""
        return f"The run ended with exit {code}. See {see}`{nightmill} status` in {root}; `{doit}` there goes on."
    reword = "reword a clause in contract.md" + (" (the scripted model cannot answer for a new one)" if scripted else "")
    return "\n".join(
        [
            "",
            f"  cd {root}",
            "  v2/             the new version        gate.md         what the tests proved",
            "  contract.md     what was promised      deviations.md   what reviewers noticed",
            "  report.html     the whole run as a page",
            "",
            "Try next, in that directory:",
            f"  {doit}",
            "      nothing to do: every stage is up to date",
            f"  {reword}, then {nightmill} why",
            "      which stages are stale, and because of what",
            f"  {doit}",
            "      makes those again and keeps your edit",
        ]
    )
