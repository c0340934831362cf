"""`nightmill providers`: whether backends answer, how they have been doing, and why which one is asked first."""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fake_server import FakeServer, closed_port
from health_help import ended, started
from nightmill.errors import UsageError
from nightmill.providers_view import View, providers
from nightmill.run.events import Event, EventLog
from nightmill.run.follow import Follower
from nightmill.run.lock import hold
from nightmill.run.rundir import RunDir

WATCH = (
    "import argparse, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from nightmill.providers_view import providers; sys.exit(providers(argparse.Namespace(watch=True, every=0.2)))"
)


def run_with(root: Path, models: object, **urls: str) -> RunDir:
    """A run directory whose providers are servers."""
    config = {"source": "v1", "providers": {name: {"url": url} for name, url in urls.items()}, "models": models}
    (root / "run.yaml").write_text(json.dumps(config))
    return RunDir(root)


def one(provider: str, **more: object) -> dict[str, object]:
    return {"provider": provider, "model": "m", **more}


def row(lines: list[str], name: str) -> str:
    return next(line for line in lines if line.startswith(name))


def state(view: View, name: str) -> str:
    return re.split(r"\s{2,}", row(view.lines(), name))[1]


@contextmanager
def silent() -> Iterator[str]:
    """The URL of a server that takes connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


def test_each_backend_is_up_loading_or_down_and_says_why(tmp_path: Path) -> None:
    with FakeServer(window=4096) as up, FakeServer(load_s=60) as loading:
        models = {"default": [one("near"), one("slow"), one("gone", context=2048)]}
        lines = View(run_with(tmp_path, models, near=up.url, slow=loading.url, gone=f"http://127.0.0.1:{closed_port()}")).lines()
    assert re.match(r"near/m\s+up .* 4,096 ", row(lines, "near"))
    assert re.match(r"slow/m\s+loading .* \? ", row(lines, "slow"))
    assert re.match(r"gone/m\s+down .* 2,048 as configured ", row(lines, "gone"))
    assert "    down: nothing listens at 127.0.0.1" in "\n".join(lines)


def test_a_look_neither_asks_a_model_nor_loads_one(tmp_path: Path) -> None:
    with FakeServer() as server:
        View(run_with(tmp_path, {"default": one("a")}, a=server.url)).lines()
        assert {request.method for request in server.requests} == {"GET"}
        assert not any("?" in request.path or "upstream" in request.path for request in server.requests)


def test_a_refused_key_is_told(tmp_path: Path) -> None:
    with FakeServer(api_key="secret") as server:
        lines = View(run_with(tmp_path, {"default": one("a")}, a=server.url)).lines()
    assert re.match(r"a/m\s+down", row(lines, "a/m"))
    assert "401" in lines[2]


def test_silent_servers_are_down_after_two_seconds_however_many_there_are(tmp_path: Path) -> None:
    with silent() as first, silent() as second, silent() as third, FakeServer() as up:
        models = {"default": [one("a"), one("b"), one("c"), one("up")]}
        view = View(run_with(tmp_path, models, a=first, b=second, c=third, up=up.url))
        began = time.monotonic()
        lines = view.lines()
        assert time.monotonic() - began < 4, "one after another they would take six"
    assert row(lines, "a/m").split()[1] == row(lines, "b/m").split()[1] == "down"
    assert row(lines, "up/m").split()[1] == "up"
    assert lines.count("    down: no answer within 2 s") == 3


def test_a_server_that_dies_is_seen_to_leave_and_to_come_back(tmp_path: Path) -> None:
    with FakeServer() as server:
        view = View(run_with(tmp_path, {"default": one("a")}, a=server.url))
        seen = [state(view, "a/m")]
        server.die(0.5)
        seen.append(state(view, "a/m"))
        deadline = time.monotonic() + 10
        while (now := state(view, "a/m")) != "up" and time.monotonic() < deadline:
            time.sleep(0.05)
    assert [*seen, now] == ["up", "down", "up"]


def test_what_another_process_writes_is_shown_at_the_next_refresh(tmp_path: Path) -> None:
    with FakeServer(window=None) as server:
        run = run_with(tmp_path, {"default": one("a")}, a=server.url)
        view = View(run)
        assert re.match(r"a/m\s+up\s+-\s+0\.00\s+0\.0\s+1\.00\s+\?\s+0\s+never", row(view.lines(), "a/m"))
        log = EventLog(run.state / "events.jsonl")
        now = time.time()
        for event in (started(now, window=8192), ended(now, seconds=31.0), ended(now, "dropped", detail="it \x1b[2Jbroke")):
            log.emit(event)
        lines = view.lines()
        assert re.match(r"a/m\s+up\s+31 s\s+0\.[12]\d\s+0\.0\s+1\.00\s+8,192 last known\s+2\s+\d\.\d s ago", row(lines, "a/m"))
        assert re.search(r"    last trouble \d\.\d s ago: dropped: it broke", "\n".join(lines))
        for _ in range(5):
            log.emit(ended(time.time(), "rate_limited"))
        assert state(view, "a/m") == "backing off"


def test_a_run_that_is_deleted_meanwhile_is_told_and_not_shown_as_a_new_one(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    view = View(run_with(root, {"default": one("a")}, a=f"http://127.0.0.1:{closed_port()}"))
    assert view.lines()
    root.rename(tmp_path / "moved")
    with pytest.raises(UsageError, match="is gone"):
        view.lines()


def test_each_role_shows_its_backends_in_the_order_in_which_they_are_asked_with_every_term(tmp_path: Path) -> None:
    with FakeServer() as server:
        models = {
            "default": [one("a"), one("b", price={"input": 1, "output": 1})],
            "reviewer": [one("b", quality=0.5), one("a", quality=0.9)],
        }
        run = run_with(tmp_path, models, a=server.url, b=server.url)
        now = time.time()
        EventLog(run.state / "events.jsonl").emit(ended(now, seconds=120.0))
        lines = View(run).lines()
    start = next(n for n, line in enumerate(lines) if line.startswith("roles"))
    scores = [line.split() for line in lines[start + 1 :]]
    assert scores[0] == ["architect", "3", "1.", "a/m", "0.00", "2.00", "0.00", "0.00", "0.00", "2.00"]
    assert scores[1] == ["2.", "b/m", "1.00", "2.00", "0.00", "0.00", "0.00", "3.00"]
    assert scores[2][:3] == ["tester,", "planner", "2"]
    assert scores[-2] == ["reviewer", "0", "1.", "a/m", "0.00", "2.00", "1.00", "0.00", "0.00", "3.00"]
    assert scores[-1] == ["2.", "b/m", "0.00", "2.00", "5.00", "0.00", "0.00", "7.00"]


def test_a_look_takes_no_lock_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer() as server:
        run = run_with(tmp_path, {"default": one("a")}, a=server.url)
        EventLog(run.state / "events.jsonl").emit(ended(time.time()))
        monkeypatch.chdir(tmp_path)
        with hold(run.lock):
            before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            assert providers(argparse.Namespace(watch=False, every=None)) == 0
            assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert "a/m" in capsys.readouterr().out


@pytest.mark.parametrize("every", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_senseless_pause_is_refused(every: float) -> None:
    with pytest.raises(UsageError, match="--every"):
        providers(argparse.Namespace(watch=True, every=every))


def test_a_follower_reads_on_from_where_it_stopped_and_waits_for_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = Follower(path)
    assert follower.read() == ([], False)
    events: list[Event] = [ended(float(n), key=f"k{n}") for n in range(4)]
    lines = [event.model_dump_json().encode() + b"\n" for event in events]
    path.write_bytes(lines[0] + lines[1][:20])
    assert follower.read() == (events[:1], False)
    with path.open("ab") as file:
        file.write(lines[1][20:] + b"foreign\n" + lines[2] + lines[3][:-1])
    assert follower.read() == (events[1:3], False)
    with path.open("ab") as file:
        file.write(b"\n")
    assert follower.read() == (events[3:], False)
    assert follower.read() == ([], False)


def test_a_follower_starts_over_when_the_file_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first, second = ended(1.0), ended(2.0)
    path.write_text(first.model_dump_json() + "\n" + second.model_dump_json() + "\n")
    follower = Follower(path)
    follower.read()
    (tmp_path / "new").write_text(second.model_dump_json() + "\n")
    (tmp_path / "new").replace(path)
    assert follower.read() == ([second], True)
    path.write_bytes(b"")
    assert follower.read() == ([], True)
    path.unlink()
    assert follower.read() == ([], True)


def watching(root: Path, output: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", WATCH], cwd=root, stdin=subprocess.DEVNULL, stdout=output, env=environment)


def read_until(fd: int, found: str, times: int) -> str:
    text, deadline = "", time.monotonic() + 20
    while text.count(found) < times and time.monotonic() < deadline:
        text += os.read(fd, 65536).decode()
    return text


def interrupted(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(10)


def test_watching_prints_a_block_for_each_refresh_where_there_is_no_terminal_until_it_is_interrupted(tmp_path: Path) -> None:
    with FakeServer() as server:
        run_with(tmp_path, {"default": one("a")}, a=server.url)
        readable, writable = os.pipe()
        process = watching(tmp_path, writable)
        os.close(writable)
        text = read_until(readable, "a/m  ", 6)
        assert interrupted(process) == 0
        os.close(readable)
    assert text.count("1 backend, every 0.2 s") >= 2
    assert "\x1b" not in text


def test_watching_redraws_a_terminal_and_never_scrolls_it(tmp_path: Path) -> None:
    with FakeServer() as server:
        run_with(tmp_path, {"default": one("a")}, a=server.url)
        master, slave = pty.openpty()
        os.set_blocking(master, True)
        subprocess.run(["stty", "cols", "50", "rows", "6"], stdin=slave, check=True)
        process = watching(tmp_path, slave)
        text = read_until(master, "\x1b[H", 3)
        assert interrupted(process) == 0
        os.close(slave)
        os.close(master)
    frames = text.split("\x1b[H")[1:-1]
    for frame in frames:
        lines = frame.removesuffix("\x1b[J").split("\x1b[K\r\n")
        assert len(lines) <= 6
        assert all(len(line) < 50 for line in lines)
    assert text.count("\x1b[2J") == 1


def test_watching_ends_when_nobody_reads_any_more(tmp_path: Path) -> None:
    with FakeServer() as server:
        run_with(tmp_path, {"default": one("a")}, a=server.url)
        readable, writable = os.pipe()
        process = watching(tmp_path, writable)
        os.close(writable)
        read_until(readable, "a/m", 1)
        os.close(readable)
        assert process.wait(10) == 0
