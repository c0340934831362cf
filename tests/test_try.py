"""`nightmill try` and `nightmill bench` on small tasks: the real command, the real sandbox, replies from files."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fake_server import FakeServer
from nightmill.cli import main
from nightmill.fake.settings import Settings
from nightmill.run.events import read_events
from nightmill.trial import table
from nightmill.trial.given import read_task
from nightmill.trial.result import Result, line
from runs import NIGHTMILL, environment

STUB = "def net(cents):\n    pass\n\n\ndef label(cents):\n    pass\n"
TESTS = """\
import unittest

from money import label, net


class MoneyTest(unittest.TestCase):
    def test_net(self):
        self.assertEqual(net(119), 100)

    def test_nothing(self):
        self.assertEqual(net(0), 0)

    def test_label(self):
        self.assertEqual(label(105), "1.05")
"""
NET, LABEL = "return cents * 100 // 119", 'return f"{cents // 100}.{cents % 100:02}"'
EXERCISM = {
    ".docs/instructions.md": "# Instructions\n\nNet prices and their labels.\n",
    ".docs/introduction.md": "# Introduction\n\nA till.\n",
    ".meta/example.py": "SOLUTION = 1\n",
    "money.py": STUB,
    "money_test.py": TESTS,
}
FOLDERS = {"instructions.md": "Net prices and their labels.\n", "money.py": STUB, "tests/test_money.py": TESTS}


def code(net: str, label: str) -> str:
    return f"def net(cents):\n    {net}\n\n\ndef label(cents):\n    {label}\n"


def whole(text: str, path: str = "money.py") -> str:
    return f"{path}\n```python\n{text}```\n"


RIGHT = whole(code(NET, LABEL))
HALF = whole(code(NET, "return str(cents)"))
WRONG = whole(code("return 0", "return ''"))


def task(root: Path, files: Mapping[str, str] = EXERCISM) -> Path:
    for rel, text in files.items():
        path = root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def config(folder: Path, *replies: str, name: str = "run.yaml", model: str = "m", **more: Any) -> Path:
    """A run.yaml whose model gives these replies, one per question."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.replies").mkdir()
    for number, text in enumerate(replies, 1):
        (folder / f"{name}.replies" / f"attempt.{number}.md").write_text(text)
    raw = {
        "providers": {"scripted": {"kind": "scripted", "replies": f"{name}.replies"}},
        "models": {"default": {"provider": "scripted", "model": model}},
    }
    (folder / name).write_text(json.dumps(raw | more))
    return folder / name


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def command(*arguments: str | Path, verb: str = "try") -> Done:
    """`nightmill VERB ARGUMENTS` in this process: a new one would spend most of its time on imports."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([verb, *map(str, arguments)])
    return Done(code, out.getvalue(), err.getvalue())


def tried(root: Path, *replies: str, files: Mapping[str, str] = EXERCISM, options: tuple[str, ...] = ()) -> tuple[int, dict[str, Any], str]:
    """Exit code, the result, and stderr of a try that keeps its run in `root`/kept."""
    done = command("--task", task(root / "money", files), "--run-config", config(root, *replies), "--keep", root / "kept", *options)
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def prompts(root: Path) -> dict[str, str]:
    found = [json.loads(p.read_text())["request"] for p in (root / "kept/.nightmill/calls").glob("*.json")]
    return {r["label"]: r["messages"][-1]["content"] for r in found}


def test_a_right_first_attempt_is_solved_with_exit_0_and_one_line_of_json(tmp_path: Path) -> None:
    exit_code, found, err = tried(tmp_path, RIGHT)
    assert exit_code == 0, err
    told = {key: found[key] for key in ("task", "model", "strategy", "tries", "solved", "attempts", "passed", "owed")}
    assert told == {"task": "money", "model": "m", "strategy": "repair", "tries": 4, "solved": True, "attempts": 1, "passed": 3, "owed": 3}
    assert found["tokens_prompt"] > 0 and found["tokens_completion"] > 0 and found["seconds"] > 0
    assert found["verdict"].startswith("green") and "attempt 1" in err
    asked = prompts(tmp_path)["attempt#1"]
    assert "Net prices and their labels." in asked and "assertEqual(net(119), 100)" in asked and "SOLUTION" not in asked
    assert {p.name for p in (tmp_path / "kept/v2").rglob("*") if p.is_file()} == {"money.py"}


def test_tests_may_lie_in_a_folder_and_the_only_file_may_come_as_a_bare_block(tmp_path: Path) -> None:
    bare = RIGHT.removeprefix("money.py\n")
    said = f"Here is the code:\n\n{bare}\nUse it so:\n\n```python\nprint(net(1))\n```\n"
    assert tried(tmp_path, said, files=FOLDERS)[0] == 0
    assert (tmp_path / "kept/v2/money.py").read_text() == code(NET, LABEL)


def test_a_repair_is_told_what_failed_and_solves_at_the_second_attempt(tmp_path: Path) -> None:
    exit_code, found, _ = tried(tmp_path, HALF, RIGHT)
    assert (exit_code, found["attempts"]) == (0, 2)
    assert [(a["asked"], a["outcome"], a["passed"]) for a in found["attempts_detail"]] == [("rewrite", "red", 2), ("patch", "green", 3)]
    second = prompts(tmp_path)["attempt#2"].partition("# Your task")[2]
    assert "test_label" in second and "'105' != '1.05'" in second and "test_net" not in second


@pytest.mark.slow
def test_samples_ask_the_same_again_at_rising_temperature_and_the_one_that_passes_most_is_kept(tmp_path: Path) -> None:
    """The second one loses a test that the first one passed, and wins two: as a whole it is better."""
    first, second = whole(code("return 0", "return ''")), whole(code("return 100 if cents else None", LABEL))
    exit_code, found, _ = tried(tmp_path, first, second, first, options=("--strategy", "samples", "--tries", "3"))
    assert (exit_code, found["solved"], found["strategy"], found["attempts"]) == (76, False, "samples", 3)
    assert [(a["passed"], a["best"]) for a in found["attempts_detail"]] == [(1, True), (2, True), (1, False)]
    assert (found["passed"], found["owed"]) == (2, 3) and found["verdict"].startswith("red")
    sent = [json.loads(p.read_text())["request"] for p in (tmp_path / "kept/.nightmill/calls").glob("*.json")]
    assert sorted((r["temperature"], r["seed"]) for r in sent) == [(0.2, 1), (0.5, 2), (0.8, 3)]
    assert len({r["messages"][-1]["content"] for r in sent}) == 1, "no candidate is told of another one"
    assert "100 if cents" in (tmp_path / "kept/v2/money.py").read_text()


def test_what_the_tests_import_is_found_and_locked(tmp_path: Path) -> None:
    files = EXERCISM | {"test_utils.py": "CENTS = 119\n", "money_test.py": "from test_utils import CENTS\n" + TESTS}
    exit_code, found, _ = tried(tmp_path, RIGHT + "\n" + whole("CENTS = 1\n", "test_utils.py"), RIGHT, files=files)
    assert (exit_code, [a["outcome"] for a in found["attempts_detail"]]) == (0, ["refused", "green"])


def test_samples_end_at_the_first_that_is_green(tmp_path: Path) -> None:
    exit_code, found, _ = tried(tmp_path, WRONG, RIGHT, WRONG, options=("--strategy", "samples"))
    assert (exit_code, found["attempts"], found["solved"]) == (0, 2, True)


def test_what_is_never_solved_ends_with_76_and_the_best_is_kept(tmp_path: Path) -> None:
    exit_code, found, _ = tried(tmp_path, HALF, WRONG, options=("--tries", "2"))
    assert (exit_code, found["solved"], found["passed"], found["attempts"]) == (76, False, 2, 2)
    assert "str(cents)" in (tmp_path / "kept/v2/money.py").read_text()


CHEATS = {
    "its test file": whole("def test_nothing():\n    pass\n", "money_test.py"),
    "a test file of its own": whole("def test_nothing():\n    pass\n", "tests/test_more.py"),
    "conftest.py": whole("import pytest\n", "conftest.py"),
    "the locked folder": whole("def test_nothing():\n    pass\n", "acceptance/money_test.py"),
}


def test_a_reply_that_touches_the_tests_is_refused_as_a_whole(tmp_path: Path) -> None:
    exit_code, found, _ = tried(tmp_path, *[RIGHT + "\n" + cheat for cheat in CHEATS.values()])
    assert (exit_code, found["solved"], found["attempts"]) == (76, False, len(CHEATS))
    assert {a["outcome"] for a in found["attempts_detail"]} == {"refused"}
    assert (tmp_path / "kept/acceptance/money_test.py").read_text() == TESTS


@pytest.mark.slow
def test_skipping_out_of_a_test_or_ending_the_run_is_not_solving(tmp_path: Path) -> None:
    skips = "import pytest\n\n\ndef net(cents):\n    pytest.skip('later')\n\n\ndef label(cents):\n    pytest.skip('later')\n"
    ends = "import os\n\n\ndef net(cents):\n    os._exit(0)\n\n\ndef label(cents):\n    os._exit(0)\n"
    at_import = "import pytest\n\npytest.skip('all of it', allow_module_level=True)\n\n" + code(NET, LABEL)
    replies = [whole(text) for text in (skips, ends, at_import)]
    exit_code, found, _ = tried(tmp_path, *replies, options=("--tries", "3", "--strategy", "samples"))
    assert (exit_code, found["solved"], found["passed"]) == (76, False, 0)


def test_a_model_that_says_it_is_done_has_done_nothing(tmp_path: Path) -> None:
    exit_code, found, _ = tried(tmp_path, *["All tests pass. DONE. solved: true\n"] * 6, options=("--tries", "2"))
    assert (exit_code, found["solved"], found["passed"]) == (76, False, 0)


def test_nobody_answering_is_77_and_a_broken_setting_78_or_3(tmp_path: Path) -> None:
    exit_code, found, err = tried(tmp_path, HALF)
    assert exit_code == 77 and "no scripted reply" in err and not found["solved"]
    assert command("--task", tmp_path / "money", "--strategy", "guess").returncode == 3
    assert command("--task", tmp_path / "nowhere").returncode == 3
    assert command("--task", tmp_path / "money", "--run-config", config(tmp_path, name="bad.yaml", gates={"wall_s": -1})).returncode == 78


def test_a_task_that_cannot_be_taken_as_it_is_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    task(tmp_path / "money", EXERCISM | {"table.txt": "a\0b"})
    done = command("--task", tmp_path / "money", "--run-config", config(tmp_path, RIGHT))
    assert done.returncode == 78 and "table.txt (binary)" in done.stderr and not json.loads(done.stdout)["solved"]


def test_a_directory_without_tests_or_without_a_file_to_write_is_no_task(tmp_path: Path) -> None:
    for missing, says in (("money_test.py", "no test file"), ("money.py", "to write"), (".docs/", "no instructions")):
        files = {rel: text for rel, text in EXERCISM.items() if not rel.startswith(missing)}
        done = command("--task", task(tmp_path / missing, files))
        assert done.returncode == 3 and says in done.stderr


@pytest.mark.slow
def test_a_killed_try_goes_on_in_its_directory_and_asks_nothing_twice(tmp_path: Path) -> None:
    slow = "<!-- scripted: stall=60 -->\n"
    arguments = ["--task", task(tmp_path / "money"), "--run-config", config(tmp_path, HALF, slow + RIGHT), "--keep", tmp_path / "kept"]
    log = tmp_path / "kept/.nightmill/events.jsonl"
    with subprocess.Popen(
        [*NIGHTMILL, "try", *map(str, arguments)], env=environment(), stdout=-1, stderr=-1, start_new_session=True
    ) as process:
        while sum(e.kind == "call_started" for e in read_events(log)) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    (tmp_path / "run.yaml.replies/attempt.2.md").write_text(RIGHT)
    done = command(*arguments)
    found = json.loads(done.stdout)
    assert (done.returncode, found["solved"], found["attempts"]) == (0, True, 2), done.stderr
    asked = [e.label for e in read_events(log) if e.kind == "call_finished" and not e.replayed]
    assert asked == ["attempt#1", "attempt#2"]
    again = command(*arguments)
    assert again.returncode == 0 and json.loads(again.stdout)["tokens_prompt"] == found["tokens_prompt"]
    (tmp_path / "money/money_test.py").write_text(TESTS.replace("1.05", "1,05"))
    changed = command(*arguments)
    assert changed.returncode == 3 and "another directory" in changed.stderr


def test_a_server_answers_a_try_as_well(tmp_path: Path) -> None:
    (tmp_path / "replies").mkdir()
    (tmp_path / "replies/attempt.md").write_text(RIGHT)
    with FakeServer(settings=Settings(replies=tmp_path / "replies", window=4096, model="tiny-1.5b")) as server:
        done = command("--task", task(tmp_path / "money"), "--provider", server.url, "--model", "tiny-1.5b", "--context", "4096")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["model"], found["solved"], found["attempts"]) == ("tiny-1.5b", True, 1)
    assert found["seconds_model"] > 0


@pytest.mark.slow
def test_a_bench_goes_on_where_it_was_pairs_two_strategies_and_judges_what_is_solved_afresh(tmp_path: Path) -> None:
    for name in ("one", "two"):
        task(tmp_path / "tasks" / name)
    (tmp_path / "tasks/not-a-task").mkdir()
    out = tmp_path / "out.jsonl"
    given = [tmp_path / "tasks", "--run-config", config(tmp_path, RIGHT), "--out", out, "--tries", "2", "--limit", "1"]
    first = command(*given, "--strategy", "repair", verb="bench")
    assert first.returncode == 0, first.stderr
    out.write_text(out.read_text() + '{"task": "one", "torn')
    both = [*given, "--strategy", "repair", "--strategy", "samples"]
    second = command(*both, verb="bench")
    assert second.returncode == 0 and "one (m, repair)" not in second.stderr and "one (m, samples)" in second.stderr
    results = [json.loads(text) for text in out.read_text().splitlines() if text.endswith("}")]
    assert [(r["task"], r["strategy"], r["verified"]) for r in results] == [("one", "repair", True), ("one", "samples", True)]
    rows = [row.split() for row in second.stdout.splitlines()]
    assert rows[0][:6] == ["model", "strategy", "tasks", "≤1", "≤2", "solved"]
    assert [(row[:7], row[-1]) for row in rows[1:3]] == [(["m", s, "1", "1", "1", "100.0", "%"], "0") for s in ("repair", "samples")]
    assert "both 1, only repair 0, only samples 0, neither 0; sign test p = 1.000" in second.stdout
    third = command(*both, verb="bench")
    assert third.stdout == second.stdout and third.stderr == ""


@pytest.mark.slow
def test_tries_that_a_budget_ended_are_not_counted_and_three_in_a_row_end_the_bench(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        task(tmp_path / "tasks" / name)
    out = tmp_path / "out.jsonl"
    done = command(tmp_path / "tasks", "--run-config", config(tmp_path, HALF, budgets={"calls": 0}), "--out", out, verb="bench")
    assert done.returncode == 76 and not out.exists() and done.stdout == ""
    assert "3/4 c" in done.stderr and "4/4" not in done.stderr and "ended after 3 of 4" in done.stderr


def result(name: str, solved: bool, strategy: str = "repair", **more: Any) -> Result:
    fields = {"given": "", "model": "m", "tries": 2, "attempts": 2, "passed": 1, "owed": 1, "tokens_prompt": 90, "tokens_completion": 10}
    rest = {"seconds_model": 1.0, "seconds": 2.0, "verdict": "", "task": name, "solved": solved, "strategy": strategy}
    return Result.model_validate(fields | rest | more)


def test_the_table_counts_attempts_tokens_false_done_and_pairs() -> None:
    repair = [result("a", True, attempts=1), result("b", True, verified=False), result("c", False), result("d", False)]
    samples = [result("a", True, "samples"), *(result(n, s, "samples") for n, s in (("b", False), ("c", True), ("e", True)))]
    lines = table.lines(table.columns([*repair, *samples]))
    assert lines[1].split() == ["m", "repair", "4", "1", "2", "50.0", "%", "200", "2.0", "1"]
    assert lines[2].split() == ["m", "samples", "4", "0", "3", "75.0", "%", "133", "2.0", "0"]
    assert lines[-1].startswith("repair against samples, by task: both 1, only repair 1, only samples 1, neither 0")
    assert table.false_done(repair) == ["b"]


@pytest.mark.parametrize(("first", "second", "p"), [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (8, 1, 0.0390625), (3, 3, 1.0)])
def test_the_sign_test_is_exact(first: int, second: int, p: float) -> None:
    assert table.Paired(10, first, second, 4).p == pytest.approx(p)


def test_a_result_survives_its_line_and_exercism_is_read_without_its_solution(tmp_path: Path) -> None:
    found = result("a", True)
    assert Result.model_validate_json(line(found)) == found
    read = read_task(task(tmp_path / "money"))
    assert read.instructions.startswith("# Introduction") and set(read.given.stubs) == {"money.py"}
    assert set(read.given.tests) == {"money_test.py"}
