"""The plan of the build: its grammar, its problems, its waves.

    ## MILESTONE: name
    RISK: EASY | HARD
    DEPENDS_ON: none | a, b        (line absent: the milestone before it; `none`: an explicit claim of independence)
    FILES: a.py, b.py
    TASK: text…

`Plan.read` takes any text a person may have left in plan.md and never fails: what is wrong with a plan is data (`problems`), and a plan
whose dependencies cannot be followed is built one milestone at a time. `Plan.parse` is for a model's reply and refuses what a build cannot
start from.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, ClassVar, Literal, Self

from nightmill.calls import plain
from nightmill.calls.replies import ReplyFormat
from nightmill.errors import BadReply

SLUG = 40
"""Longest milestone name in characters: it becomes a directory and a part of a task's name."""
_FIELDS = {"RISK": r"RISK", "DEPENDS_ON": r"DEPENDS?[ _-]ON|DEPENDENC(?:Y|IES)", "FILES": r"FILES?", "TASK": r"TASKS?"}
_MILESTONE = r"MILESTONE(?:\s+#?\d+)?"


@dataclass(frozen=True)
class Milestone:
    name: str
    """Unique in its plan, safe as a file name: lower-case ASCII letters, digits, `-` and `_`."""
    title: str
    """The name as the plan writes it."""
    risk: Literal["EASY", "HARD"]
    """HARD unless the plan says EASY."""
    depends_on: tuple[str, ...] | None
    """Names as slugs, whether or not they exist; None: the plan has no such line."""
    files: tuple[str, ...]
    """Relative posix paths inside the tree; a path that is none is left out and reported."""
    task: str
    slice: str
    """This milestone's own part of the plan in canonical form: what its build answers to."""


@dataclass(frozen=True)
class Plan(ReplyFormat):
    """Milestones in plan order. facts["stub_files"]: files with stubs, each of which some milestone must list."""

    milestones: tuple[Milestone, ...]
    faults: tuple[str, ...] = ()
    """What `read` noticed while reading: repeated names, unusable paths, missing fields."""

    FORMAT: ClassVar[str] = """\
Write one block of these five lines for each milestone, in build order:

## MILESTONE: short-name
RISK: EASY
DEPENDS_ON: none
FILES: path/of/a/file.py
TASK: what to implement in these files, in one to five sentences

RISK is EASY or HARD. DEPENDS_ON is `none`, or the names of milestones whose code must exist first, separated by commas.
FILES are paths from the schema, separated by commas. Every file that has stubs stands in exactly one milestone.

Example:

## MILESTONE: tariff
RISK: EASY
DEPENDS_ON: none
FILES: parking/tariff.py
TASK: Implement rate_for and surcharge. Clauses C1 to C3 give the rounding.

## MILESTONE: ticket
RISK: EASY
DEPENDS_ON: tariff
FILES: parking/ticket.py, parking/render.py
TASK: Implement Ticket.close with the rates of tariff, then render_ticket.
"""

    @classmethod
    def read(cls, text: str) -> Self:
        """The plan in any text; no milestone at all is an empty plan."""
        blocks = list(_blocks(text))
        names = _unique([slug(title) for title, _ in blocks])
        faults: list[str] = []
        if not blocks:
            faults.append("the plan has no milestone: write `## MILESTONE: name`")
        milestones = tuple(_milestone(name, title, fields, faults) for name, (title, fields) in zip(names, blocks, strict=True))
        repeated = [name for name, times in Counter(slug(title) for title, _ in blocks).items() if times > 1]
        faults += [f"{name}: two milestones have this name; the later ones are built as {name}-2 and so on" for name in repeated]
        return cls(milestones, tuple(faults))

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        plan = cls.read(text)
        stubs = tuple(facts.get("stub_files", ()))
        faults = list(plan.faults)
        if plan.milestones:
            planned = {file for milestone in plan.milestones for file in milestone.files}
            faults += [f"{file} has stubs but is in no FILES line" for file in stubs if file not in planned]
        if faults:
            raise BadReply("Write the plan again and mend this: " + "; ".join(faults) + ".")
        return plan

    @property
    def text(self) -> str:
        """The plan in canonical form; `read` of it gives an equal plan when there are no faults."""
        return "\n".join(milestone.slice for milestone in self.milestones)


def slug(title: str) -> str:
    """A name that is safe as a directory and in a task's name, at most SLUG characters; a title without ASCII letters gets a hash."""
    plain_text = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9_]+", "-", plain_text)[:SLUG].strip("-")
    return name if re.search(r"[a-z0-9]", name) else "m-" + hashlib.sha256(title.encode(errors="replace")).hexdigest()[:8]


def _unique(names: Iterable[str]) -> list[str]:
    taken: set[str] = set()
    result = []
    for name in names:
        candidate, number = name, 1
        while candidate in taken:
            number += 1
            candidate = f"{name[: SLUG - 1 - len(str(number))]}-{number}"
        taken.add(candidate)
        result.append(candidate)
    return result


def _blocks(text: str) -> Iterable[tuple[str, dict[str, list[str]]]]:
    """(title, field → its lines) of each milestone. A field counts once: a second `Files:` line inside TASK is part of the task."""
    title, fields, current = "", dict[str, list[str]](), ""
    for line in plain.lines(text):
        if (label := plain.labelled(line, _MILESTONE)) and label[1]:
            if title:
                yield title, fields
            title, fields, current = label[1], {}, ""
        elif title:
            field = next((key for key, label in _FIELDS.items() if not _says(fields.get(key, [])) and plain.labelled(line, label)), "")
            if field:
                found = plain.labelled(line, _FIELDS[field])
                fields[field], current = [found[1] if found else ""], field
            elif current:
                fields[current].append(line)
    if title:
        yield title, fields


def _says(lines: Iterable[str]) -> bool:
    return any(character.isalnum() for line in lines for character in line)


def _milestone(name: str, title: str, fields: Mapping[str, list[str]], faults: list[str]) -> Milestone:
    files, bad = _files(fields.get("FILES", []))
    task = _text(fields.get("TASK", []))
    faults += [f"{name}: `{path}` in FILES is not one path inside the project (commas go between paths)" for path in bad]
    if not files:
        faults.append(f"{name}: no FILES line names the files to write")
    if not task:
        faults.append(f"{name}: no TASK line says what to do")
    risk: Literal["EASY", "HARD"] = "EASY" if _first(fields.get("RISK", [])).upper().startswith("EASY") else "HARD"
    depends_on = _depends(fields.get("DEPENDS_ON", []))
    lines = [f"## MILESTONE: {title}", f"RISK: {risk}"]
    if depends_on is not None:
        lines.append(f"DEPENDS_ON: {', '.join(depends_on) or 'none'}")
    lines += [f"FILES: {', '.join(files) or 'none'}", f"TASK: {task}", ""]
    return Milestone(name, title, risk, depends_on, files, task, "\n".join(lines))


def _text(lines: list[str]) -> str:
    """Lines as a text whose first line is bare, so that the canonical form is read back equal."""
    first, rest = "", list(lines)
    while rest and not first:
        first = plain.undecorated(rest.pop(0))
    return "\n".join([first, *(line.rstrip() for line in rest)]).rstrip()


def _first(lines: list[str]) -> str:
    return next((plain.undecorated(line) for line in lines if line.strip()), "")


def _names(lines: list[str]) -> list[str]:
    """The comma-separated values of a field. They stand on its own line, or as bullets below it, or go on after a final comma."""
    values: list[str] = []
    more = True
    for line in lines:
        bare = re.sub(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+", "", line).strip()
        if not more and bare == line.strip():
            break
        values += [value for part in re.split(r"[,;，、]", bare.strip("[]")) if _says(value := plain.undecorated(part).strip("\"'"))]
        more = not values or bare.endswith(",")
    return values


def _depends(lines: list[str]) -> tuple[str, ...] | None:
    """None when nothing is written: only the word `none` is a claim of independence."""
    values = _names(lines)
    if not values:
        return None
    return tuple(dict.fromkeys(slug(value) for value in values if not plain.says_nothing(value)))


def _files(lines: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """(usable paths, the others)."""
    good: list[str] = []
    bad: list[str] = []
    for value in _names(lines):
        path = re.sub(r"\s*\([^()]*\)$", "", value).strip("`\"'").replace("\\", "/").removeprefix("./")
        if plain.says_nothing(path):
            continue
        parts = PurePosixPath(path).parts
        safe = not re.search(r"[\x00-\x20\x7f:]", path) and path[0] not in "/~" and ".." not in parts and not path.endswith("/")
        (good if safe and parts else bad).append(PurePosixPath(path).as_posix() if safe else path)
    return tuple(dict.fromkeys(good)), bad


def dependencies(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Name → the milestones that must be built before it, in a plan's own order; only names that exist."""
    names = [milestone.name for milestone in plan.milestones]
    if _unknown(plan) or _cycle(plan):
        return {name: tuple(names[max(0, number - 1) : number]) for number, name in enumerate(names)}
    return _claimed(plan)


def _claimed(plan: Plan) -> dict[str, tuple[str, ...]]:
    names = [milestone.name for milestone in plan.milestones]
    return {
        milestone.name: tuple(names[max(0, number - 1) : number])
        if milestone.depends_on is None
        else tuple(name for name in milestone.depends_on if name in names)
        for number, milestone in enumerate(plan.milestones)
    }


def waves(plan: Plan) -> tuple[tuple[str, ...], ...]:
    """Kahn's layers: the milestones of a wave depend only on earlier waves. Their number is the length of the critical path.

    A plan with an unknown name or a cycle gives one milestone per wave, in plan order.
    """
    return _layers(dependencies(plan))


def _layers(needs: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Layers of everything that no cycle holds back."""
    done: set[str] = set()
    layers: list[tuple[str, ...]] = []
    while layer := tuple(name for name, before in needs.items() if name not in done and done.issuperset(before)):
        layers.append(layer)
        done.update(layer)
    return tuple(layers)


def _unknown(plan: Plan) -> list[str]:
    names = {milestone.name for milestone in plan.milestones}
    return [
        f"{milestone.name}: DEPENDS_ON names {name}, which is no milestone"
        for milestone in plan.milestones
        for name in milestone.depends_on or ()
        if name not in names
    ]


def _cycle(plan: Plan) -> list[str]:
    """One cycle, as its names in order; empty when there is none."""
    needs = _claimed(plan)
    free = {name for layer in _layers(needs) for name in layer}
    name = next((name for name in needs if name not in free), None)
    path: list[str] = []
    while name is not None and name not in path:
        path.append(name)
        name = next(before for before in needs[name] if before not in free)
    return [] if name is None else path[path.index(name) :]


def problems(plan: Plan) -> tuple[str, ...]:
    """What is wrong with the plan, one sentence each, by name: faults of reading, unknown names, a cycle, a file in two milestones."""
    found = [*plan.faults, *_unknown(plan)]
    if cycle := _cycle(plan):
        found.append(f"{' → '.join([*cycle, cycle[0]])}: these milestones wait for each other")
    owners: dict[str, list[str]] = {}
    for milestone in plan.milestones:
        for file in milestone.files:
            owners.setdefault(file, []).append(milestone.name)
    found += [f"{file}: in the FILES of {' and '.join(names)}" for file, names in owners.items() if len(names) > 1]
    if _unknown(plan) or _cycle(plan):
        found.append("the milestones are built one at a time, in plan order")
    return tuple(found)
