"""Every rule of the reply grammar as cases: tests/fixtures/edits/*.txt, each a tree, a reply, and the tree or the refusal it must give."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nightmill.edits import apply_reply, plan_edits

FIXTURES = Path(__file__).parent / "fixtures" / "edits"


@dataclass
class Case:
    name: str
    before: dict[str, bytes] = field(default_factory=dict)
    reply: str = ""
    after: dict[str, bytes | None] = field(default_factory=dict)
    refused: str = ""


def _cases() -> list[Case]:
    """`%% case NAME`, then `%% file PATH`, `%% reply`, and `%% becomes PATH`, `%% gone PATH` or `%% refused REASON`."""
    found: list[Case] = []
    for source in sorted(FIXTURES.glob("*.txt")):
        for chunk in source.read_text(encoding="utf-8").split("%% ")[1:]:
            head, _, body = chunk.partition("\n")
            kind, _, value = head.partition(" ")
            if kind == "case":
                found.append(Case(f"{source.stem}: {value}"))
            elif kind == "file":
                found[-1].before[value] = body.encode()
            elif kind == "reply":
                found[-1].reply = body
            elif kind == "becomes":
                found[-1].after[value] = body.encode()
            elif kind == "gone":
                found[-1].after[value] = None
            elif kind == "refused":
                found[-1].refused = value
            else:
                raise ValueError(f"{source}: unknown section {head!r}")
    return found


CASES = _cases()


def test_there_are_many_cases_and_no_two_have_one_name() -> None:
    names = [case.name for case in CASES]
    assert len(names) >= 120
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_reply_does_exactly_what_its_case_says(case: Case, tmp_path: Path) -> None:
    assert bool(case.refused) != bool(case.after), "a case is refused or applied"
    for path, data in case.before.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    outcome = apply_reply(tmp_path, case.reply)
    disk = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    pure = plan_edits(case.before, case.reply)
    assert pure.tree == disk
    assert (pure.reasons, pure.changed) == (outcome.reasons, outcome.changed)
    if case.refused:
        assert disk == case.before
        assert case.refused in outcome.reasons
        assert outcome.refused.startswith("Nothing was changed.")
        assert len(outcome.refused.split("\n")) <= 60
    else:
        assert outcome.refused == ""
        wanted = {**case.before, **case.after}
        assert disk == {path: data for path, data in wanted.items() if data is not None}
        assert outcome.changed == tuple(sorted(case.after))
