"""Trees that try, on purpose or by sloppiness, to look better than they are: none comes out green, honest ones beside them do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gate_help import SMALL, by_name, gate, tree
from nightmill.gate.records import StepRecord
from nightmill.gate.verdict import decide

BUILT = StepRecord(name="build", status="passed")

TESTS = tree(
    acceptance__test_a="""
        import app
        def test_t1_a(): assert app.f(1) == 1
        def test_t2_b(): assert app.f(2) == 2
    """
)
GOOD = "def f(x): return x"
BAD = "def f(x): return -x"
FAKE = r"\n===== 2 passed in 0.01s =====\n"


def run(files: dict[str, bytes], tests: dict[str, bytes] = TESTS, **limits: float) -> StepRecord:
    return gate(replace(SMALL, **limits)).test(files, tests)


def verdict(step: StepRecord) -> str:
    return decide([BUILT, step])[0]


def test_the_honest_tree_that_the_others_imitate_is_green() -> None:
    step = run(tree(app=GOOD))
    assert (step.status, step.detail, verdict(step)) == ("passed", "2 tests passed", "green")


INCOMPLETE = {
    "leaving at import": "import os; os._exit(0)",
    "leaving at import with a printed summary": f"import os; os.write(1, b'{FAKE}'); os._exit(0)",
    "leaving in a test": "import os\ndef f(x): os._exit(0)",
    "becoming another program": "import os\ndef f(x): os.execv('/bin/true', ['true'])",
    "ending the session from inside": "import pytest\ndef f(x): pytest.exit('done', returncode=0)",
    "interrupting": "def f(x): raise KeyboardInterrupt",
    "closing every file": "import os\ndef f(x): os.closerange(3, 1000); return x",
    "redirecting every file": "import os\nfor fd in range(3, 100): os.dup2(1, fd)\ndef f(x): return x",
    "writing a report of its own": r"""
import glob
for path in glob.glob("/build/.nightmill/*"):
    open(path, "w").write('{"event": "started"}\n{"event": "collected", "ids": []}\n{"event": "finished", "exit": 0}\n')
def f(x): return x
""",
    "adding to the report": r"""
def f(x):
    if x == 2:
        lines = open("/build/.nightmill/report.jsonl").readlines()
        open("/build/.nightmill/report.jsonl", "a").write(lines[-1])
    return x
""",
    "cutting the report": "import os\ndef f(x): os.truncate('/build/.nightmill/report.jsonl', 10); return x",
    "removing the report": "import os\ndef f(x): os.unlink('/build/.nightmill/report.jsonl'); return x",
}


@pytest.mark.parametrize("code", INCOMPLETE.values(), ids=INCOMPLETE.keys())
def test_a_run_without_the_runners_own_summary_is_incomplete(code: str) -> None:
    step = run(tree(app=code))
    assert (step.status, verdict(step)) == ("incomplete", "incomplete")


def test_an_early_end_names_the_test_it_came_from() -> None:
    step = run(tree(app="import os\ndef f(x):\n    os.write(2, b'last words')\n    os._exit(0) if x == 2 else None\n    return x"))
    assert step.detail.startswith("the test run ended before its summary, in acceptance/test_a.py::test_t2_b (exit 0)")
    assert {name: t.outcome for name, t in by_name(step).items()} == {"test_t1_a": "passed", "test_t2_b": "error"}


RED = {
    "exit_at_import": "import sys; sys.exit(0)",
    "exit_in_a_test": "import sys\ndef f(x): sys.exit(0)",
    "skip_at_import": "import pytest; pytest.skip('not here', allow_module_level=True)",
    "skip_in_a_test": "import pytest\ndef f(x): pytest.skip('not today')",
    "expected_failure": "import pytest\ndef f(x): pytest.xfail('known')",
    "needs_what_is_missing": "import pytest\ndef f(x): return pytest.importorskip('nowhere_at_all')",
    "expected_failure_raised": "import pytest\ndef f(x): raise pytest.xfail.Exception('known')",
    "unittest_skip": "import unittest\ndef f(x): raise unittest.SkipTest('not today')",
    "network": "import urllib.request\ndef f(x): return urllib.request.urlopen('http://192.0.2.1/', timeout=1).status and x",
    "local_network": "import socket\ndef f(x): return socket.create_connection(('localhost', 80), timeout=1) and x",
    "mixed_not_utf8": "import sys\ndef f(x):\n    sys.stdout.buffer.write(b'\\xff 2 passed'); sys.stdout.flush()\n    return -x",
    "debugger_left_in": "def f(x):\n    breakpoint()\n    return x",
    "printed_summary": f"print('{FAKE}')\n{BAD}\nprint('{FAKE}')",
    "colours": f"{BAD}\nprint('\\x1b[32m2 passed\\x1b[0m')",
    "not_utf8": "import os\ndef f(x):\n    os.write(1, b'\\xff\\xfe passed')\n    raise ValueError('\\udcff\\x1b[32mpassed')",
    "error_without_text": "class E(Exception):\n    def __str__(self): raise RuntimeError\ndef f(x): raise E",
    "endless_recursion": "def f(x): return f(x)",
    "memory": "def f(x): return len([0] * 10**9) and x",
}


def test_no_way_of_not_passing_looks_like_passing() -> None:
    modules = tree(**RED)
    step = run(modules, {k: v for n in RED for k, v in tree(**{f"acceptance__test_{n}": TEST_OF.format(n)}).items()})
    assert (step.status, verdict(step)) == ("failed", "red")
    outcomes = {t.id.split("/")[1].split(".")[0].removeprefix("test_"): t.outcome for t in step.tests}
    assert outcomes == dict.fromkeys(RED, "failed") | {
        "exit_at_import": "error",
        "skip_at_import": "skipped",
        "skip_in_a_test": "skipped",
        "expected_failure": "xfailed",
        "needs_what_is_missing": "skipped",
        "expected_failure_raised": "xfailed",
        "unittest_skip": "skipped",
    }


TEST_OF = "import {0}\ndef test_t1_f(): assert {0}.f(1) == 1"

ONLY_SKIPS = {
    "skipped": "import pytest\ndef test_t1_a(): pytest.skip('x')\n@pytest.mark.skip\ndef test_t2_b(): pass",
    "skipped file": "import pytest\npytest.skip('x', allow_module_level=True)\ndef test_t1_a(): pass",
    "xfailed": "import pytest\n@pytest.mark.xfail\ndef test_t1_a(): assert False",
    "importorskip": "import pytest\npytest.importorskip('nowhere_at_all')\ndef test_t1_a(): pass",
    "condition": "import pytest\n@pytest.mark.skipif(True, reason='x')\ndef test_t1_a(): pass",
    "not strict": "import pytest\n@pytest.mark.xfail(strict=False, raises=AssertionError)\ndef test_t1_a(): assert False",
    "xpassed": "import pytest\n@pytest.mark.xfail\ndef test_t1_a(): pass",
    "no parameters": "import pytest\n@pytest.mark.parametrize('x', [])\ndef test_t1_a(x): pass",
}


def test_a_suite_that_judges_nothing_is_red() -> None:
    step = run(tree(app=GOOD), tree(**{f"acceptance__test_{i}": text for i, text in enumerate(ONLY_SKIPS.values())}))
    assert (step.status, verdict(step)) == ("failed", "red")
    assert sorted(t.outcome for t in step.tests) == [*["skipped"] * 6, "xfailed", "xfailed", "xpassed"]


REWRITES = {
    "replacing a test module": """
        import sys, types
        m = sys.modules["acceptance.test_b"] = types.ModuleType("acceptance.test_b")
        m.test_t3_c = lambda: None
        def f(x): return x
    """,
    "rewriting a locked test": "from pathlib import Path\nPath('acceptance/test_b.py').write_text('def test_t3_c(): pass')\n" + GOOD,
    "removing a locked test": "from pathlib import Path\nPath('acceptance/test_b.py').unlink()\n" + GOOD,
}


@pytest.mark.parametrize("code", REWRITES.values(), ids=REWRITES.keys())
def test_locked_tests_stay_as_they_are(code: str) -> None:
    step = run(tree(app=code), TESTS | tree(acceptance__test_b="import app\ndef test_t3_c(): assert app.f(3) == 4"))
    assert (step.status, verdict(step)) == ("failed", "red")
    assert all(t.outcome != "passed" for t in step.tests if t.id.endswith("test_t3_c"))


TAKEOVERS = {
    "conftest": "import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_call(item): item.obj = lambda: None",
    "pytest": "def main(*a, **k): return 0\nclass raises: pass",
    "json": "def dumps(x): return '{}'",
    "sitecustomize": "import os; os._exit(0)",
    "usercustomize": "import os; os._exit(0)",
    "hmac": "raise SystemExit(0)",
    "colorsys": "raise SystemExit(0)",
    "_pytest__config__init": "raise SystemExit(0)",
    "run_tests": "raise SystemExit(0)",
}
INI = {
    "pytest.ini": b"[pytest]\naddopts = --collect-only\n",
    "pyproject.toml": b"[tool.pytest.ini_options]\naddopts = '-k nothing'\n",
    "tox.ini": b"[pytest]\npython_files = none\n",
    "setup.cfg": b"[tool:pytest]\ntestpaths = nowhere\n",
    "x.pth": b"import os; os._exit(0)\n",
}


def test_files_at_the_root_take_over_nothing() -> None:
    bad = run(tree(app=f"import colorsys\n{BAD}", **TAKEOVERS) | INI)
    good = run(tree(app=f"import colorsys\n{GOOD}", **TAKEOVERS) | INI)
    assert (verdict(bad), [t.outcome for t in bad.tests]) == ("red", ["failed", "failed"])
    assert (verdict(good), good.detail) == ("green", "2 tests passed")


def test_a_module_named_like_an_installed_package_is_the_trees() -> None:
    files = tree(app="import httpx\ndef f(x): return httpx.OURS * x", httpx="OURS = 1")
    assert verdict(run(files)) == "green"


NOTHING = {
    "no test functions": tree(acceptance__test_a="import app\ndef check(): assert False"),
    "no test files": tree(acceptance__checks="def test_t1_a(): pass"),
    "tests behind a main guard": tree(acceptance__test_a="if __name__ == '__main__':\n    def check(): pass"),
}


@pytest.mark.parametrize("tests", NOTHING.values(), ids=NOTHING.keys())
def test_a_suite_that_collects_nothing_is_incomplete(tests: dict[str, bytes]) -> None:
    step = run(tree(app=GOOD), tests)
    assert (step.status, step.detail.splitlines()[0], verdict(step)) == ("incomplete", "no tests were collected", "incomplete")


def test_a_declared_test_that_was_not_collected_is_missed() -> None:
    tests = tree(acceptance__test_a="import app\ndef test_t1_a(): pass\nif app.f(1) != 1:\n    def test_t2_b(): assert False")
    step = run(tree(app=GOOD), tests)
    assert step.detail.startswith("acceptance/test_a.py::test_t2_b stands in the locked tests and was not collected")
    assert verdict(step) == "incomplete"


def test_a_hanging_test_fails_alone() -> None:
    step = run(tree(app="def f(x):\n    while x == 1: pass\n    return x"), wall_s=6)
    hung = by_name(step)["test_t1_a"]
    assert (hung.outcome, hung.exception, hung.crash_file, hung.crash_line) == ("failed", "TimedOut", "app.py", 2)
    assert by_name(step)["test_t2_b"].outcome == "passed" and verdict(step) == "red"


def test_a_hanging_test_that_cannot_be_interrupted_is_red_by_the_wall_limit() -> None:
    code = "import signal\ndef f(x):\n    signal.signal(signal.SIGALRM, signal.SIG_IGN)\n    while True: pass"
    step = run(tree(app=code), wall_s=2)
    assert (step.killed, step.status, verdict(step)) == ("wall", "failed", "red")
    assert step.detail.endswith("in acceptance/test_a.py::test_t1_a")


@pytest.mark.parametrize("number", [9, 11])
def test_a_crash_by_signal_is_red_and_names_the_test(number: int) -> None:
    step = run(tree(app=f"import os\ndef f(x): os.kill(os.getpid(), {number}) if x == 2 else None; return x"))
    assert (step.signal, verdict(step)) == (number, "red")
    assert decide([BUILT, step])[1] == f"test: the tests crashed by signal {number} in acceptance/test_a.py::test_t2_b"


def test_five_megabytes_of_output_neither_fail_nor_fill_the_record() -> None:
    loud = "import os\ndef f(x):\n    os.write(1, b'x' * 2_500_000); os.write(2, b'\\xff' * 2_500_000)\n    return "
    assert verdict(run(tree(app=loud + "x"))) == "green"
    failing = run(tree(app=loud + "-x"))
    assert verdict(failing) == "red" and len(failing.model_dump_json()) < 20_000


def test_a_hundred_megabytes_of_output_end_the_run_or_fill_nothing() -> None:
    loud = "import sys\ndef f(x):\n    for _ in range(1600): sys.stdout.write('x' * 65536)\n    return -x"
    step = run(tree(app=loud), disk_mb=256, file_mb=256)
    assert verdict(step) == "red" and len(step.model_dump_json()) < 30_000


def test_a_test_that_ends_the_session_is_incomplete_and_one_that_marks_itself_expected_to_fail_is_red() -> None:
    for text, expected in (
        ("import pytest, app\ndef test_t1_a(): assert app.f(1) == 1\ndef test_t2_b(): pytest.exit('enough', returncode=0)", "incomplete"),
        ("import pytest, app\ndef test_t1_a(request): request.applymarker(pytest.mark.xfail); assert app.f(1) == 2", "red"),
        ("import pytest, app\ndef test_t1_a(request): request.node.add_marker(pytest.mark.xfail); assert app.f(1) == 1", "red"),
        ("import app\nclass TestA:\n    def __init__(self): pass\n    def test_t1_a(self): assert app.f(1) == 2", "incomplete"),
        ("import app\ndef test_t1_a():\n    yield\n    assert app.f(1) == 2", "red"),
        ("import app\nasync def test_t1_a(): assert app.f(1) == 2", "red"),
    ):
        assert verdict(run(tree(app=GOOD), tree(acceptance__test_a=text))) == expected, text


def test_output_past_the_capture_runs_into_its_limit() -> None:
    code = """
        import os
        def f(x):
            for _ in range(10_000):
                for fd in range(3, 12):
                    try: os.write(fd, b"x" * 60_000)
                    except OSError: pass
            return x
    """
    step = run(tree(app=code))
    assert (step.killed, verdict(step)) == ("output", "red")


def test_a_crash_after_the_summary_changes_nothing() -> None:
    code = """
        import atexit, os, threading, time
        atexit.register(os._exit, 3)
        atexit.register(os.abort)
        threading.Thread(target=time.sleep, args=(60,)).start()
        def f(x): return x
    """
    step = run(tree(app=code))
    assert (step.exit, verdict(step)) == (0, "green")


def test_a_forked_child_that_runs_on_reports_nothing() -> None:
    step = run(tree(app="import os\ndef f(x):\n    pid = os.fork()\n    if pid: os.waitpid(pid, 0)\n    return x if pid else -x"))
    assert (step.detail, verdict(step)) == ("2 tests passed", "green")


def test_the_key_of_the_report_is_nowhere_to_be_read() -> None:
    code = """
        import glob, re
        places = ["/proc/self/environ", "/proc/self/cmdline", "/proc/1/environ", "/proc/1/cmdline", *glob.glob("/build/.nightmill/*")]
        def f(x):
            found = [p for p in places if not p.endswith("report.jsonl") and re.search(rb"[0-9a-f]{64}", open(p, "rb").read())]
            assert not found and len(places) > 5, found
            return x
    """
    step = run(tree(app=code))
    assert verdict(step) == "green", step.tests[0].message


def test_a_conftest_of_the_tests_counts_and_is_named_when_it_breaks() -> None:
    fixture = tree(acceptance__conftest="import pytest\n@pytest.fixture\ndef three(): return 3")
    tests = tree(acceptance__test_a="import app\ndef test_t1_a(three): assert app.f(three) == 3")
    assert verdict(run(tree(app=GOOD), fixture | tests)) == "green"
    for broken in ("import nowhere", "raise SystemExit(0)"):
        step = run(tree(app=GOOD), tree(acceptance__conftest=broken) | tests)
        assert (step.status, [t.id for t in step.tests]) == ("failed", ["acceptance/conftest.py"])


def test_unittest_classes_and_subtests_are_judged_too() -> None:
    tests = tree(
        acceptance__test_u="""
            import unittest, app
            class Case(unittest.TestCase):
                def test_t1_good(self): self.assertEqual(app.f(1), 1)
                def test_t2_sub(self):
                    for i in range(3):
                        with self.subTest(i=i): self.assertNotEqual(app.f(i), 1)
        """
    )
    outcomes = {name: t.outcome for name, t in by_name(run(tree(app=GOOD), tests)).items()}
    assert outcomes == {"test_t1_good": "passed", "test_t2_sub": "failed"}
