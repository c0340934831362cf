"""Nothing outlives its owner: the orchestrator killed at any moment, runs in many threads, a guard that dies."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nightmill
from nightmill.errors import MachineError
from nightmill.gate import guard
from nightmill.gate.sandbox import Limits, find
from sandbox_help import SMALL, gone_within, processes_with, sandbox

ORCHESTRATOR = """
import sys
from pathlib import Path
from nightmill.gate.sandbox import find
scratch, token, unsandboxed = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "yes"
box = find(python=Path(sys.executable), scratch=scratch, unsandboxed=unsandboxed)
with box.workdir({}) as work:
    print("ready", flush=True)
    box.run(["/bin/sh", "-c", f"setsid nohup sh -c 'sleep 60; : {token}' & touch started; sleep 60; : {token}"], work)
"""


def orchestrator(scratch: Path, token: str, *, unsandboxed: bool = False) -> subprocess.Popen[bytes]:
    """A process of its own that is about to run something long."""
    env = dict(os.environ, PYTHONPATH=str(Path(nightmill.__file__).parent.parent))
    command = [sys.executable, "-c", textwrap.dedent(ORCHESTRATOR), str(scratch), token, "yes" if unsandboxed else "no"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, start_new_session=True)
    assert process.stdout and process.stdout.readline() == b"ready\n"
    return process


def kill_at(delay: float, scratch: Path, *, unsandboxed: bool = False) -> list[str]:
    """What survives a kill -9 so many seconds into a run."""
    token = f"nightmill-{uuid.uuid4()}"
    with orchestrator(scratch, token, unsandboxed=unsandboxed) as process:
        time.sleep(delay)
        process.kill()
    return gone_within(3, token)


def wait_for(condition) -> None:
    until = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("unsandboxed", [False, True])
def test_kill_9_of_a_running_orchestrator_leaves_no_process(tmp_path, unsandboxed):
    token = f"nightmill-{uuid.uuid4()}"
    with orchestrator(tmp_path, token, unsandboxed=unsandboxed) as process:
        wait_for(lambda: list(tmp_path.glob("*/started")) and len(processes_with(token)) >= 4)  # orchestrator, guard, both shells
        process.kill()
    assert gone_within(3, token) == []


def test_kill_9_while_the_sandbox_is_being_set_up_leaves_no_process(tmp_path):
    chance = random.Random(7)
    assert [left for _ in range(4) if (left := kill_at(chance.uniform(0, 0.06), tmp_path))] == []


@pytest.mark.slow
@pytest.mark.parametrize("unsandboxed", [False, True])
def test_kill_9_at_a_hundred_moments_leaves_no_process(tmp_path, unsandboxed):
    chance = random.Random(8)
    survivors = [left for _ in range(100) if (left := kill_at(chance.uniform(0, 0.12), tmp_path, unsandboxed=unsandboxed))]
    assert survivors == []


def test_a_terminal_interrupt_of_the_orchestrator_ends_the_run(tmp_path):
    token = f"nightmill-{uuid.uuid4()}"
    with orchestrator(tmp_path, token) as process:
        wait_for(lambda: list(tmp_path.glob("*/started")))
        os.killpg(process.pid, signal.SIGINT)
        process.wait(5)
    assert processes_with(token) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("delay", [0, 0.002, 0.004, 0.006, 0.01, 0.2])
def test_a_guard_killed_from_outside_takes_the_command_along(delay):
    token = f"nightmill-{uuid.uuid4()}"
    box = sandbox()

    def kill_guard() -> None:
        wait_for(lambda: any(guard.descendants(pid) for pid in guards()))
        time.sleep(delay)
        os.kill(guards()[0], signal.SIGKILL)

    def guards() -> list[int]:
        return [pid for pid in guard.children(os.getpid()) if token in Path(f"/proc/{pid}/cmdline").read_text()]

    killer = threading.Thread(target=kill_guard)
    killer.start()
    with box.workdir({}) as work, pytest.raises(MachineError, match="guards a command died"):
        box.run(["/bin/sh", "-c", f"sleep 60; : {token}"], work)
    killer.join()
    assert gone_within(3, token) == []


def test_runs_in_many_threads_do_not_disturb_each_other():
    box = sandbox()
    begin = time.monotonic()

    def one(i: int) -> tuple[int | None, str | None, bytes | None]:
        with box.workdir({"n": str(i).encode()}) as work:
            slow = i % 4 == 0
            script = "sleep 30" if slow else f"sleep 0.2; cat n > out; exit {i}"
            ran = box.run(["/bin/sh", "-c", script], work, limits=Limits(wall_s=1) if slow else SMALL)
            return ran.exit, ran.killed, work.read("out", 9)

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(one, range(12)))
    assert results == [(None, "wall", None) if i % 4 == 0 else (i, None, str(i).encode()) for i in range(12)]
    assert time.monotonic() - begin < 8


def test_a_run_leaves_no_file_descriptor_open():
    box = sandbox()

    def count() -> int:
        with box.workdir({}) as work:
            box.run(["/bin/true"], work)
        return len(list(Path("/proc/self/fd").iterdir()))

    assert count() == count()


def test_exit_codes_and_signals_are_told_apart():
    box = sandbox()
    with box.workdir({}) as work:
        codes = [box.run(["/bin/sh", "-c", script], work) for script in ("exit 0", "exit 7", "kill -SEGV $$", "exec /nonexistent")]
    assert [(ran.exit, ran.signal) for ran in codes] == [(0, None), (7, None), (None, 11), (127, None)]


def test_an_unknown_command_is_a_failed_command_and_options_stay_arguments():
    box = sandbox()
    with box.workdir({}) as work:
        for name in ("nonexistent", "--bind", "--nproc=1"):
            ran = box.run([name], work)
            assert ran.exit in (126, 127) and b"No such file" in ran.output


def test_files_are_bound_read_only_where_asked(tmp_path):
    (tmp_path / "plugin.py").write_text("hello")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("there")
    bind = {"/opt/nm/plugin.py": tmp_path / "plugin.py", "/opt/nm/folder": tmp_path / "folder"}
    box = sandbox()
    with box.workdir({}) as work:
        script = "cat /opt/nm/plugin.py /opt/nm/folder/file; touch /opt/nm/folder/new; echo $GREETING"
        ran = box.run(["/bin/sh", "-c", script], work, bind=bind, env={"GREETING": "--bind"})
    assert ran.output.startswith(b"hellothere") and b"Read-only" in ran.output and ran.output.endswith(b"--bind\n")


def test_a_scratch_directory_that_cannot_be_written_is_the_machines_trouble(tmp_path):
    find(python=Path(sys.executable), scratch=tmp_path / "made/on/the/way")
    assert list((tmp_path / "made/on/the/way").iterdir()) == []
    with pytest.raises(MachineError, match=r"^/sys/nightmill: .*permi"):
        find(python=Path(sys.executable), scratch=Path("/sys/nightmill"))
