"""Which acceptance tests may decide: by row of the matrix, and the test files freed from what proved nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel, ValidationError

from nightmill.gate.languages.base import LanguagePack
from nightmill.gate.proof import Proof, row


def functions(ids: Iterable[str]) -> set[str]:
    """Test ids without their parameters."""
    return {id.partition("[")[0] for id in ids}


def deciding(proof: Proof) -> set[str]:
    """Test functions that may decide: proved in at least one case, broken or disputed in none."""
    return functions(proof.proven) - functions((*proof.broken, *proof.disputed))


def proven_rows(proof: Proof) -> set[str]:
    """Ids of the rows that a deciding test belongs to."""
    return {row(test) for test in deciding(proof)}


def only_proven(pack: LanguagePack, files: Mapping[str, str], proof: Proof) -> dict[str, str]:
    """The files (path as in the test ids → text) without the test functions that may not decide; a file left without a test is dropped."""
    good = deciding(proof)
    kept = {}
    for path, text in files.items():
        tests = set(pack.tests_in(path, text))
        if tests & good:
            kept[path] = pack.without(text, {test.partition("::")[2] for test in tests - good})
    return kept


def reason(proof: Proof, row_id: str) -> str:
    """Why no test decides a row, in one line for the person and the model."""
    kinds = {
        "broken": proof.broken,
        "it disagrees with the old program": proof.disputed,
        "it passes although nothing is implemented": proof.vacuous,
    }
    for kind, tests in kinds.items():
        for test in tests:
            if row(test) == row_id:
                return f"{kind}: {proof.reasons.get(test, test)}"
    return "it has no test"


class Told(BaseModel):
    """The part of proof.json that a gate is held to."""

    proven: dict[str, tuple[str, ...]] = {}
    """Row → ids of the tests that decide it."""
    own: tuple[str, ...] = ()
    """Ids of the person's own tests that were collected on the stubs."""
    files: dict[str, str] = {}
    """Path from the tree's root → hash, of everything in the folder of the tests."""

    @property
    def expected(self) -> frozenset[str]:
        """Every test that must judge the whole."""
        return frozenset(test for proved in self.proven.values() for test in proved) | frozenset(self.own)


def told_by(text: str) -> Told:
    """What proof.json says. A text of another shape proves nothing: it names no test and no file."""
    try:
        return Told.model_validate_json(text)
    except ValidationError:
        return Told()


def proof_json(proof: Proof, rows: Sequence[str], unproven: Mapping[str, str], locked: Mapping[str, object]) -> str:
    """What proof.json holds: row → the tests that decide it, `unproven` row → why it has none, how far V1 was asked; and what
    `locked` says of the files."""
    good = deciding(proof)
    record = {
        "collected": proof.collected,
        "v1_ran": proof.v1_ran,
        "v1_reason": proof.v1_reason,
        "agree_with_v1": len(proof.agrees),
        "not_compared_with_v1": len(proof.proven) - len(proof.agrees),
        "proven": {
            id: [test for test in proof.proven if row(test) == id and functions([test]) <= good] for id in rows if id not in unproven
        },
        "unproven": dict(unproven),
        "flaky": {test: proof.reasons[test] for test in proof.flaky},
        **locked,
    }
    return json.dumps(record, indent=2, ensure_ascii=False)
