"""What tests ask is counted, weakening is seen, and the tests that judge are those that were proved."""

from __future__ import annotations

import textwrap

import pytest

from gate_help import gate, tree
from nightmill.gate.authority import Asked, all_ran, census, counted, held_to, steering, weakened
from nightmill.gate.languages.python import PythonPack
from nightmill.run.trees import sha

PATH = "acceptance/test_a.py"
FULL = """
    import pytest, subprocess, unittest
    def check(x): assert x
    @pytest.mark.timeout(5)
    def test_t1_a():
        assert f(1) == 1
        with pytest.raises(ValueError): f(2)
        subprocess.run(["x"], timeout=3)
    class TestB(unittest.TestCase):
        def test_t2_b(self): self.assertEqual(f(1), 1)
"""


def asked(text: str) -> dict[str, Asked]:
    return census(PythonPack(ruff=None), {PATH: textwrap.dedent(text).encode()})


def test_assertions_skips_xfails_and_timeouts_are_counted_per_test() -> None:
    assert asked(FULL) == {
        PATH: Asked(assertions=1),
        f"{PATH}::test_t1_a": Asked(assertions=2, timeouts=(3, 5)),
        f"{PATH}::TestB::test_t2_b": Asked(assertions=1),
    }
    assert counted(asked(FULL)) == {"tests": 2, "assertions": 4, "skips": 0, "xfails": 0}


WEAKER = {
    "a test is gone": ("class TestB", "class B", f"{PATH}::TestB::test_t2_b", "is gone"),
    "renamed away": ("def test_t2_b", "def check_t2_b", f"{PATH}::TestB::test_t2_b", "is gone"),
    "an assertion is gone": ("assert f(1) == 1", "f(1)", f"{PATH}::test_t1_a", "2 → 1 assertions"),
    "an assertion of nothing": ("assert f(1) == 1", "assert True", f"{PATH}::test_t1_a", "2 → 1 assertions"),
    "no error is expected": ("with pytest.raises(ValueError): f(2)", "f(2)", f"{PATH}::test_t1_a", "2 → 1 assertions"),
    "a skip mark": ("@pytest.mark.timeout(5)", "@pytest.mark.timeout(5)\n    @pytest.mark.skip", f"{PATH}::test_t1_a", "0 → 1 skips"),
    "a skip inside": ("assert f(1) == 1", "assert f(1) == 1; pytest.skip('x')", f"{PATH}::test_t1_a", "0 → 1 skips"),
    "a file that needs something": ("def check", "pytest.importorskip('x')\n    def check", PATH, "0 → 1 skips"),
    "a mark on the file": ("def check", "pytestmark = pytest.mark.skip\n    def check", PATH, "0 → 1 skips"),
    "an expected failure": (
        "@pytest.mark.timeout(5)",
        "@pytest.mark.xfail(strict=False)\n    @pytest.mark.timeout(5)",
        f"{PATH}::test_t1_a",
        "0 → 1 xfails",
    ),
    "more time": ("timeout(5)", "timeout(50)", f"{PATH}::test_t1_a", "timeouts 3 s and 5 s → 3 s and 50 s"),
    "endless time": (", timeout=3", "", f"{PATH}::test_t1_a", "timeouts 3 s and 5 s → 5 s"),
}


@pytest.mark.parametrize(("old", "new", "test", "said"), WEAKER.values(), ids=WEAKER.keys())
def test_every_weakening_is_seen_where_it_is(old: str, new: str, test: str, said: str) -> None:
    changed = FULL.replace(old, new)
    assert changed != FULL
    assert weakened(asked(FULL), asked(changed)) == {test: said}


def test_what_asks_more_or_something_else_weakens_nothing() -> None:
    for old, new in (
        ("assert f(1) == 1", "assert f(3) == 4; assert f(1)"),
        ("timeout(5)", "timeout(4)"),
        ("class TestB", "def test_n(): pass\n    class TestB"),
    ):
        assert weakened(asked(FULL), asked(FULL.replace(old, new))) == {}
    assert list(weakened(asked(FULL), asked("def broken(:"))) == [f"{PATH}::test_t1_a", f"{PATH}::TestB::test_t2_b"]


TESTS = tree(acceptance__test_a="import app, pytest\n@pytest.mark.parametrize('x', range(app.N))\ndef test_t1_a(x): assert app.f(x) == x")
PROVED = {path: sha(data) for path, data in TESTS.items()}
IDS = [f"{PATH}::test_t1_a[{n}]" for n in range(3)]


def test_a_tree_that_makes_its_tests_fewer_is_red() -> None:
    """Parameters that the code under test supplies: each test that is left passes."""
    honest = gate().run(tree(app="N = 3\ndef f(x): return x"), TESTS)
    fewer = gate().run(tree(app="N = 1\ndef f(x): return x"), TESTS)
    assert honest.verdict == fewer.verdict == "green"
    assert held_to(honest, TESTS, PROVED, IDS, {}, "x").verdict == "green"
    held = held_to(fewer, TESTS, PROVED, IDS, {}, "x")
    assert (held.verdict, held.reason) == ("red", f"2 error of 2 tests, first {IDS[1]}")
    assert "2 of 3 proved tests did not run" in held.steps[-1].detail
    assert all_ran(honest, IDS) == honest and all_ran(fewer, IDS).verdict == "red"


@pytest.mark.parametrize(
    ("tests", "path"),
    [
        (TESTS | {PATH: TESTS[PATH] + b"\n"}, PATH),
        (TESTS | {"acceptance/conftest.py": b""}, "acceptance/conftest.py"),
        (TESTS | {"acceptance/__init__.py": b""}, "acceptance/__init__.py"),
        ({}, PATH),
    ],
    ids=["changed", "conftest", "package", "deleted"],
)
def test_tests_that_are_not_those_that_were_proved_are_red_and_say_who_changed_them(tests: dict[str, bytes], path: str) -> None:
    record = gate().run(tree(app="N = 3\ndef f(x): return x"), TESTS)
    held = held_to(record, tests, PROVED, IDS, {}, "a person's edit since then")
    assert (held.verdict, held.reason) == ("red", f"{path} is not the file that was proved: a person's edit since then")


def test_a_proof_that_names_nothing_proves_nothing() -> None:
    record = gate().run(tree(app="N = 3\ndef f(x): return x"), TESTS)
    assert held_to(record, TESTS, {}, (), {}, "x").verdict == "red"


STEERING = [
    "conftest.py",
    "a/conftest.py",
    "sitecustomize.py",
    "usercustomize.py",
    "x.pth",
    "pytest.ini",
    "tox.ini",
    "acceptance/__init__.py",
    "pytest.py",
]


@pytest.mark.parametrize("path", STEERING)
def test_no_implementer_may_write_what_steers_the_tests(path: str) -> None:
    assert PythonPack(ruff=None).forbidden(path)


def test_settings_of_the_test_runner_in_other_files_are_named() -> None:
    pack = PythonPack(ruff=None)
    files = {
        "setup.cfg": b"[metadata]\nname = x\n[tool:pytest]\naddopts = -k nothing\n",
        "pyproject.toml": b"[tool.pytest.ini_options]\naddopts = '-k nothing'\n",
        "other/pyproject.toml": b"[project]\nname = 'x'\n",
        "conftest.py": b"",
        "app.py": b"",
    }
    assert list(steering(pack.forbidden, files)) == ["pyproject.toml", "setup.cfg", "conftest.py"]
