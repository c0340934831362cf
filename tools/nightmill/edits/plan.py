"""A whole reply against a project's files: everything is parsed, located and checked before anything may be written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from nightmill.edits.files import Files, exists
from nightmill.edits.items import Failure, Item, Refused
from nightmill.edits.parse import parse
from nightmill.edits.paths import fold
from nightmill.edits.target import Rules, Target


@dataclass
class Plan:
    """New bytes for each changed path, None where it is deleted; to be carried out only when nothing failed."""

    changes: dict[str, bytes | None] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


def plan(files: Files, reply: str, finish: str, rules: Rules) -> Plan:
    """Reads files, writes nothing, never raises on account of the reply."""
    try:
        _demand_finished(reply, finish)
    except Refused as refused:
        return Plan(failures=[Failure.of(refused)])
    parsed = parse(reply, lambda text: exists(files, text))
    made = Plan(failures=list(parsed.failures))
    by_path: dict[str, list[Item]] = defaultdict(list)
    for item in parsed.items:
        by_path[item.path].append(item)
    created: dict[str, int] = {}
    for path, items in by_path.items():
        target = Target(files, rules, path, items)
        target.run()
        made.failures += target.failures
        if target.missing and target.result is not None:
            created[path] = items[0].number
        if not target.failures and (target.missing or target.result != files.read(path)):
            made.changes[path] = target.result
    made.failures += _clashes(created)
    made.failures.sort(key=lambda failure: failure.number)
    if not made.changes and not made.failures:
        made.failures.append(Failure.of(_nothing(bool(parsed.items))))
    return made


def _demand_finished(reply: str, finish: str) -> None:
    if finish != "stop":
        raise Refused("truncated", f"the reply was cut off ({finish}): send fewer or smaller blocks.")
    if any("\ud800" <= c <= "\udfff" for c in reply):
        raise Refused("truncated", "the reply is damaged: it holds characters that are no text.")


def _clashes(created: Mapping[str, int]) -> list[Failure]:
    """Files to be created that could not stand side by side: equal but for case, or one in place of the other's folder."""
    failures = []
    folded: dict[str, str] = {}
    for path, number in created.items():
        twin = folded.setdefault(fold(path), path)
        if twin != path:
            failures.append(Failure("path", number, path, (f"`{path}` and `{twin}` differ only in case.",)))
    for path, number in created.items():
        parent = path
        while parent := parent.rpartition("/")[0]:
            if (file := folded.get(fold(parent))) is not None:
                failures.append(Failure("path", number, path, (f"`{file}` is created as a file in the same reply.",)))
    return failures


def _nothing(has_items: bool) -> Refused:
    if has_items:
        return Refused("no edit", "every part leaves its file as it is.")
    return Refused(
        "no edit",
        (
            "the reply holds no edit. Write each one like this, the path alone on its line and directly above:",
            "src/name.py",
            "<<<<<<< SEARCH",
            "the lines as they are",
            "=======",
            "the lines as they shall be",
            ">>>>>>> REPLACE",
        ),
    )
