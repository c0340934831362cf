"""Remembered gate records: only complete verdicts, and only for the very same tree, tests, toolchain and limits."""

from __future__ import annotations

import sys
from pathlib import Path

from nightmill.gate.cache import GateCache
from nightmill.gate.languages.python import PythonPack
from nightmill.gate.manner import twice
from nightmill.gate.quality import QualityGate
from nightmill.gate.sandbox import Limits, find

TREE = {"m.py": b"def f():\n    return 1\n"}
TESTS = {"test_m.py": b"from m import f\n\n\ndef test_f():\n    assert f() == 1\n"}


def cache(folder: Path, wall_s: float = 60) -> GateCache:
    python = Path(sys.executable)
    return GateCache(QualityGate(PythonPack(interpreter=python), find(python=python), Limits(wall_s=wall_s)), folder, python)


def records(folder: Path) -> int:
    return len(list(folder.glob("*.json")))


def test_the_same_tree_and_tests_are_gated_once_and_a_fresh_gate_really_runs(tmp_path: Path) -> None:
    first = cache(tmp_path).run(TREE, TESTS)
    again = cache(tmp_path).run(TREE, TESTS)
    assert first.verdict == "green"
    assert again == first, "durations and all: it is the record of the first time"
    assert cache(tmp_path).run(TREE, TESTS, fresh=True).steps != first.steps


def test_another_tree_other_tests_and_other_limits_are_gated_anew(tmp_path: Path) -> None:
    cache(tmp_path).run(TREE, TESTS)
    assert cache(tmp_path).run({"m.py": b"def f():\n    return 2\n"}, TESTS).verdict == "red"
    cache(tmp_path).run(TREE, {"test_m.py": TESTS["test_m.py"] + b"\n"})
    cache(tmp_path, wall_s=50).run(TREE, TESTS)
    assert records(tmp_path) == 4


def test_what_did_not_run_to_its_end_is_not_remembered(tmp_path: Path) -> None:
    record = cache(tmp_path).run(TREE, {"test_m.py": b"import os\n\n\ndef test_f():\n    os._exit(0)\n"})
    assert record.verdict == "incomplete"
    assert records(tmp_path) == 0


def test_a_damaged_record_is_gated_again(tmp_path: Path) -> None:
    cache(tmp_path).run(TREE, TESTS)
    (path,) = tmp_path.glob("*.json")
    path.write_text('{"verdict": "gre')
    assert cache(tmp_path).run(TREE, TESTS).verdict == "green"


def test_a_record_of_one_run_does_not_stand_for_two(tmp_path: Path) -> None:
    once = cache(tmp_path).run(TREE, TESTS)
    both = cache(tmp_path).run(TREE, TESTS, twice(TESTS))
    assert once.steps[-1].again is None and both.steps[-1].again
    assert cache(tmp_path).run(TREE, TESTS, twice(TESTS)) == both and cache(tmp_path).run(TREE, TESTS) == once
    assert records(tmp_path) == 2


def test_a_test_step_alone_is_remembered_apart_from_whole_records(tmp_path: Path) -> None:
    cache(tmp_path).run(TREE, TESTS, twice(TESTS))
    first = cache(tmp_path).test(TREE, TESTS, twice(TESTS))
    assert cache(tmp_path).test(TREE, TESTS, twice(TESTS)) == first and records(tmp_path) == 2
    ends = {"test_m.py": b"import os\n\n\ndef test_f():\n    os._exit(0)\n"}
    assert cache(tmp_path).test(TREE, ends).status == "incomplete" and records(tmp_path) == 2
