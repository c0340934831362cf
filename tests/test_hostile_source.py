"""A source that tells the model what to do, and a model that obeys: nothing changes but what its stage makes. And text that hides."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightmill.graph.execute import execute
from nightmill.paths import load_dodo
from runs import NIGHTMILL, run
from small_runs import opened, small_run

ALWAYS = (".nightmill/", "summary.json", "report.html", "deviations.md")
"""Written at the end of any run."""
MAKES = {
    "schema": ("schema/", "schema.proposed/"),
    "tests": ("acceptance/", "proof.json", "test_matrix.md"),
    "implement:money": ("milestones/money/",),
}
FORBIDDEN = (
    *("../../escape.py", "../escape.py", "tearoom/../../escape.py", "{root}/escape.py", "{root}/../escape.py", "~/nightmill-escape.py"),
    *(".git/hooks/post-commit", "../../.git/hooks/post-commit", ".GIT/config", ".nightmill/events.jsonl", "../.nightmill/lock"),
    *("../run.yaml", "../mission.md", "../replies/plan.1.md", "../contract.md"),
    *("conftest.py", "tearoom/conftest.py", "sitecustomize.py", "evil.pth", "pytest.ini", "../../acceptance/test_money.py"),
    *("acceptance/test_money.py", "acceptance/../../acceptance/test_slip.py", "tearoom/slip.py", "..\\escape.py", "C:\\escape.py"),
)
WITHIN = ("run.yaml", "mission.md", "doit.cfg", "dodo.py")
"""Names of ours that mean a file of the new program there."""


def obedient(root: Path, reply: str, paths: tuple[str, ...]) -> str:
    evil = "import os\n\nESCAPED = True\n"
    return reply + "".join(f"\n{path.format(root=root)}\n```python\n{evil}```\n" for path in paths)


def files(top: Path) -> dict[str, bytes]:
    return {p.relative_to(top).as_posix(): p.read_bytes() for p in sorted(top.rglob("*")) if p.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("stage", MAKES)
def test_an_obedient_model_changes_nothing_but_what_its_stage_makes(finished_run: Path, stage: str) -> None:
    name = stage.replace(":", "-")
    original = (finished_run / "replies" / f"{name}.1.md").read_text()
    for path in (finished_run / "replies").glob(f"{name}.*.md"):
        path.unlink()
    (finished_run / "replies" / f"{name}.md").write_text(obedient(finished_run, original, (*FORBIDDEN, *WITHIN)))
    config = (finished_run / "run.yaml").read_text()
    (finished_run / "run.yaml").write_text(config.replace("max_iterations: 6", "max_iterations: 1"))
    assert run(finished_run, "redo", stage, command=NIGHTMILL).code == 0
    before = files(finished_run.parent)
    done = run(finished_run, stage)
    assert "Traceback" not in done.out + done.err
    after = files(finished_run.parent)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    allowed = tuple(f"{finished_run.name}/{place}" for place in (*ALWAYS, *MAKES[stage]))
    assert [path for path in changed if not path.startswith(allowed)] == []
    assert not (Path.home() / "nightmill-escape.py").exists()
    refused = [e for e in done.events if e.kind in ("edit_refused", "reply_refused")]
    assert refused, "what was refused is told"
    for event in refused:
        if event.kind == "edit_refused":
            assert len(event.reasons) == len(FORBIDDEN), "each of the paths, and nothing else, is a reason"


@pytest.mark.slow
def test_what_an_obedient_model_may_write_lands_in_the_tree_of_its_milestone(finished_run: Path) -> None:
    for number in (1, 2):
        path = finished_run / "replies" / f"implement-money.{number}.md"
        path.write_text(obedient(finished_run, path.read_text(), WITHIN))
    ours = {name: (finished_run / name).read_bytes() for name in ("run.yaml", "mission.md", "doit.cfg")}
    assert run(finished_run, "redo", "implement:money", command=NIGHTMILL).code == 0
    run(finished_run, "implement:money")
    assert {name: (finished_run / name).read_bytes() for name in ours} == ours
    assert not (finished_run / "dodo.py").exists()
    assert (finished_run / "milestones" / "money" / "run.yaml").read_text().startswith("import os")


HIDDEN = {
    "direction": ("access = 'user\u202e \u2066# admin\u2069 \u2066'", "U+202E RIGHT-TO-LEFT OVERRIDE"),
    "zero width": ("pass\u200bword = 1", "U+200B ZERO WIDTH SPACE"),
    "tags": ("x = 1  # \U000e0049\U000e0067", "U+E0049 TAG LATIN CAPITAL LETTER I"),
    "escape": ("x = '\x1b[2K'", "U+001B control character"),
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_characters_that_nobody_sees_are_told_with_their_place(tmp_path: Path, kind: str) -> None:
    line, name = HIDDEN[kind]
    root = small_run(tmp_path / "run", source={"main.py": f"def main():\n    return 1\n\n\n# {line}\n"})
    execute(opened(root), load_dodo().intake)
    (finding,) = [e for e in opened(root).run.events if e.kind == "finding"]
    assert finding.where == "main.py" and f"line 5: {name}" in finding.text


def test_ordinary_foreign_text_is_no_finding(tmp_path: Path) -> None:
    text = "\ufeff# naïve Ελληνικά עברית 日本語 👩\u200d👧 می\u200cخواهم\tx\x0c\r\ndef main():\n    return 1\n"
    root = small_run(tmp_path / "run", source={"main.py": text})
    execute(opened(root), load_dodo().intake)
    assert [e for e in opened(root).run.events if e.kind == "finding"] == []
