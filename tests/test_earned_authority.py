"""What a run tells of its tests: proved, locked, run twice, tried on mutants; a person's own among them, and what a person weakened."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nightmill.build.sharpness import unnoticed
from nightmill.clauses import clause_table, unproven_gate
from nightmill.gate.records import GateRecord, StepRecord, TestOutcome
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
    assert re.fullmatch(r"the tests notice \d+ of 1 mutants, of \d+ there could be", found["said"])
    assert len(found["noticed"]) + len(found["survivors"]) + len(found["undecided"]) == 1
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


@pytest.mark.slow
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
    path.write_text(path.read_text().replace("mutants: 1", "mutants: 0"))
    done = run(finished_run)
    assert done.code == 0 and "mutants" in done.made and "verify" not in done.made
    assert "no mutant was tried: gates.mutants is 0" in (finished_run / "deviations.md").read_text()


def test_a_flaky_test_leaves_its_clause_unproven_and_is_named() -> None:
    steady = TestOutcome(id="acceptance/test_a.py::test_t1_a", outcome="passed")
    flaky = TestOutcome(id="acceptance/test_a.py::test_t2_b", outcome="failed", flaky="passes in the first run and fails in the second (x)")
    gate = GateRecord(verdict="red", reason="x", steps=(StepRecord(name="test", status="failed", tests=(steady, flaky)),), tree="")
    proof = {"proven": {"T1": [steady.id], "T2": [flaky.id]}}
    first, second = clause_table({"C1": "one", "C2": "two"}, {"T1": "C1", "T2": "C2"}, proof, gate)
    assert first.outcome == "proven"
    assert (second.outcome, second.why, second.rows[0].outcome) == ("not proven", "T2 passes in one run and not in another", "flaky")
    assert f"is flaky: {flaky.flaky}" in [line.why for line in unproven_gate(gate, "")]


RED_BEFORE = "\n\ndef test_was_red_before():\n    assert False\n"
LOST = "\n\ndef test_the_old_way_only():\n    from tearoom import slip\n\n    assert not hasattr(slip, 'SlipError')\n"


@pytest.mark.slow
def test_what_was_red_before_is_told_and_charged_to_nobody(demo_run: Path) -> None:
    own = demo_run / "v1" / "tests" / "test_tearoom.py"
    own.write_text(own.read_text() + RED_BEFORE)
    done = run(demo_run, "baseline")
    (finding,) = [e for e in done.events if e.kind == "finding"]
    assert "1 of 9 own tests of the old program were red before anything was changed, and are not charged to v2" in finding.text
    assert "test_was_red_before" in finding.text


@pytest.mark.slow
def test_an_old_test_that_passed_before_and_fails_on_v2_is_told_and_one_that_failed_before_is_not(demo_run: Path) -> None:
    own = demo_run / "v1" / "tests" / "test_tearoom.py"
    own.write_text(own.read_text() + RED_BEFORE + LOST)
    done = run(demo_run)
    assert done.code == 0, done.err
    told = [e.text for e in done.events if e.kind == "finding" and e.stage == "verify"]
    assert len(told) == 1 and "test_the_old_way_only passes there and fails on v2: AssertionError" in told[0]


@pytest.mark.slow
def test_a_settings_file_for_the_test_runner_in_v2_is_a_finding_without_effect(finished_run: Path) -> None:
    (finished_run / "v2" / "setup.cfg").write_text("[tool:pytest]\naddopts = -k nothing\n")
    (finished_run / "v2" / "conftest.py").write_text("raise SystemExit(0)\n")
    done = run(finished_run)
    assert done.code == 0 and "Verdict: green" in (finished_run / "gate.md").read_text()
    told = {e.where: e.text for e in done.events if e.kind == "finding" and e.stage == "verify"}
    assert told.keys() == {"setup.cfg", "conftest.py"} and "changes how tests are collected" in told["conftest.py"]


@pytest.mark.slow
def test_a_v2_that_depends_on_the_time_zone_is_not_proven_and_says_what_is_flaky(finished_run: Path) -> None:
    path = next((finished_run / "v2").rglob("money.py"))
    path.write_text(path.read_text() + "\n\nimport time\n\nif time.localtime(0).tm_hour:\n    half_up = half_even\n")
    done = run(finished_run)
    assert done.code == 76 and "flaky" in done.out + done.err
    page = (finished_run / "gate.md").read_text()
    assert re.search(r"^Verdict: red: \d+ flaky of 96 tests, first acceptance/", page, re.M)
    assert re.search(
        r"^- flaky: acceptance/test_money.py::test_t1\S+: passes in the first run and fails in the second \(shuffled by", page, re.M
    )
    assert "is flaky: passes in the first run" in (finished_run / "deviations.md").read_text()
    assert not any(e.kind == "stage_started" and e.stage == "mutants" for e in done.events)
