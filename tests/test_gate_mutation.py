"""Mutants of the final code: which are made, which are chosen, what the tests notice, and that nothing more is claimed."""

from __future__ import annotations

import ast
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate_help import SMALL, gate, tree
from nightmill.gate.faults import Mutant
from nightmill.gate.languages.python import PythonPack
from nightmill.gate.mutation import ENOUGH, Trial, candidates, chosen, clauses_of, tried

PACK = PythonPack(ruff=None)


def changes(body: str) -> list[str]:
    return [f"{m.before} → {m.after}" for m in PACK.mutants("app.py", f"def f(a, b):\n    {body}\n")]


OPERATORS = {
    "return a < b": ["return a < b → return None", "a < b → a <= b"],
    "return a in b": ["return a in b → return None", "a in b → a not in b"],
    "return a == 3": ["return a == 3 → return None", "a == 3 → a != 3", "3 → 4"],
    "a += 2": ["a += 2 → pass", "2 → 3"],
    "return not a": ["return not a → return None", "not a → a"],
    "return a and not (b or a)": [
        "return a and not (b or a) → return None",
        "a and not (b or a) → a or not (b or a)",
        "not (b or a) → b or a",
        "b or a → b and a",
    ],
    "return a + b * 2": ["return a + b * 2 → return None", "a + b * 2 → a - b * 2", "b * 2 → b + 2", "2 → 3"],
    "return 'x' + a": ["return 'x' + a → return None"],
    "return f'{a + 1}'": ["return f'{a + 1}' → return None"],
    "raise ValueError(a)": ["raise ValueError(a) → pass"],
    "a.clear()": ["a.clear() → pass"],
    "return True": ["return True → return None", "True → False"],
    "return None": [],
    "pass": [],
    "x: int = 1": ["1 → 2"],
    "def g(c=1) -> 2: return a": ["return a → return None"],
}


@pytest.mark.parametrize(("body", "expected"), OPERATORS.items(), ids=OPERATORS.keys())
def test_each_operator_makes_its_faults_and_no_other(body: str, expected: list[str]) -> None:
    assert changes(body) == expected


SAMPLE = '''
"""Ünïcode before everything: ä."""
class Tariff:
    """Döcstring 1 < 2."""
    @property
    def fee(self) -> int:
        """1 < 2"""
        ü = "é" if self.x > 1 else f"{self.x + 1}"
        if not ü and (self.y or
                      self.z):  # a comment ä
            raise ValueError(
                f"ä {self.x} < 2", 3
            )
        return len(ü) - 1
LIMIT = 3
async def g(n=5):
    await n.go()
    while n >= 0: n -= 1
    return n
'''


def test_every_mutant_parses_and_differs_in_one_place_alone() -> None:
    made = PACK.mutants("app.py", SAMPLE)
    assert {m.function for m in made} == {"Tariff.fee", "g"} and len(made) > 12
    assert len({m.data for m in made}) == len(made)
    for mutant in made:
        ast.parse(mutant.data)
        before, after = SAMPLE.encode(), mutant.data
        start = next(i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
        assert before[:start].count(b"\n") + 1 >= mutant.line
        assert mutant.data.count("Döcstring 1 < 2".encode()) == 1 and b"LIMIT = 3" in mutant.data and b"n=5" in mutant.data


@given(st.text(alphabet="def f():\n \t=1+-<>notreurifäx'\"{}[],#", max_size=60))
def test_no_text_breaks_the_making_of_mutants(text: str) -> None:
    for mutant in PACK.mutants("x.py", text):
        ast.parse(mutant.data)


def mutant(function: str, n: int) -> Mutant:
    return Mutant("a.py", n, function, "x", str(n), f"{function}{n}".encode())


def test_mutants_are_spread_over_the_functions_and_always_the_same() -> None:
    every = [mutant(name, n) for name in ("f", "g", "h") for n in range(20)]
    picked = chosen(every, 7)
    assert sorted(sum(m.function == name for m in picked) for name in ("f", "g", "h")) == [2, 2, 3]
    assert picked == chosen(list(reversed(every)), 7) and len(chosen(every, 1000)) == 60 and chosen(every, 0) == chosen([], 5) == []


def test_functions_that_stand_as_they_were_are_left_alone() -> None:
    new = tree(app="def f(a): return a + 1\ndef g(a):\n    return a - 1", other="def f(a): return a + 1", test_x="def test_a(): 1 < 2")
    old = tree(app="def g(a): return a\n\n\ndef f(a): return a + 1")
    assert {m.owner for m in candidates(PACK, new, old)} == {"app.py::g", "other.py::f"}


APP = tree(
    app="""
        def fee(minutes):
            if minutes < 0:
                raise ValueError("negative")
            return 100 + minutes * 2

        def unused(x): return x + 1

        def loops(n):
            while n > 0:
                n -= 1
            return n
    """
)
TESTS = tree(
    acceptance__test_a="""
        import app, pytest
        def test_t1_fee(): assert app.fee(10) == 120
        def test_t2_blind(): app.fee(10)
        def test_t3_loops(): assert app.loops(3) == 0
    """
)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return tried(gate(replace(SMALL, wall_s=6)), APP, TESTS, {}, 100, 100, lambda: None)


@pytest.mark.slow
def test_what_no_test_notices_survives_and_an_endless_mutant_is_noticed(trial: Trial) -> None:
    assert trial.trouble == "" and trial.left == 0 and len(trial.tried) == trial.possible
    outcomes = {f"{t.mutant.before} → {t.mutant.after}": t.outcome for t in trial.tried if t.mutant.function == "fee"}
    assert outcomes == {
        "minutes < 0 → minutes <= 0": "survived",
        "0 → 1": "survived",
        'raise ValueError("negative") → pass': "survived",
        "return 100 + minutes * 2 → return None": "noticed",
        "100 + minutes * 2 → 100 - minutes * 2": "noticed",
        "100 → 101": "noticed",
        "minutes * 2 → minutes + 2": "noticed",
        "2 → 3": "noticed",
    }
    assert {t.outcome for t in trial.tried if t.mutant.function == "unused"} == {"uncalled"}
    assert next(t for t in trial.tried if t.mutant.before == "n -= 1").outcome == "noticed"


def test_only_the_tests_that_call_a_function_meet_its_mutants(trial: Trial) -> None:
    for one in trial.tried:
        expected = {"fee": ["test_t1_fee", "test_t2_blind"], "loops": ["test_t3_loops"], "unused": []}[one.mutant.function]
        assert [id.rpartition("::")[2] for id in one.met] == expected


def test_a_test_is_called_blunt_only_after_enough_mutants(trial: Trial) -> None:
    assert trial.blunt == ("acceptance/test_a.py::test_t2_blind",)
    fewer = replace(trial, tried=tuple(t for t in trial.tried if t.mutant.function == "fee")[: ENOUGH - 1])
    assert fewer.blunt == ()


def test_the_clauses_of_a_survivor_are_those_of_the_tests_that_call_it() -> None:
    assert clauses_of(("T2", "T1", "T3", "T9"), str, {"T1": "C4", "T2": "C1", "T3": "C1"}) == ("C1", "C4")


@pytest.mark.slow
def test_tests_that_call_nothing_in_this_process_meet_every_mutant() -> None:
    tests = tree(
        acceptance__test_a="""
            import subprocess, sys
            COMMAND = [sys.executable, "-c", "import app; print(app.f(1))"]
            def test_t1_child(): assert subprocess.run(COMMAND, capture_output=True).stdout == b"2\\n"
        """
    )
    found = tried(gate(), tree(app="def f(x): return x + 1"), tests, {}, 10, 100, lambda: None)
    assert {t.outcome for t in found.tried} == {"noticed"} and len(found.tried) == 3


def test_nothing_is_tried_where_nothing_can_be_said() -> None:
    red = tried(gate(), APP, tree(acceptance__test_a="def test_t1_a(): assert False"), {}, 5, 100, lambda: None)
    assert "do not pass on the unchanged code" in red.trouble and red.tried == ()
    assert tried(gate(), APP, TESTS, {}, 0, 100, lambda: None).trouble == "gates.mutants is 0"
    assert "no function was changed" in tried(gate(), APP, TESTS, APP, 5, 100, lambda: None).trouble


@pytest.mark.slow
def test_the_time_for_mutants_ends() -> None:
    started = time.monotonic()
    late = tried(gate(), APP, TESTS, {}, 100, 0.0, lambda: None)
    assert late.left == len(chosen(candidates(PACK, APP, {}), 100)) and late.tried == () and time.monotonic() - started < 20
