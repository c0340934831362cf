"""Prompts from templates: named sections in one fixed order, stable parts first, so that the server's prompt cache is reused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nightmill.paths import skills_dir, templates_dir
from nightmill.providers.base import Message
from nightmill.redact import SHAPES_ONLY, Redactor

ARTIFACTS = ("source", "contract", "mission", "matrix", "analysis", "schema", "tests", "code")
"""Sections that hold artifacts: always defined for a template, "" when a stage does not need them."""

_MARK = "\x1e"
_SECTION = re.compile(f"{_MARK}([a-z_]+){_MARK}\n?")


@dataclass(frozen=True)
class Section:
    name: str
    text: str


@dataclass(frozen=True)
class Skill:
    """A persona: `text` is what the model reads, `verdicts` the words it may end with."""

    name: str
    text: str
    header: Mapping[str, str]

    @property
    def verdicts(self) -> tuple[str, ...]:
        return tuple(w.strip() for w in self.header.get("verdicts", "").split(",") if w.strip())


def render(template: str, variables: Mapping[str, Any], redactor: Redactor = SHAPES_ONLY) -> list[Section]:
    """The non-empty sections of a prompt, secrets redacted, in the order of `_base.md.j2`.

    Raises jinja2's UndefinedError on a name nobody gave: a bug.
    """
    clean = {k: _unmarked(v) for k, v in variables.items()}
    text = _environment().get_template(template).render(dict.fromkeys(ARTIFACTS, "") | clean)
    parts = _SECTION.split(text)
    sections = [Section(name, redactor(body.strip("\n"))) for name, body in zip(parts[1::2], parts[2::2], strict=True)]
    return [s for s in sections if s.text.strip()]


def _unmarked(value: Any) -> Any:
    """Any text inside `value` without the section mark: lists of remarks and failures hold what models and their code wrote."""
    if isinstance(value, str):
        return value.replace(_MARK, "")
    if isinstance(value, Mapping):
        return {_unmarked(k): _unmarked(v) for k, v in value.items()}
    return [_unmarked(v) for v in value] if isinstance(value, list | tuple) else value


def messages(sections: list[Section]) -> tuple[Message, ...]:
    """`rules` as the system message, everything else as one user message."""
    system = "\n\n".join(s.text for s in sections if s.name == "rules")
    user = "\n\n".join(s.text for s in sections if s.name != "rules")
    return (Message("system", system), Message("user", user)) if system else (Message("user", user),)


@cache
def load_skill(name: str) -> Skill:
    """skills/NAME.md: `key: value` lines between `---` lines, then the persona."""
    text = (skills_dir() / f"{name}.md").read_text(encoding="utf-8")
    match = re.match(r"---\n(.*?)\n---\n", text, re.S)
    if not match:
        return Skill(name, text.strip(), {})
    pairs = [line.partition(":") for line in match[1].splitlines() if ":" in line]
    return Skill(name, text[match.end() :].strip(), {k.strip(): v.strip() for k, _, v in pairs})


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(templates_dir()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.globals["section"] = lambda name: f"{_MARK}{name}{_MARK}"
    return environment


def render_text(template: str, variables: Mapping[str, Any]) -> str:
    """A template that is no prompt: the files of a new run."""
    return _environment().get_template(template).render(variables)
