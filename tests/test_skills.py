"""Personas and prompt templates: complete, short, without overlap, and true to the reply classes they lead to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nightmill.build.milestones import Plan
from nightmill.calls.replies import ReplyFormat, Review, WholeFiles
from nightmill.errors import BadReply
from nightmill.gate.languages import pack
from nightmill.paths import load_dodo

load_dodo()  # registers `stages`

from stages.analysis import Analysis  # noqa: E402
from stages.contract import Contract  # noqa: E402
from stages.schema import Schema  # noqa: E402
from stages.test_matrix import Matrix  # noqa: E402
from stages.tests import AcceptanceTests  # noqa: E402

ROOT = Path(__file__).parent.parent
SKILLS = sorted((ROOT / "skills").glob("*.md"))
NAMES = {path.stem for path in SKILLS}
REVIEWERS = {
    "contract_reviewer",
    "security_reviewer",
    "maintenance_reviewer",
    "production_readiness_reviewer",
    "formal_methods_reviewer",
    "ip_counsel",
}
REPLIES: dict[str, type[ReplyFormat]] = dict.fromkeys(REVIEWERS, Review) | {
    "mission_architect": Contract,
    "test_engineer": Matrix,
    "inductive_reasoner": Analysis,
    "schema_architect": Schema,
    "milestone_planner": Plan,
    "target_implementer": WholeFiles,
    "merge_agent": WholeFiles,
}
FACTS: dict[str, Any] = {"pack": pack("python"), "source": (), "rows": ("T1", "T3"), "clauses": ("C1", "C2", "C4")}


def header(text: str) -> dict[str, str]:
    match = re.match(r"---\n(.*?)\n---\n", text, re.S)
    assert match, "no front matter"
    return dict(line.split(": ", 1) for line in match[1].split("\n"))


def example(text: str) -> str:
    _, found, after = text.partition("\nExample\n")
    assert found, "no example"
    return after


def test_there_are_thirteen_agents():
    assert set(REPLIES) == NAMES
    assert len(NAMES) == 13


@pytest.mark.parametrize("path", SKILLS, ids=lambda path: path.stem)
def test_a_persona_names_itself_what_it_decides_and_its_verdict_words(path):
    text = path.read_text()
    head = header(text)
    assert head["name"] == path.stem
    assert head["decides"]
    assert head.get("verdicts") == ("APPROVED, REJECTED" if path.stem in REVIEWERS else None)
    assert set(head) <= {"name", "decides", "verdicts"}


@pytest.mark.parametrize("path", SKILLS, ids=lambda path: path.stem)
def test_a_persona_says_what_is_not_its_own_and_whose_it_is(path):
    text = path.read_text()
    part = re.search(r"You do not (?:review|decide)\n(.*?)\n\n", text, re.S)
    assert part
    named = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", part[1]))
    assert named <= NAMES - {path.stem}
    assert named or path.stem == "contract_reviewer"


def test_the_reviewers_of_code_all_exclude_each_other():
    readers = REVIEWERS - {"contract_reviewer"}
    for name in readers:
        part = (ROOT / "skills" / f"{name}.md").read_text().partition("You do not review")[2].partition("Your verdict")[0]
        assert all(other in part for other in readers - {name}), name


def test_no_two_personas_decide_the_same():
    claims = [
        line
        for path in SKILLS
        for line in path.read_text().partition("You decide")[2].partition("You do not")[0].split("\n")
        if line.startswith("- ")
    ]
    assert len(claims) == len(set(claims)) > 30


@pytest.mark.parametrize("path", SKILLS, ids=lambda path: path.stem)
def test_a_persona_is_short_enough_for_a_small_model(path):
    assert len(path.read_text().split()) <= 320


@pytest.mark.parametrize("path", SKILLS, ids=lambda path: path.stem)
def test_the_example_of_a_persona_parses_with_the_reply_class_it_leads_to(path):
    reply = REPLIES[path.stem].parse(example(path.read_text()), FACTS)
    if isinstance(reply, Review):
        assert reply.verdict == "REJECTED"
        assert all(finding.where for finding in reply.findings) and len(reply.findings) >= 2


@pytest.mark.parametrize(
    "reply", [Review, Contract, Matrix, Analysis, WholeFiles, Schema, AcceptanceTests], ids=lambda reply: reply.__name__
)
def test_the_example_in_a_format_parses_but_is_refused_as_a_copy(reply):
    class Other(reply):
        FORMAT = ""

    text = reply.FORMAT.partition("\n\n")[2] if issubclass(reply, WholeFiles) else reply.FORMAT.partition("Example")[2]
    facts = FACTS | {"clauses": ("C1", "C2")}
    assert Other.parse(text, facts)
    with pytest.raises(BadReply):
        reply.parse(text, facts)


def test_the_example_in_the_format_of_plans_parses():
    assert [m.name for m in Plan.parse(Plan.FORMAT.partition("Example:")[2], {}).milestones] == ["tariff", "ticket"]


# -- templates --------------------------------------------------------------------------------------

ORDER = ["rules", "source", "contract", "mission", "matrix", "analysis", "schema", "tests", "code", "role", "task", "format", "feedback"]
ARTIFACTS = ORDER[1:9]
MILESTONE = {
    "name": "money",
    "files": ("shop/money.py", "shop/cli.py"),
    "task": "Implement net.",
    "whole": False,
    "yours": (),
    "foreign": (),
}
BUILD: dict[str, Any] = {"milestone": MILESTONE, "rules": ("rule-one",)}
NO_STATE: dict[str, Any] = {"diagnostics": [], "failures": [], "more": [], "unwritten": [], "remarks": [], "refusal": ""}
STATE: dict[str, Any] = {
    "diagnostics": ["shop/money.py:3: bad indent"],
    "failures": [{"id": "acceptance/test_a.py::test_t1_x", "message": "assert 1 == 2", "traceback": "E   assert 1 == 2"}],
    "more": ["acceptance/test_a.py::test_t2_y"],
    "unwritten": ["shop/cli.py: main"],
    "remarks": ["shop/money.py:3: name it"],
    "refusal": "block 1: not found",
}
TASKS: dict[str, list[dict[str, Any]]] = {
    "contract": [{"api": "- `def net()`", "findings": []}, {"api": "- `def net()`", "findings": ["C1: vague"]}],
    "contract_review": [{}],
    "test_matrix": [{"only": ""}, {"only": "C7"}],
    "analysis": [{}],
    "schema": [{"rules": ("rule-one",)}],
    "tests": [
        {"rules": ("rule-one",), "again": (), "path": ""},
        {"rules": (), "again": ("T3: it is vacuous",), "path": "acceptance/test_again.py"},
    ],
    "plan": [{"stubs": {"shop/money.py": ("net", "gross")}}],
    "implement": [BUILD | NO_STATE, BUILD | STATE],
    "patch": [BUILD | NO_STATE, BUILD | STATE],
    "merge": [{"path": "a.py", "versions": [{"name": "m", "task": "t", "text": "x = 1"}], "problems": ["f twice"]}],
    "milestone_review": [{"milestone": MILESTONE}],
    "final_review": [{}],
}
CASES = [pytest.param(name, task, id=f"{name}{number}") for name, tasks in TASKS.items() for number, task in enumerate(tasks)]


def render(name: str, task: dict[str, Any], **variables: str) -> dict[str, str]:
    """Section → text, in the order rendered."""
    environment = Environment(loader=FileSystemLoader(ROOT / "templates"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals["section"] = lambda section: f"\x1e{section}\x1e"
    everything = dict.fromkeys(ARTIFACTS, "") | {"skill": "PERSONA", "format": "FORMAT", "feedback": ""} | variables | task
    parts = environment.get_template(f"{name}.md.j2").render(everything).split("\x1e")
    assert not parts[0].strip(), "text before the first section"
    return {section: body.strip() for section, body in zip(parts[1::2], parts[2::2], strict=True)}


def test_every_asking_template_is_tried_here():
    prompts = {path.name.removesuffix(".md.j2") for path in (ROOT / "templates").glob("[!_]*.md.j2")}
    assert set(TASKS) <= prompts


@pytest.mark.parametrize(("name", "task"), CASES)
def test_a_prompt_has_all_sections_in_the_fixed_order(name, task):
    sections = render(name, task, **{artifact: f"<{artifact}>" for artifact in ARTIFACTS}, feedback="<feedback>")
    assert list(sections) == ORDER
    assert all(f"<{artifact}>" in sections[artifact] for artifact in (*ARTIFACTS, "feedback"))
    assert "PERSONA" in sections["role"] and sections["format"].endswith("FORMAT")


@pytest.mark.parametrize(("name", "task"), CASES)
def test_a_section_without_content_is_empty(name, task):
    sections = render(name, task)
    assert not any(sections[name] for name in (*ARTIFACTS, "feedback"))
    assert len(sections["task"]) > 200


def test_all_prompts_share_rules_and_artifacts_to_the_letter():
    prefixes = set()
    for name, tasks in TASKS.items():
        sections = render(name, tasks[0], mission="M", source="S", contract="C")
        prefixes.add(tuple(sections[part] for part in ORDER[: ORDER.index("role")]))
    assert len(prefixes) == 1


@pytest.mark.parametrize("name", ["implement", "patch"])
def test_what_the_last_attempt_left_stands_in_the_next_prompt(name):
    task = render(name, BUILD | STATE)["task"]
    for fact in (
        "shop/money.py:3: bad indent",
        "test_t1_x",
        "assert 1 == 2",
        "test_t2_y",
        "shop/cli.py: main",
        "name it",
        "not found",
        "rule-one",
        "Implement net.",
    ):
        assert fact in task


def test_a_first_attempt_speaks_of_no_failure():
    task = render("implement", BUILD | NO_STATE)["task"]
    assert "Failing" not in task and "Errors" not in task


def test_a_draft_that_was_rejected_is_asked_for_again_with_the_reasons():
    first, again = (render("contract", task)["task"] for task in TASKS["contract"])
    assert "reviewer" not in first and "- C1: vague" in again


def test_in_a_shared_file_each_milestone_is_told_which_stubs_are_its_own() -> None:
    mine = MILESTONE | {"yours": ("net in shop/money.py",), "foreign": ("tax in shop/money.py",)}
    for template in ("implement", "patch", "milestone_review"):
        task = BUILD | {"milestone": mine, "refusal": "", "diagnostics": [], "failures": [], "more": [], "unwritten": [], "remarks": []}
        text = render(template, task)["task"]
        assert "tax in shop/money.py" in text
        assert template == "milestone_review" or "net in shop/money.py" in text
