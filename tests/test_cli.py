"""The command line and what README.md says about it: every command, every wrong use, every name that the README gives."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nightmill import __version__, scaffold
from nightmill.cli import DOIT_VERBS, main, parser
from nightmill.config import load
from nightmill.errors import EXIT_WORDS
from nightmill.graph import session as sessions
from nightmill.graph.context import Ctx
from nightmill.graph.execute import execute
from nightmill.graph.stage import Stage
from nightmill.paths import load_dodo, skills_dir, templates_dir
from runs import DOIT, NIGHTMILL, environment, run
from small_runs import opened, scratch, small_run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ANYWHERE = ("new", "demo", "fake-server", "try", "bench")
"""Commands that need no run directory."""


def commands() -> dict[str, argparse.ArgumentParser]:
    (verbs,) = [a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(verbs.choices)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory beside a source tree `old/`."""
    with scratch() as folder:
        (folder / "old").mkdir()
        (folder / "old/main.py").write_text("def main(argv):\n    return 0\n")
        monkeypatch.chdir(folder)
        yield folder
        sessions.set_current(None)


def helped(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


# -- help --------------------------------------------------------------------------------------


def test_help_lists_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    told = helped(capsys).partition("exit codes:")[2]
    assert {int(code) for code in re.findall(r"(?<!\S)(\d{1,3})  (?=\w)", told)} == set(EXIT_WORDS)


def test_help_lists_every_command_with_what_it_does_and_doits_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    told = helped(capsys)
    for name in commands():
        assert re.search(rf"^    {name}\s+\w", told, re.M), name
    assert "run|list|info|forget" in told


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert helped(capsys, name).startswith(f"usage: nightmill {name}")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"nightmill {__version__}\n"


# -- wrong use ---------------------------------------------------------------------------------

NEW = ["new", "x", "--source"]
WRONG = [
    *([], ["nosuch"], ["--nosuch"], ["new"], ["new", "x"], ["new", "", "--source", "old"], NEW, [*NEW, "nowhere"], [*NEW, "old/main.py"]),
    *([*NEW, "old", "--context", "many"], ["demo", "--scripted", "--provider", "http://h"], ["demo", "extra"]),
    *(["keep"], ["redo"], ["merge"], ["status", "extra"]),
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_use_is_one_line_and_exit_3_and_makes_nothing(here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 3
    said = capsys.readouterr()
    assert said.out == "" and re.fullmatch(r"nightmill: [^\n]+\n", said.err)
    assert sorted(p.name for p in here.iterdir()) == ["old"]


@pytest.mark.parametrize("name", sorted({*commands(), "run", "list", "info", "forget"} - {*ANYWHERE}))
def test_outside_a_run_every_other_command_says_how_to_start_one(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main([name, *(["contract"] if name in ("keep", "redo", "merge", "info") else [])]) == 3
    assert re.fullmatch(
        r"nightmill: no run\.yaml in \S+ or above\. Start a run: nightmill new NAME --source PATH\n", capsys.readouterr().err
    )
    assert sorted(p.name for p in here.iterdir()) == ["old"]


@pytest.mark.parametrize("verb", ["why", "keep", "redo", "merge", "run", "info", "forget"])
def test_a_stage_that_does_not_exist_is_named_and_exit_3(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(small_run(here / "run"))
    assert main([verb, "contrakt"]) == 3
    assert "contrakt" in "".join(capfd.readouterr())


def test_a_bug_keeps_its_traceback_and_is_exit_2(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaffold, "new_run", lambda *a, **k: 1 / 0)
    assert main(["new", "x", "--source", "old"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("command", [*([*NIGHTMILL, verb] for verb in ("status", "why", "list")), [*DOIT, "list"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(here: Path, command: list[str]) -> None:
    root = small_run(here / "run")
    (root / "doit.cfg").write_bytes((templates_dir() / "new_doit.cfg.j2").read_bytes())
    with subprocess.Popen(command, cwd=root, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout and child.stderr
        child.stdout.close()
        said = child.stderr.read().decode()
    assert "Traceback" not in said and "Exception" not in said


# -- new ---------------------------------------------------------------------------------------


def test_the_command_of_the_readme_starts_a_run_that_waits_for_its_mission(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = re.findall(r"^\S*nightmill (new .*)$", README, re.M)
    arguments = [("old" if "/src/" in word else word) for word in shlex.split(line)]
    assert main(arguments) == 0
    root = here / "runs" / arguments[1]
    assert re.search(rf"cd {re.escape(str(root))} && \S*doit$", capsys.readouterr().out, re.M)
    assert sorted(p.name for p in root.iterdir()) == ["doit.cfg", "mission.md", "run.yaml"]
    config = load(root / "run.yaml")
    assert config.providers["local"].url == arguments[arguments.index("--provider") + 1]
    assert config.candidates("architect")[0].model == arguments[arguments.index("--model") + 1]
    assert config.source == str(here / "old")
    done = run(root, command=DOIT)
    assert (done.code, done.events) == (78, ())
    assert re.fullmatch(r"nightmill: \S+/mission\.md is not written yet: [^\n]+\n", done.err)


@pytest.mark.parametrize("name", ["old", "with space", "it's", 'quo"te', "# no comment", "über", "a: b", "{{ x }}", "- dash"])
def test_a_source_of_any_name_is_found_again(here: Path, name: str) -> None:
    (here / name).mkdir(exist_ok=True)
    (here / name / "main.py").write_text("x = 1\n")
    assert main(["new", "x", "--source", name]) == 0
    session = opened(here / "runs/x")
    assert session.source_root == here / name and set(session.source_files) == {"main.py"}


def test_a_name_with_a_slash_is_a_path_and_a_run_is_never_made_over_another(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "./deep/er/ledger", "--source", "old", "--context", "8192"]) == 0
    assert load(here / "deep/er/ledger/run.yaml").candidates("default")[0].context == 8192
    before = (here / "deep/er/ledger/run.yaml").read_bytes()
    assert main(["new", "./deep/er/ledger", "--source", "old"]) == 3
    assert "run.yaml already" in capsys.readouterr().err
    assert (here / "deep/er/ledger/run.yaml").read_bytes() == before


def test_new_keeps_a_mission_that_is_there_and_refuses_a_directory_that_is_somebody_elses(here: Path) -> None:
    for folder in ("ours", "theirs"):
        (here / folder).mkdir()
    (here / "ours/mission.md").write_text("My own words.\n")
    (here / "theirs/doit.cfg").write_text("[GLOBAL]\n")
    assert main(["new", "./ours", "--source", "old"]) == 0
    assert (here / "ours/mission.md").read_text() == "My own words.\n"
    assert main(["new", "./theirs", "--source", "old"]) == 3
    assert [(p.name, p.read_text()) for p in (here / "theirs").iterdir()] == [("doit.cfg", "[GLOBAL]\n")]


def test_a_fresh_run_answers_every_question_about_it(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["new", "x", "--source", "old"])
    (here / "runs/x/sub").mkdir()
    monkeypatch.chdir(here / "runs/x/sub")
    capfd.readouterr()
    for arguments, said in {
        ("status",): "no run yet: doit starts one",
        ("why", "intake"): "intake: stale",
        ("list",): "integrate",
        ("forget",): "",
        ("help",): "",
    }.items():
        assert main(list(arguments)) == 0, arguments
        assert said in capfd.readouterr().out, arguments
        monkeypatch.chdir(here / "runs/x/sub")


# -- README ------------------------------------------------------------------------------------


def block(name: str) -> str:
    found = re.findall(rf"^<!-- ci: {name} -->\n```sh\n(.*?)\n```$", README, re.M | re.S)
    assert len(found) == 1, f"README.md has {len(found)} blocks marked ci: {name}"
    return str(found[0])


@pytest.mark.parametrize(("name", "program"), [("demo", "nightmill"), ("tests", "pytest")])
def test_the_commands_that_ci_runs_stand_in_the_readme_and_name_files_that_exist(name: str, program: str) -> None:
    setup, _, then = block(name).partition(" && ")
    script = ROOT / shlex.split(setup)[0]
    assert script.is_file() and script.stat().st_mode & 0o111
    assert shlex.split(then)[0] == f".venv/bin/{program}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]["dev"] if "--dev" in setup else []
    assert program in project["scripts"] or any(d.startswith(program) for d in project["dependencies"])
    assert "-n" not in then or any(d.startswith("pytest-xdist") for d in extras)
    assert f"readme {name}" in (ROOT / ".ci/run").read_text()


def test_every_nightmill_command_in_the_readme_exists() -> None:
    shown = re.findall(r"^```(?:sh|console)\n(.*?)^```|^    (\S.*?)$|`([^`\n]+)`", README, re.M | re.S)
    used = {name for text in shown for name in re.findall(r"(?:^|/| )nightmill (\w[\w-]*)", "".join(text), re.M)}
    assert {"new", "demo", "why", "keep", "redo", "merge", "status", "run"} <= used
    assert used - set(commands()) - set(DOIT_VERBS) == set()


def test_the_stage_that_the_readme_shows_is_one() -> None:
    """Executed as it stands: its imports, its header, and a reply through its body."""
    (text,) = re.findall(r"^   ```python\n(.*?)^   ```", README, re.M | re.S)
    scope: dict[str, object] = {}
    exec(compile(re.sub(r"^   ", "", text, flags=re.M), "stages/glossary.py", "exec"), scope)
    stage = scope["glossary"]
    assert isinstance(stage, Stage) and stage.makes == ("glossary.md",) and stage.doc
    assert (skills_dir() / f"{stage.skill}.md").is_file() and (templates_dir() / stage.template).is_file()
    with scratch() as folder:
        root = small_run(folder / "run", {"glossary": "- argv counts (main.py:1)\n"})
        (root / "contract.md").write_text("C1: counts\n")
        execute(opened(root), load_dodo().intake)
        ctx = Ctx(opened(root), stage)
        stage.body(ctx)
    assert ctx.content == {"glossary.md": b"- argv counts (main.py:1)\n"}
