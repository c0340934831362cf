"""What a run tells of its tests: proved, locked, run twice, tried on mutants; a person's own among them, and what a person weakened."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nightmill.build.sharpness import unnoticed
from nightmill.run.trees import hashes
from runs import NIGHTMILL, events_of, run

OWN = "from tearoom.money import half_up\n\n\ndef test_halves_of_mine():\n    assert half_up(25, 10) == 3\n"


def told(root: Path, name: str) -> dict:
    return json.loads((root / name).read_text())


def test_a_finished_run_says_how_often_and_how_its_tests_ran(finished: Path) -> None:
    page = (finished / "gate.md").read_text()
    assert re.search(r"in both runs; shuffled by \d+, TZ=<\+14>-14, LANG=C, LC_ALL=C, PYTHONHASHSEED=4242 was the second", page)
    assert "## locked tests: passed\n\n41 tests, 63 assertions, 0 skips, 0 xfails" in page
    proof = told(finished, "proof.json")
    assert proof["files"] == {f"acceptance/{path}": digest for path, digest in hashes(finished / "acceptance").items()}
    assert proof["edited"] == [] and proof["weakened"] == {} and proof["flaky"] == {}


def test_the_mutants_of_v2_are_counted_and_decide_nothing(finished: Path) -> None:
    found = told(finished, "mutants.json")
    assert re.fullmatch(r"the tests notice \d+ of 3 mutants, of \d+ there could be", found["said"])
    assert len(found["noticed"]) + len(found["survivors"]) + len(found["undecided"]) == 3
    assert found["said"] in [e.text for e in events_of(finished) if e.kind == "note" and e.stage == "mutants"]
    assert len(unnoticed(found)) == len(found["survivors"])


def test_a_survivor_is_reported_with_its_function_and_clauses() -> None:
    one = {"file": "a.py", "function": "f", "line": 3, "before": "a < b", "after": "a <= b", "clauses": ["C2", "C5"], "callers": 4}
    (line,) = unnoticed({"survivors": [one]})
    assert (line.what, line.why) == ("a.py: f (C2, C5)", "no test notices when `a < b` becomes `a <= b` in line 3")
    (line,) = unnoticed({"survivors": [{**one, "clauses": [], "callers": 0}]})
    assert line.what == "a.py: f" and line.why.startswith("no test was seen to call it")
    assert unnoticed(None) == [] and unnoticed({"trouble": "gates.mutants is 0"})[0].why == "no mutant was tried: gates.mutants is 0"


def configured(root: Path, line: str) -> Path:
    path = root / "run.yaml"
    path.write_text(re.sub(r"^tests: .*$", line, path.read_text(), flags=re.M))
    return root


def test_a_persons_own_tests_are_locked_and_proved_beside_the_written_ones(demo_run: Path) -> None:
    (demo_run / "mine").mkdir()
    (demo_run / "mine" / "test_mine.py").write_text(OWN)
    done = run(configured(demo_run, "tests: mine"), "proof")
    assert done.code == 0, done.out + done.err
    assert (demo_run / "acceptance" / "own" / "test_mine.py").read_text() == OWN
    assert told(demo_run, "proof.json")["own"] == ["acceptance/own/test_mine.py::test_halves_of_mine"]
    (demo_run / "mine" / "test_mine.py").write_text(OWN.replace("halves", "thirds"))
    why = run(demo_run, "why", "tests", command=NIGHTMILL).out
    assert "tests: stale" in why and "own tests" in why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def test_mine(:", "SyntaxError"),
        ("import nowhere\ndef test_mine(): pass", "No module named 'nowhere'"),
        ("def check(): pass", "no test that is collected"),
        (None, "holds no file"),
    ],
    ids=["syntax", "import", "nothing collected", "missing"],
)
def test_own_tests_that_can_judge_nothing_stop_the_run_before_anything_is_asked(demo_run: Path, text: str | None, said: str) -> None:
    if text is not None:
        (demo_run / "mine.py").write_text(text)
        (demo_run / "test_mine.py").write_text(text)
    done = run(configured(demo_run, "tests: test_mine.py"), "tests")
    assert done.code in (1, 78) and said in done.out + done.err
    assert not any(label.startswith("tests") for label in done.asked)


@pytest.mark.slow
def test_a_test_that_a_person_weakened_stays_weakened_in_plain_sight(finished_run: Path) -> None:
    path = finished_run / "acceptance" / "test_money.py"
    path.write_text(re.sub(r"\n    assert .*", "\n    assert True", path.read_text(), count=1))
    done = run(finished_run)
    assert "1 → 0 assertions, by a person's edit" in json.dumps(told(finished_run, "proof.json"), ensure_ascii=False)
    assert "asks less than it did" in (finished_run / "deviations.md").read_text()
    assert "was weakened: 1 → 0 assertions, by a person's edit" in (finished_run / "deviations.md").read_text()
    assert done.code == 0, done.err


@pytest.mark.slow
def test_mutants_can_be_switched_off_and_that_is_said(finished_run: Path) -> None:
    path = finished_run / "run.yaml"
    path.write_text(path.read_text().replace("mutants: 3", "mutants: 0"))
    done = run(finished_run)
    assert done.code == 0 and "mutants" in done.made and "verify" not in done.made
    assert "no mutant was tried: gates.mutants is 0" in (finished_run / "deviations.md").read_text()
