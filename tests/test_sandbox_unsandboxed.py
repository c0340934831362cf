"""The explicit override: no isolation, yet the limits a supervisor can keep, and a record that says so."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from nightmill.gate.sandbox import Limits, find
from sandbox_help import SMALL, gone_within, program

HERE = Path(sys.executable)


def test_the_record_says_unsandboxed():
    assert find(python=HERE, unsandboxed=True).protections == ("UNSANDBOXED",)


def test_no_bubblewrap_is_needed(tmp_path):
    box = find(python=HERE, unsandboxed=True, bwrap=Path("/nonexistent"), scratch=tmp_path)
    with box.workdir({"a.py": b"print('ran')"}) as work:
        assert box.run([box.python(HERE), "a.py"], work, limits=SMALL).output == b"ran\n"
    assert list(tmp_path.iterdir()) == []


def test_paths_inside_are_translated_and_the_environment_is_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    (tmp_path / "plugin").write_text("hello")
    box = find(python=HERE, unsandboxed=True)
    with box.workdir({"a": b"x"}) as work:
        script = "ls /build; cat /opt/nm/plugin; echo /builder --root=/build $WHERE $SOME_API_KEY"
        bind, env = {"/opt/nm/plugin": tmp_path / "plugin"}, {"WHERE": "/build/lib:/opt/nm/plugin"}
        ran = box.run(["/bin/sh", "-c", script], work, bind=bind, env=env)
        expected = f"a\nhello/builder --root={work.path} {work.path}/lib:{tmp_path}/plugin\n"
    assert ran.output.decode() == expected


def test_wall_output_memory_and_disk_limits_hold():
    box = find(python=HERE, unsandboxed=True)
    cases = {
        "wall": "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(9)",
        "output": "while True: print('x' * 1000)",
        "memory": "import time; x = bytearray(b'x') * (300 << 20); time.sleep(9)",
        "disk": "import time\nfor i in range(10): open(str(i), 'wb').write(b'x' * (10 << 20))\ntime.sleep(9)",
    }
    limits = Limits(wall_s=1.5, memory_mb=200, output_kb=64, disk_mb=24, file_mb=32)
    assert {name: program(code, limits, box).killed for name, code in cases.items()} == {name: name for name in cases}


def test_daemons_are_killed_with_the_command(tmp_path):
    token = f"nightmill-{uuid.uuid4()}"
    daemon = f"import subprocess\nsubprocess.Popen(['setsid', 'nohup', 'sh', '-c', 'setsid sleep 60 & sleep 60; : {token}'])\n"
    box = find(python=HERE, unsandboxed=True)
    ran = program(daemon, SMALL, box)
    assert ran.exit == 0 and gone_within(1, token) == []


def test_a_signal_and_an_exit_code_are_told_apart():
    box = find(python=HERE, unsandboxed=True)
    died, ended = program("import os; os.kill(os.getpid(), 11)", SMALL, box), program("raise SystemExit(139)", SMALL, box)
    assert (died.exit, died.signal, ended.exit, ended.signal) == (None, 11, 139, None)


def test_the_tree_given_is_a_copy(tmp_path):
    source = tmp_path / "source.py"
    source.write_text("x = 1")
    box = find(python=HERE, unsandboxed=True)
    with box.workdir({"source.py": source.read_bytes()}) as work:
        box.run(["/bin/sh", "-c", "echo changed > source.py"], work)
        assert work.read("source.py", 100) == b"changed\n" and work.path.stat().st_mode & 0o077 == 0
    assert source.read_text() == "x = 1"
