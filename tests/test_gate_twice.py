"""Two runs of the same tests: what depends on order, time zone, locale, hashes or an earlier run is flaky, and never green."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gate_help import SMALL, by_name, gate, tree
from nightmill.gate.languages.python import PythonPack
from nightmill.gate.manner import PLAIN, Manner, twice
from nightmill.gate.quality import QualityGate
from nightmill.gate.records import StepRecord, TestOutcome
from nightmill.gate.sandbox import find
from nightmill.gate.twice import merged
from sandbox_help import sandbox

GOOD = "def f(x): return x"
STEADY = tree(acceptance__test_a="import app\ndef test_t1_a(): assert app.f(1) == 1\ndef test_t2_b(): assert app.f(2) == 2")


def both(files: dict[str, bytes], tests: dict[str, bytes], **limits: float) -> StepRecord:
    return gate(replace(SMALL, **limits)).test(files, tests, twice(tests))


FLAKY = tree(
    acceptance__test_flaky="""
        import locale, os, pathlib, tempfile, time
        import app

        SEEN = []
        DECLARED = os.environ["PYTHONHASHSEED"] == "0"

        def once(path):
            assert not path.exists()
            path.write_text("was here")

        def test_t1_steady(): assert app.f(1) == 1
        def test_t2_needs_no_other(): SEEN.append(1)
        def test_t3_needs_the_one_before(): assert SEEN
        def test_t4_time_zone(): assert time.localtime(0).tm_hour == 0
        def test_t5_locale():
            locale.setlocale(locale.LC_ALL, "")
            assert locale.getlocale()[1] == "UTF-8"
        def test_t6_order_of_a_set(): assert list({"alpha", "beta", "gamma", "delta"}) == app.ORDER
        def test_t7_passes_once_in_tmp(): once(pathlib.Path(tempfile.gettempdir(), "state"))
        def test_t8_passes_once_in_the_tree(): once(pathlib.Path("state"))
        def test_t9_passes_once_at_home(): once(pathlib.Path.home() / "state")
    """
)
SAVED = """
import json, pathlib
PLACE = pathlib.Path("order.json")
if not PLACE.exists():
    PLACE.write_text(json.dumps(list({"alpha", "beta", "gamma", "delta"})))
ORDER = json.loads(PLACE.read_text())
def f(x): return x
"""


def test_what_depends_on_anything_but_the_code_is_flaky_and_counts_as_failed() -> None:
    record = gate().run(tree(app=SAVED), FLAKY, twice(FLAKY))
    steady = {"acceptance/test_flaky.py::test_t1_steady", "acceptance/test_flaky.py::test_t2_needs_no_other"}
    assert record.verdict == "red" and record.passed == steady
    assert len(record.flaky) == 7 and record.reason == "7 flaky of 9 tests, first acceptance/test_flaky.py::test_t3_needs_the_one_before"
    third = record.flaky[0]
    assert third.flaky.startswith("passes in the first run and fails in the second (shuffled by ")
    assert third.message.startswith("flaky: ") and "assert []" in third.message
    again = record.steps[-1].again
    assert again and again.seed == twice(FLAKY).seed and "TZ=<+14>-14" in again.surroundings and again.tests == ()


def test_a_steady_suite_is_green_in_two_runs_and_says_so() -> None:
    record = gate().run(tree(app=GOOD), STEADY, twice(STEADY))
    assert (record.verdict, record.reason) == ("green", "it builds and all 2 tests passed, in two runs")
    assert len(record.tests) == 2 and record.flaky == ()


def test_a_test_that_fails_in_the_first_run_alone_is_flaky_too() -> None:
    code = "import os\ndef f(x): return x if os.path.exists('warm') else (open('warm', 'w'), -x)[1]"
    found = by_name(both(tree(app=code), STEADY))
    assert found["test_t1_a"].outcome == "failed"
    assert found["test_t1_a"].flaky.startswith("fails in the first run and passes in the second")
    assert found["test_t2_b"].outcome == "passed"


def test_a_red_that_is_red_twice_is_not_called_flaky() -> None:
    step = both(tree(app="def f(x): return 1"), STEADY)
    assert [(t.outcome, t.flaky) for t in step.tests] == [("passed", ""), ("failed", "")]


def test_tests_that_are_not_the_same_in_both_runs_are_flaky() -> None:
    tests = tree(acceptance__test_a="import os, pytest\n@pytest.mark.parametrize('x', [os.environ['TZ']])\ndef test_t1_a(x): pass")
    step = both(tree(app=GOOD), tests)
    assert step.status == "failed" and [t.outcome for t in step.tests] == ["error", "error"]
    assert [t.flaky.split(" (")[0] for t in step.tests] == [
        "passes in the first run and is not there in the second",
        "is not there in the first run and passes in the second",
    ]


SECOND = "import os\nSECOND = os.path.exists('second')\nopen('second', 'w').close()\n"
ENDINGS = {
    "leaving": ("os._exit(0)", "incomplete"),
    "leaving as if all had passed": ("os.kill(os.getppid(), 9)", "failed"),
    "a signal": ("os.abort()", "failed"),
    "hanging": ("[None for _ in iter(int, 1)]", "failed"),
    "a report of its own": ("open('.nightmill/report.jsonl.1', 'a').write('x')", "incomplete"),
    "no word of the ends": ("os.unlink('.nightmill/ends')", "incomplete"),
    "a cut word of the ends": ("os.truncate('.nightmill/ends', 20)", "incomplete"),
    "an end of its own": ("open('.nightmill/ends', 'w').write('0 1 0')", "incomplete"),
    "no report": ("os.unlink('.nightmill/report.jsonl.1')", "incomplete"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("code", "status"), ENDINGS.values(), ids=ENDINGS.keys())
def test_what_happens_in_the_second_run_alone_is_not_green(code: str, status: str) -> None:
    step = both(tree(app=f"{SECOND}def f(x):\n    if SECOND: {code}\n    return x"), STEADY, wall_s=4)
    assert step.status == status, step.detail
    assert step.status != "passed"


def test_a_run_that_does_not_come_to_its_end_is_not_repeated() -> None:
    step = both(tree(app="import os\ndef f(x): os._exit(0)"), STEADY)
    assert step.status == "incomplete" and step.again is None


def test_tested_code_cannot_read_the_memory_of_what_runs_it_twice() -> None:
    code = """
        import os
        def f(x):
            for name in ("mem", "environ", "maps"):
                try: open(f"/proc/{os.getppid()}/{name}", "rb").read(1)
                except OSError: continue
                return -x
            return x
    """
    assert both(tree(app=code), STEADY).status == "passed"


@pytest.mark.slow
def test_the_order_depends_on_the_tests_alone_and_turns_every_pair_of_one_file() -> None:
    code = "ORDER = []\ndef f(x):\n    before = sum(ORDER)\n    ORDER.append(x)\n    return before"
    tried = ((1, 1, 0), (2, 10, 1), (3, 100, 11))
    one = "import app\n" + "".join(f"def test_t{n}_a(): assert app.f({x}) == {before}\n" for n, x, before in tried)
    tests = tree(acceptance__test_order=one, acceptance__test_other="def test_t4_d(): pass")
    assert twice(tests) == twice(dict(reversed(tests.items())))
    found = [t.message.split("assert ")[-1].split(" ==")[0] for t in both(tree(app=code), tests).tests if t.flaky]
    assert found == ["110", "100", "0"], "what had run before, from the last test to the first"


class _Once(PythonPack):
    """A pack that knows nothing of manners."""

    def test(self, bench):
        return super().test(replace(bench, manner=PLAIN))


def test_a_pack_that_runs_tests_once_is_asked_twice() -> None:
    gate = QualityGate(_Once(ruff=None), sandbox(), SMALL)
    record = gate.run(tree(app=GOOD), STEADY, twice(STEADY))
    assert record.verdict == "green" and record.steps[-1].again and record.steps[-1].again.seed == 0
    assert "run once more" in record.steps[-1].detail


@pytest.mark.slow
def test_without_a_sandbox_the_two_runs_are_the_same_two() -> None:
    bare = QualityGate(PythonPack(ruff=None), find(python=Path(sys.executable), unsandboxed=True), SMALL)
    record = bare.run(tree(app=SAVED), FLAKY, twice(FLAKY))
    assert "acceptance/test_flaky.py::test_t3_needs_the_one_before" in {t.id for t in record.flaky}
    one = "acceptance/test_a.py::test_t2_b"
    assert [t.id for t in bare.test(tree(app=GOOD), STEADY, Manner(only=(one,))).tests] == [one]


def outcome(id: str, kind: str) -> TestOutcome:
    return TestOutcome(id=id, outcome=kind)


@pytest.mark.parametrize("kind", ["failed", "error", "skipped", "xfailed", "xpassed"])
@pytest.mark.parametrize("passes_first", [True, False])
def test_only_passing_twice_is_passing(kind: str, passes_first: bool) -> None:
    steps = [
        StepRecord(name="test", status="passed", tests=(outcome("a", "passed"),)),
        StepRecord(name="test", status="failed", tests=(outcome("a", kind),)),
    ]
    first, second = steps if passes_first else reversed(steps)
    step = merged(first, second)
    assert step.status == "failed" and step.tests[0].outcome == kind and step.tests[0].flaky


def test_some_tests_can_be_run_alone_and_traced() -> None:
    one = "acceptance/test_a.py::test_t2_b"
    step = gate().test(tree(app="def g(x): return x\ndef f(x): return g(x)"), STEADY, Manner(only=(one,), traced=True))
    assert [t.id for t in step.tests] == [one]
    assert step.tests[0].touched == ("acceptance/test_a.py::test_t2_b", "app.py::f", "app.py::g")


def test_a_run_may_end_at_its_first_failure() -> None:
    step = gate().test(tree(app="def f(x): return -x"), STEADY, Manner(first=True))
    assert (step.status, [t.outcome for t in step.tests]) == ("failed", ["failed"])
