"""What the project promises of its own structure, kept by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nightmill.graph.pipeline import LAST_WAVE, Pipeline, Rounds, Waves, steps_of
from nightmill.graph.stage import SOURCE
from nightmill.paths import load_dodo

ROOT = Path(__file__).parent.parent
ENGINE = ROOT / "tools" / "nightmill"
HOMES = {
    "doit": ("graph/",),
    "httpx": ("providers/",),
    "ruamel": ("config.py",),
    "jinja2": ("calls/prompts.py", "report.py"),
    "rich": ("console.py",),
    "hatchling": (),
}
TOP = {
    *("dodo.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "uv.lock", "__pycache__"),
    *("stages", "skills", "templates", "runs", "tools", "tests"),
}


def modules() -> list[Path]:
    return [p for p in sorted(ENGINE.rglob("*.py")) if "example" not in p.relative_to(ENGINE).parts]


def code() -> list[Path]:
    return [*modules(), *sorted((ROOT / "stages").glob("*.py")), ROOT / "dodo.py"]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def pipelines() -> dict[str, Pipeline]:
    return dict(load_dodo().PIPELINES)


def test_the_engine_never_imports_stages_or_dodo() -> None:
    wrong = [f"{p.relative_to(ROOT)} imports {m}" for p in modules() for m in imports(p) if m.split(".")[0] in ("stages", "dodo")]
    assert wrong == []


def test_stages_import_only_nightmill_the_standard_library_and_artifact_classes_of_earlier_stages() -> None:
    order = [s.file.stem for s in steps_of(pipelines()["rewrite"])]
    wrong = []
    for path in sorted((ROOT / "stages").glob("*.py")):
        for module in imports(path):
            top, _, name = module.partition(".")
            if top in HOMES:
                wrong.append(f"stages/{path.name} imports {module}")
            if top == "stages" and order.index(name) >= order.index(path.stem):
                wrong.append(f"stages/{path.name} imports the later stage {name}")
    assert wrong == []


@pytest.mark.parametrize("library", sorted(HOMES))
def test_each_library_has_one_home(library: str) -> None:
    wrong = []
    for path in modules():
        home = path.relative_to(ENGINE).as_posix()
        if any(m.split(".")[0] == library for m in imports(path)) and not home.startswith(HOMES[library] or ("-",)):
            wrong.append(home)
    assert wrong == []


@pytest.mark.parametrize("name", sorted(pipelines()))
def test_every_need_is_made_by_an_earlier_stage(name: str) -> None:
    made = {"mission.md"}
    missing = []
    for step in pipelines()[name]:
        parts = (
            [step.draft, step.review, step.then]
            if isinstance(step, Rounds)
            else [step.implement, step.merge]
            if isinstance(step, Waves)
            else [step]
        )
        for stage in parts:
            needs = ["source.lock" if need == SOURCE else need for need in stage.needs]
            missing += [f"{stage.name} needs {need}" for need in needs if need not in made and need != LAST_WAVE]
            made |= set(stage.makes)
    assert missing == []


def test_before_milestones_comes_a_stage_that_plans_them() -> None:
    for pipeline in pipelines().values():
        waves = next((n for n, step in enumerate(pipeline) if isinstance(step, Waves)), 0)
        assert not waves or any(s.plans and "plan.md" in s.makes for s in steps_of(pipeline[:waves]))


def test_every_stage_file_is_in_a_pipeline() -> None:
    used = {s.file.name for p in pipelines().values() for s in steps_of(p)}
    assert {p.name for p in (ROOT / "stages").glob("*.py")} - {"__init__.py"} == used


def test_no_two_stages_make_the_same_file() -> None:
    for pipeline in pipelines().values():
        made = [target for s in steps_of(pipeline) for target in s.makes]
        assert sorted(made) == sorted(set(made))


def test_every_skill_is_used_by_a_stage_and_every_named_skill_exists() -> None:
    used = {skill for p in pipelines().values() for s in steps_of(p) for skill in s.skills}
    assert {p.stem for p in (ROOT / "skills").glob("*.md")} == used


def test_every_template_is_used_by_a_stage_a_template_or_the_scaffold() -> None:
    named = {t for p in pipelines().values() for s in steps_of(p) for t in s.all_templates}
    for path in (ROOT / "templates").iterdir():
        named |= set(re.findall(r"{%-?\s*(?:extends|include|import|from)\s+[\"']([^\"']+)", path.read_text(encoding="utf-8")))
    named |= set(re.findall(r'"(new_[\w.]+\.j2)"', (ENGINE / "scaffold.py").read_text(encoding="utf-8")))
    assert {p.name for p in (ROOT / "templates").iterdir()} == named


def test_every_asking_stage_has_a_skill_a_template_a_role_a_reply_class_and_a_stub_that_parses_or_is_parsed_elsewhere() -> None:
    wrong = []
    for pipeline in pipelines().values():
        for stage in steps_of(pipeline):
            if stage.skill and not (stage.template and stage.role and stage.reply and stage.stub):
                wrong.append(stage.name)
    assert wrong == []


def test_artifacts_are_written_through_one_door() -> None:
    """Outside run/, nothing opens files for writing but the few places named here, none of which writes a stage's artifact."""
    allowed = {"calls/store.py", "demo.py", "gate/sandbox.py", "gate/workdir.py", "build/merge.py", "edits/disk.py", "streams.py"}
    pattern = re.compile(r"\.write_text\(|\.write_bytes\(|\.open\([\"'][wax]|open\([^)]*[\"'][wax]b?[\"']")
    wrong = []
    for path in code():
        where = path.relative_to(ENGINE).as_posix() if ENGINE in path.parents else path.relative_to(ROOT).as_posix()
        if not where.startswith("run/") and where not in allowed and pattern.search(path.read_text(encoding="utf-8")):
            wrong.append(where)
    assert wrong == []


def test_no_file_is_longer_than_400_lines() -> None:
    assert [f"{p.relative_to(ROOT)}: {n}" for p in code() if (n := len(p.read_text(encoding="utf-8").splitlines())) > 400] == []


def test_every_public_module_and_stage_has_a_docstring() -> None:
    bare = [p.relative_to(ROOT).as_posix() for p in code() if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]
    assert [p for p in bare if not p.endswith("__main__.py")] == []
    assert [s.name for p in pipelines().values() for s in steps_of(p) if not s.body.__doc__] == []


def test_the_top_level_holds_what_was_agreed() -> None:
    found = {p.name for p in ROOT.iterdir() if not p.name.startswith(".")}
    assert found - TOP - {"dist", "build"} == set()
