"""Proof of tests: which earn a say, which would pass on anything, which are broken, and which disagree with the old code."""

from __future__ import annotations

import pytest

from gate_help import SMALL, gate, tree
from nightmill.errors import MachineError
from nightmill.gate.languages.python import PythonPack
from nightmill.gate.proof import Proof, prove, row
from nightmill.gate.quality import QualityGate

STUBS = tree(
    money="""
        LIMIT = 100

        class Ledger:
            def __init__(self, start: int = 0) -> None:
                raise NotImplementedError

            def total(self) -> int:
                raise NotImplementedError("total")

        def half(x: int) -> int:
            '''Halves, rounding to even.'''
            raise NotImplementedError

        def check(x):
            raise ValueError("not a stub")
    """
)

V1 = tree(
    money="""
        LIMIT = 99

        class Ledger:
            def __init__(self, start=0):
                self.start = start

        def half(x):
            return (x + 1) // 2

        def check(x):
            raise ValueError("old")
    """
)

ACCEPTANCE = tree(
    acceptance__conftest="import pytest, money\n@pytest.fixture\ndef ledger(): return money.Ledger(3)",
    acceptance__test_good="""
        import pytest
        import money

        def test_t1_half(): assert money.half(4) == 2
        @pytest.mark.parametrize("x", [1, 5])
        def test_t2_half_rounds(x): assert money.half(x) % 2 == 0
        def test_t3_raises():
            with pytest.raises(TypeError): money.half("x")
        def test_t4_fixture(ledger): assert ledger.total() == 3
        def test_t5_constant(): assert money.LIMIT == 99
        def test_t6_changed(): assert money.half(3) == 1
        def test_t7_new_signature(): assert money.half(x=4) == 2 and money.half(4, digits=1)
        def test_t8_nothing_raised():
            with pytest.raises(ValueError): money.LIMIT + 1
    """,
    acceptance__test_vacuous="""
        import money, pytest
        def test_t10_true(): assert True
        def test_t11_any_error():
            with pytest.raises(Exception): money.half(1)
        def test_t12_exists(): assert callable(money.half)
    """,
    acceptance__test_wrong="""
        import money, pytest
        def test_t20_name(): assert money.half(undefined) == 1
        def test_t21_attribute(): assert money.third(3) == 1
        def test_t22_own(): raise NotImplementedError
        @pytest.mark.skip
        def test_t23_skip(): pass
        def test_t24_fixture(nowhere): pass
        @pytest.mark.xfail
        def test_t25_xfail(): money.half(1)
        def test_t26_not_a_stub(): money.check(1)
        def test_t27_seen_on_v1():
            assert money.half(2) == 1
            assert money.half(2) == undefined
    """,
    acceptance__test_syntax="def test_t30_a(: pass",
    acceptance__test_import="import nowhere\ndef test_t31_a(): pass\ndef test_t32_b(): pass",
    acceptance__test_at_import="import money\nX = money.half(2)\ndef test_t33_a(): assert X == 1",
)


def kinds(proof: Proof) -> dict[str, str]:
    """Last part of the id → where it was sorted."""
    sorted_ = {i: kind for kind in ("proven", "vacuous", "broken", "disputed") for i in getattr(proof, kind)}
    assert sorted_.keys() == proof.reasons.keys() and all(proof.reasons.values())
    return {_short(i): kind for i, kind in sorted_.items()}


def _short(test: str) -> str:
    """`…::test_t2_half[5]` → `T2[5]`, `acceptance/test_syntax.py` → `SYNTAX.PY`."""
    name, bracket, parameters = test.rsplit("/", 1)[-1].rsplit("::", 1)[-1].partition("[")
    return name.split("_")[1].upper() + bracket + parameters


@pytest.fixture(scope="module")
def alone() -> Proof:
    return prove(gate(), STUBS, ACCEPTANCE)


@pytest.fixture(scope="module")
def with_v1() -> Proof:
    return prove(gate(), STUBS, ACCEPTANCE, V1, frozenset({"T6"}))


def test_tests_are_sorted_by_what_they_do_on_the_stubs(alone: Proof) -> None:
    proven = ["T1", "T2[1]", "T2[5]", "T3", "T4", "T5", "T6", "T7", "T8", "T27"]
    vacuous = ["T10", "T11", "T12"]
    broken = ["T20", "T21", "T22", "T23", "T24", "T25", "T26", "T31", "T32", "T33", "SYNTAX.PY"]
    expected = dict.fromkeys(proven, "proven") | dict.fromkeys(vacuous, "vacuous") | dict.fromkeys(broken, "broken")
    assert kinds(alone) == expected
    assert (alone.v1_ran, alone.v1_reason, alone.trouble) == (False, "", "") and alone.disputed == ()


def test_every_reason_is_one_line_that_says_what_happened(alone: Proof) -> None:
    good, wrong = "acceptance/test_good.py::", "acceptance/test_wrong.py::"
    assert alone.reasons[good + "test_t1_half"] == "calls the stub half of money.py"
    assert alone.reasons[good + "test_t4_fixture"] == "calls the stub Ledger.__init__ of money.py"
    assert alone.reasons[good + "test_t5_constant"] == "its assertion fails: assert 100 == 99"
    assert alone.reasons[wrong + "test_t20_name"] == "NameError: name 'undefined' is not defined (acceptance/test_wrong.py:3)"
    assert alone.reasons["acceptance/test_import.py::test_t31_a"].startswith(
        "was not collected: ModuleNotFoundError: No module named 'nowhere'"
    )
    assert alone.reasons["acceptance/test_syntax.py"].startswith("was not collected: SyntaxError: invalid syntax")
    assert all("\n" not in why for why in alone.reasons.values())


def test_v1_disputes_what_it_does_otherwise_unless_the_row_changes_it(with_v1: Proof) -> None:
    assert with_v1.v1_ran
    found = kinds(with_v1)
    assert {name for name, kind in found.items() if kind == "disputed"} == {"T2[1]", "T2[5]", "T8"}
    assert found["T1"] == found["T5"] == found["T6"] == "proven"
    assert with_v1.reasons["acceptance/test_good.py::test_t6_changed"].startswith("fails on V1, whose behaviour its row changes")


def test_names_that_v1_does_not_have_are_not_compared(with_v1: Proof) -> None:
    assert kinds(with_v1)["T4"] == kinds(with_v1)["T7"] == "proven"
    assert with_v1.reasons["acceptance/test_good.py::test_t4_fixture"] == "calls the stub Ledger.__init__ of money.py"


def test_a_mistake_that_only_running_code_reveals_is_the_tests_own(with_v1: Proof) -> None:
    assert kinds(with_v1)["T27"] == "broken"
    assert with_v1.reasons["acceptance/test_wrong.py::test_t27_seen_on_v1"].startswith("the test itself is wrong: NameError")


def test_a_v1_that_cannot_be_imported_disputes_nothing() -> None:
    tests = {path: ACCEPTANCE[path] for path in ("acceptance/conftest.py", "acceptance/test_good.py")}
    for v1 in (tree(other="x = 1"), {"money.py": b"print 'python 2'"}):
        proof = prove(gate(), STUBS, tests, v1)
        assert not proof.v1_ran and proof.disputed == () and len(proof.proven) == 9
        assert "acceptance/conftest.py" in proof.v1_reason or "money" in proof.v1_reason


def test_a_file_that_ends_the_run_breaks_only_its_own_tests() -> None:
    tests = {
        "test_a.py": b"import money\ndef test_t1_a(): assert money.half(4) == 2\n",
        "test_b.py": b"import os\nos._exit(0)\ndef test_t2_b(): pass\n",
        "test_c.py": b"import os, money\ndef test_t3_c(): money.half(1)\ndef test_t4_d(): os.abort()\ndef test_t5_e(): money.half(1)\n",
    }
    proof = prove(gate(), STUBS, tests)
    assert kinds(proof) == {"T1": "proven", "T2": "broken", "T3": "proven", "T4": "broken", "T5": "broken"}
    assert "ended before its summary" in proof.reasons["acceptance/test_b.py::test_t2_b"]
    assert "signal 6" in proof.reasons["acceptance/test_c.py::test_t4_d"]


def test_a_broken_conftest_breaks_every_test_with_its_own_error() -> None:
    proof = prove(gate(), STUBS, tree(acceptance__conftest="import nowhere", acceptance__test_a="def test_t1_a(): pass"))
    assert kinds(proof) == {"T1": "broken"}
    assert "No module named 'nowhere' (acceptance/conftest.py:1)" in proof.reasons["acceptance/test_a.py::test_t1_a"]


def test_no_tests_prove_nothing() -> None:
    assert prove(gate(), STUBS, {"helpers.py": b"def test_x(): pass"}) == Proof()


class _Full:
    protections = ("none",)
    python = staticmethod(lambda interpreter: str(interpreter))

    def workdir(self, files: object) -> object:
        raise MachineError("/tmp: the disk is full")

    run = workdir


def test_trouble_of_the_machine_is_not_blamed_on_the_tests() -> None:
    proof = prove(QualityGate(PythonPack(), _Full(), SMALL), STUBS, ACCEPTANCE)
    assert proof == Proof(trouble="not the code's fault: /tmp: the disk is full")


def test_stubs_that_do_not_parse_are_not_blamed_on_the_tests() -> None:
    assert prove(gate(), {"money.py": b"def half(:"}, ACCEPTANCE) == Proof(trouble="the stubs do not parse: money.py:1: invalid syntax")


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("acceptance/test_x.py::test_t12_rounds[3]", "T12"),
        ("acceptance/test_x.py::TestA::test_T007_x", "T7"),
        ("acceptance/test_x.py::test_t3", "T3"),
        ("acceptance/test_t9_x.py::test_other", ""),
        ("acceptance/test_x.py::test_t3x_y", ""),
        ("acceptance/test_x.py::test_x[a::test_t3_y]", ""),
    ],
)
def test_the_row_is_read_from_the_name(test: str, expected: str) -> None:
    assert row(test) == expected


UNSTEADY = tree(
    acceptance__test_unsteady="""
        import money, os, time

        SEEN = []

        def test_t1_half(): assert money.half(4) == 2
        def test_t2_fills(): SEEN.append(1); assert money.half(4) == 2
        def test_t3_needs_the_fill(): assert not SEEN and money.half(4) == 2
        def test_t4_zone(): assert money.LIMIT == 99 and time.localtime(0).tm_hour == 0
        def test_t5_vacuous_east_of_greenwich(): assert time.localtime(0).tm_hour or money.half(1)
    """
)


def test_a_test_that_two_runs_do_not_agree_about_is_broken_and_called_flaky() -> None:
    v1 = {**V1, "money.py": V1["money.py"] + b"\n"}
    proof = prove(gate(), STUBS, UNSTEADY, v1)
    assert kinds(proof) == {"T1": "proven", "T2": "proven", "T3": "broken", "T4": "broken", "T5": "broken"}
    assert [_short(test) for test in proof.flaky] == ["T3", "T4", "T5"]
    on = {_short(test): why.split(":")[0] for test, why in proof.reasons.items() if test in proof.flaky}
    assert on == {"T3": "is flaky on V1", "T4": "is flaky on V1", "T5": "is flaky on the stubs"}


def test_where_the_old_program_may_differ_its_unsteadiness_is_not_the_tests() -> None:
    proof = prove(gate(), STUBS, UNSTEADY, V1, frozenset({"T4"}))
    assert kinds(proof)["T4"] == "proven" and [_short(test) for test in proof.flaky] == ["T3", "T5"]
