"""What is wrong with a run is told in one line that names cause and remedy, with the documented exit code, and nothing is lost."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_server import FakeServer, Say, closed_port, error, html
from faults_help import HURRIED
from nightmill.run.atomic import write_atomic
from runs import DOIT, NIGHTMILL, Ran, environment, events_of, run

SECRET_KEY = "NIGHTMILL_TEST_KEY_THAT_NOBODY_SETS"


def refused(done: Ran, code: int, *words: str) -> None:
    """One line on stderr, nothing else."""
    assert done.code == code, done.out + done.err
    (line,) = done.err.splitlines()
    assert line.startswith("nightmill: ")
    assert [word for word in words if word not in line] == []


def ended(done: Ran, code: int, *words: str) -> None:
    """A run that began and ended so: its one summary is on stdout."""
    assert done.code == code, done.out + done.err
    assert "Traceback" not in done.out + done.err
    assert [word for word in words if word not in done.out] == []


def bare(root: Path, **options: object) -> Ran:
    """`doit` without a look at its events, which may be unreadable."""
    done = subprocess.run(
        DOIT,
        cwd=root,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    return Ran(done.returncode, done.stdout, done.stderr, ())


def limited(root: Path, kind: int, value: int) -> Ran:
    return bare(root, preexec_fn=lambda: resource.setrlimit(kind, (value, value)))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# -- mission -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is not written yet"),
        (b"# Mission\n\n<!-- say\nhere -->\n## Keep\n", "is not written yet"),
        (b"# Mission\n<!-- never closed: no mission here\n", "is not written yet"),
        (b"caf\xe9 \xff", "is not UTF-8 text: save it as UTF-8"),
        (None, "mission.md is missing"),
    ],
    ids=["empty", "headings and comments", "open comment", "not UTF-8", "missing"],
)
def test_a_run_without_a_mission_is_refused(demo_run: Path, text: bytes | None, said: str) -> None:
    path = demo_run / "mission.md"
    path.unlink()
    if text is not None:
        path.write_bytes(text)
    refused(run(demo_run), 78, said)


def test_a_new_run_refuses_until_its_mission_is_written(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/a.py").write_text("def f():\n    return 1\n")
    assert run(tmp_path, "new", "my run", "--source", "old", command=NIGHTMILL).code == 0
    refused(run(tmp_path / "runs/my run"), 78, "mission.md is not written yet")


def test_a_mission_that_is_a_directory_is_named(demo_run: Path) -> None:
    (demo_run / "mission.md").unlink()
    (demo_run / "mission.md").mkdir()
    refused(run(demo_run), 78, "mission.md is no file")


# -- run.yaml ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("budgets:", "budget:", "unknown key `budget`: did you mean `budgets`?"),
        ("wall_s:", "wal_s:", "unknown key `gates.wal_s`: did you mean `wall_s`?"),
        ("temperature:", "temprature:", "unknown key `models.default.temprature`: did you mean `temperature`?"),
        ("replies:", "replys:", "unknown key `providers.scripted.replys`: did you mean `replies`?"),
        ("kind: scripted", "kind: scriptd", "its kind should be one of openai, scripted"),
        ("kind: scripted", "knd: scripted", "unknown key `providers.scripted.knd`: did you mean `kind`?"),
        ("wall_s: 120", "wall_s: .inf", "gates.wall_s: should be a finite number"),
        ("pipeline: rewrite", "pipeline: rewirte", "there is no pipeline `rewirte`"),
        ('source: "v1"', "source: ~nobody-of-this-name/x", "there is no such user"),
        ('source: "v1"', 'source: ""', "source"),
        ('source: "v1"', "source: .", "is the run directory itself"),
        ('source: "v1"', "source: v1/tearoom/money.py", "is a file"),
        ('source: "v1"', "source: v2000", "does not exist"),
        ("python: null", "python: /nonexistent", "gates.python"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_line_of_run_yaml_is_named_with_the_near_miss(demo_run: Path, old: str, new: str, said: str) -> None:
    edit(demo_run / "run.yaml", old, new)
    refused(run(demo_run), 78, said)


def test_a_missing_run_yaml_is_no_run(demo_run: Path) -> None:
    (demo_run / "run.yaml").unlink()
    refused(run(demo_run), 3, "no run.yaml", "nightmill new")
    (demo_run / "run.yaml").mkdir()
    refused(run(demo_run, "status", command=NIGHTMILL), 3, "no run.yaml")


def test_every_verb_names_a_broken_run_yaml(finished_run: Path) -> None:
    (finished_run / "run.yaml").write_text("source: [\n")
    for verb in (["list"], ["info", "plan"], ["forget"], ["run"]):
        refused(run(finished_run, *verb), 78, "run.yaml line 2: not valid YAML")
    for verb in (["status"], ["why"], ["redo", "plan"]):
        refused(run(finished_run, *verb, command=NIGHTMILL), 78, "run.yaml line 2: not valid YAML")


# -- source ------------------------------------------------------------------------------------


def source_of(root: Path, make: Callable[[Path], object]) -> Ran:
    shutil.rmtree(root / "v1")
    make(root / "v1")
    return run(root, "intake")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda v1: v1.mkdir(), "has no text files that count as source"),
        (lambda v1: v1.symlink_to("v1"), "does not exist"),
        (lambda v1: (v1.mkdir(), (v1 / "a.txt").write_text("x")), "is in no language"),
        (lambda v1: (v1.mkdir(), [(v1 / f"{n}.py").touch() for n in range(6000)]), "holds 6000 files, more than 5000"),
        (lambda v1: (v1.mkdir(), [(v1 / f"{n}.py").write_text("x=1\n" * 240_000) for n in range(53)]), "holds more than 50 MB of text"),
    ],
    ids=["empty", "link to itself", "no code", "6000 files", "51 MB"],
)
def test_a_source_that_cannot_be_used_is_refused(demo_run: Path, make: Callable[[Path], object], said: str) -> None:
    refused(source_of(demo_run, make), 78, said)


def test_files_with_names_that_a_list_cannot_hold_are_left_out(demo_run: Path) -> None:
    def odd_names(v1: Path) -> None:
        v1.mkdir()
        (v1 / "good.py").write_text("x = 1\n")
        (v1 / "two\nlines.py").write_text("y = 1\n")
        Path(os.fsdecode(os.fsencode(v1) + b"/\xff.py")).write_text("z = 1\n")
        os.mkfifo(v1 / "pipe.py")
        (v1 / "loop").symlink_to(".")

    done = source_of(demo_run, odd_names)
    assert done.code == 0, done.out + done.err
    assert [line.split("  ")[1] for line in (demo_run / "source.lock").read_text().splitlines()] == ["good.py"]
    assert "a name that cannot be printed: 2" in (demo_run / "source.md").read_text()


def test_runs_inside_the_source_are_not_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    return 1\n")
    assert run(tmp_path, "new", "one", "--source", ".", command=NIGHTMILL).code == 0
    root = tmp_path / "runs/one"
    (root / "mission.md").write_text("Keep f.\n")
    (root / "run.yaml").write_text((root / "run.yaml").read_text().replace("url:", "url: http://127.0.0.1:1/v1 #"))
    assert run(root, "intake").code == 0
    assert [line.split("  ")[1] for line in (root / "source.lock").read_text().splitlines()] == ["a.py"]
    assert "a nightmill run: 1 (runs/one/)" in (root / "source.md").read_text()


# -- providers ---------------------------------------------------------------------------------


def asking(root: Path, url: str, provider: str = "", model: str = "", more: str = "") -> Path:
    """The demo with a server instead of scripted replies."""
    (root / "run.yaml").write_text(
        f'source: v1\nproviders:\n  local: {{url: "{url}"{provider}}}\n'
        f"models:\n  default: {{provider: local, model: fake-model{model}}}\n{more}"
    )
    return root


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (f", api_key_env: {SECRET_KEY}", f"{SECRET_KEY} (providers: api_key_env) is not set"),
        (", api_key_file: nokey", "cannot read the key file"),
        (", api_key_file: mission.md", "should hold the key alone, on one line"),
    ],
)
def test_a_missing_key_is_told_before_anything_is_asked(demo_run: Path, provider: str, said: str) -> None:
    refused(run(asking(demo_run, "http://127.0.0.1:1/v1", provider)), 78, said)
    assert not [e for e in events_of(demo_run) if e.kind == "call_started"]


@pytest.mark.parametrize(
    ("scenario", "code", "said"),
    [
        (error(401, "Invalid API Key"), 77, "answered 401: put a valid key"),
        (error(404, "model not found"), 77, "model not found: correct `model`"),
        (error(429, "slow down", retry_after="5000"), 77, "it asks to wait 5000 s"),
        (error(400, "no"), 77, "answered 400"),
        (Say("I will not do that."), 1, "refused three times"),
        (Say("half of", finish="length"), 77, "raise `max_tokens`"),
        (Say(""), 77, "raise `max_tokens` if the model only reasons"),
    ],
    ids=["401", "404", "429", "400", "rubbish", "cut off", "empty"],
)
@pytest.mark.slow
def test_a_server_that_gives_no_usable_answer_ends_the_run_honestly(demo_run: Path, scenario: Say, code: int, said: str) -> None:
    with FakeServer([scenario]) as server:
        ended(run(asking(demo_run, server.url)), code, "contract:1", said)
    assert "contract" not in {e.stage for e in events_of(demo_run) if e.kind == "stage_finished" and e.status == "made"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (html(), "HTML page"),
        (error(429, "slow down", retry_after="1"), "slow down (8 tries)"),
        (Say("half of it", drop=4), "look into the server's log"),
        (Say("half of it", hang=4), "see whether the server still works"),
    ],
    ids=["HTML", "429", "closed mid-stream", "silent"],
)
def test_a_server_that_stays_bad_is_given_up_after_a_few_tries(demo_run: Path, scenario: Say, said: str) -> None:
    hurried = HURRIED if "slow down" in said else DOIT  # three minutes of waits
    with FakeServer([scenario]) as server:
        ended(run(asking(demo_run, server.url, ", idle_s: 1"), command=hurried), 77, said)


@pytest.mark.slow
def test_a_port_where_nobody_listens_is_named(demo_run: Path) -> None:
    port = closed_port()
    ended(run(asking(demo_run, f"http://127.0.0.1:{port}/v1")), 77, f"nothing listens at 127.0.0.1:{port}", "correct `url`")


@pytest.mark.slow
def test_a_server_that_is_loading_is_waited_for(demo_run: Path) -> None:
    with FakeServer(["I will not do that."], loading=3) as server:
        ended(run(asking(demo_run, server.url), "contract:1"), 1, "refused three times")


def test_a_cap_ends_the_run_with_76_however_often_it_is_started(demo_run: Path) -> None:
    with FakeServer(["VERDICT: APPROVED"]) as server:
        asking(demo_run, server.url, more="budgets: {calls: 1}\n")
        for _ in range(2):
            ended(run(demo_run), 76, "1 of 1 calls", "raise budgets.calls")
        assert len(server.calls) == 1


# -- the run's memory --------------------------------------------------------------------------

BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "random": lambda data: bytes(range(256)) * (len(data) // 256 + 1),
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "other JSON": lambda data: b'[1, 2]\nnull\n"x"\n{"act": "made", "stage": 1, "path": 2, "sha": 3, "at": "x", "kind": "note"}\n',
    "nested": lambda data: b"[" * 100_000,
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.slow
def test_a_broken_journal_event_log_or_database_costs_nothing(finished_run: Path, how: str) -> None:
    for name in ("journal.jsonl", "events.jsonl", "doit.db", "lock"):
        path = finished_run / ".nightmill" / name
        path.write_bytes(BROKEN[how](path.read_bytes()))
    before = {p: p.read_bytes() for p in finished_run.glob("*.md") if p.name != "deviations.md"}
    done = run(finished_run)
    assert (done.code, done.asked, done.err) == (0, [], "")
    assert {p: p.read_bytes() for p in before} == before
    assert run(finished_run, "list").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["random", "nested", "other JSON"])
def test_broken_stamps_and_calls_are_made_again(finished_run: Path, how: str) -> None:
    for path in [*(finished_run / ".nightmill/stamps").iterdir(), *(finished_run / ".nightmill/calls").iterdir()]:
        path.write_bytes(BROKEN[how](path.read_bytes()))
    done = run(finished_run, "contract")
    assert done.code == 0, done.out + done.err


@pytest.mark.parametrize("name", ["", "journal.jsonl", "events.jsonl", "doit.db", "lock", "objects", "stamps", "calls"])
def test_something_of_another_kind_in_the_runs_memory_is_named(demo_run: Path, name: str) -> None:
    path = demo_run / ".nightmill" / name
    path.parent.mkdir(exist_ok=True)
    if "." in name or name == "lock":
        path.mkdir()
    else:
        path.write_text("x")
    refused(bare(demo_run), 78, f".nightmill/{name}".rstrip("/"), "move away what is there")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["contract.md", "plan.md", "schema", "drafts", "milestones"])
def test_something_of_another_kind_in_the_place_of_an_artifact_is_named(finished_run: Path, name: str) -> None:
    path = finished_run / name
    if path.is_dir():
        shutil.rmtree(path)
        path.symlink_to("nowhere")
    else:
        path.unlink()
        path.mkdir()
    refused(run(finished_run), 78, f"{path} should be a", "move away what is there")


@pytest.mark.slow
def test_a_snapshot_whose_list_was_spoilt_is_not_taken_for_an_empty_source(finished_run: Path) -> None:
    (finished_run / "source.lock").write_bytes(b"\xff garbage\n")
    ended(run(finished_run), 1, "nightmill redo intake")
    assert run(finished_run, "redo", "intake", command=NIGHTMILL).code == 0
    assert run(finished_run).code == 0


# -- the machine -------------------------------------------------------------------------------


def test_files_that_may_not_grow_and_too_few_descriptors_are_the_machines_fault(demo_run: Path) -> None:
    refused(limited(demo_run, resource.RLIMIT_FSIZE, 0), 78, "ulimit -f")
    refused(limited(demo_run, resource.RLIMIT_NOFILE, 12), 78, "ulimit -n")


def mounted(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A shell script with mounts of its own; skips where that is not allowed."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("room", ["300k", "450k", "520k"])
@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_loses_nothing_that_was_asked(demo_run: Path, tmp_path: Path, room: str) -> None:
    saved = tmp_path / "saved"
    script = (
        f'mount -t tmpfs -o size={room} none "$2" && cp -r "$1"/. "$2" && cd "$2" && shift 2; "$@"; code=$?; cp -r . {saved}; exit $code'
    )
    (tmp_path / "small").mkdir()
    done = mounted(script, str(demo_run), str(tmp_path / "small"), *DOIT, "schema")
    assert done.returncode == 78, done.stdout + done.stderr
    assert "the disk is full" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    finished = {path.name for path in (saved / ".nightmill/calls").glob("*.json")}
    again = run(saved, "schema")
    assert again.code == 0, again.err
    assert not finished & {f"{e.key}.json" for e in again.events if e.kind == "call_started"}
    assert list(saved.rglob("*.tmp")) == []


def test_a_read_only_run_can_be_looked_at_but_not_worked_in(finished_run: Path) -> None:
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && cd "$1" && shift; exec "$@"'
    for command in ([*DOIT], [*DOIT, "forget"], [*NIGHTMILL, "redo", "plan"]):
        done = mounted(script, str(finished_run), *command)
        assert done.returncode == 78, done.stderr
        assert "read-only" in done.stderr and len(done.stderr.splitlines()) == 1
    for command in ([*DOIT, "list"], [*NIGHTMILL, "status"], [*NIGHTMILL, "why"]):
        assert mounted(script, str(finished_run), *command).returncode == 0


def test_without_bubblewrap_nothing_is_asked(demo_run: Path) -> None:
    bubblewrap = shutil.which("bwrap")
    assert bubblewrap
    done = mounted('mount --bind /dev/null "$1" && cd "$2" && shift 2; exec "$@"', bubblewrap, str(demo_run), *DOIT)
    assert done.returncode == 78
    assert "bubblewrap is not installed" in done.stderr and "apt install bubblewrap" in done.stderr
    assert not [e for e in events_of(demo_run) if e.kind == "call_started"]


def test_without_git_the_source_cannot_be_listed(demo_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    refused(run(demo_run), 78, "git is not installed", "apt-get install git")


def test_a_narrow_umask_is_kept(demo_run: Path) -> None:
    subprocess.run(["sh", "-c", 'umask 077; exec "$@"', "sh", *DOIT, "contract:1"], cwd=demo_run, env=environment(), check=True)
    assert [oct(p.stat().st_mode) for p in (demo_run / "drafts/contract.1.md", demo_run / "summary.json")] == ["0o100600"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_disturb_a_run(demo_run: Path, closed: str) -> None:
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *DOIT, "contract:1"], cwd=demo_run, env=environment(), check=False)
    assert done.returncode == 0
    assert events_of(demo_run)[-1].kind == "run_ended"


def test_a_terminal_that_knows_only_ascii_is_spoken_to_in_ascii(finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    edit(finished_run / "mission.md", "\n", "\nmore\n")
    for verb, command in ((["why"], NIGHTMILL), (["info", "contract:1"], DOIT)):
        done = run(finished_run, *verb, command=command)
        assert "Traceback" not in done.err and "input mission.md" in done.out


@pytest.mark.parametrize("command", [[*NIGHTMILL, "status"], [*DOIT, "list"]])
def test_a_reader_that_leaves_is_no_error(finished_run: Path, command: list[str]) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" | true', "sh", *command], cwd=finished_run, env=environment(), capture_output=True, check=False
    )
    assert done.stderr == b""


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    for verb in ("status", "run", "demo"):
        script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", script, "sh", *NIGHTMILL, verb], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
        )
        assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr


# -- new ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 300, "./old/a.py", "./old/a.py/deeper"], ids=lambda name: name[:12])
def test_a_name_that_cannot_be_a_run_is_wrong_use(tmp_path: Path, name: str) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/a.py").write_text("x = 1\n")
    refused(run(tmp_path, "new", name, "--source", "old", command=NIGHTMILL), 3, "choose another")
    assert (tmp_path / "old/a.py").read_text() == "x = 1\n"


def test_new_keeps_a_mission_that_is_already_written(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "mission.md").write_text("My own words.\n")
    assert run(tmp_path, "new", ".", "--source", "old", command=NIGHTMILL).code == 0
    assert (tmp_path / "mission.md").read_text() == "My own words.\n"
    refused(run(tmp_path, "new", ".", "--source", "old", command=NIGHTMILL), 3, "holds a run.yaml already")


def test_new_leaves_another_doit_project_alone(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "doit.cfg").write_text("[GLOBAL]\n")
    refused(run(tmp_path, "new", ".", "--source", "old", command=NIGHTMILL), 3, "holds a doit.cfg already")


def test_a_file_with_the_longest_possible_name_can_be_made(tmp_path: Path) -> None:
    path = tmp_path / ("木" * 85)
    write_atomic(path, b"x")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
