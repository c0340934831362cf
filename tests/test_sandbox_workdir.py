"""Work directories: what is written, what may be read back, and that everything can be removed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from nightmill.gate.disk import DiskUse, open_below, remove_tree
from nightmill.gate.workdir import Workdir, sweep
from sandbox_help import SMALL, sandbox


def test_a_tree_is_copied_with_plain_modes_and_scripts_are_executable(tmp_path):
    tree = {"a.py": b"x = 1\n", "deep/down/run.sh": b"#!/bin/sh\n", "bytes": bytes(range(256))}
    with Workdir(tree, scratch=tmp_path) as work:
        assert {rel: work.read(rel, 1000) for rel in tree} == tree
        modes = {rel: (work.path / rel).stat().st_mode & 0o7777 for rel in tree}
        assert modes == {"a.py": 0o644, "deep/down/run.sh": 0o755, "bytes": 0o644}
        assert work.path.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//b", "", ".", "a/\0"])
def test_a_path_that_leaves_the_tree_is_refused(tmp_path, path):
    with pytest.raises(ValueError, match="relative path"):
        Workdir({path: b""}, scratch=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_file_and_directory_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="a/b is both"):
        Workdir({"a/b": b"", "a/b/c": b""}, scratch=tmp_path)


HOSTILE = """
import os, socket
os.symlink("/etc/passwd", "link"); os.symlink("/etc", "folder"); os.mkfifo("fifo"); os.mkdir("directory")
open("one", "w").write("1"); os.link("one", "two")
open("large", "w").write("x" * 1001); open("fine", "w").write("y" * 1000)
os.makedirs("locked/in"); open("locked/in/file", "w").close(); os.chmod("locked/in", 0); os.chmod("locked", 0)
os.makedirs("read-only/in"); os.chmod("read-only/in", 0o500); os.chmod("read-only", 0o500)
socket.socket(socket.AF_UNIX).bind("socket")
for _ in range(2500):
    os.mkdir("d"); os.chdir("d")
open("deepest", "w").close()
"""


def test_what_hostile_code_leaves_is_neither_followed_nor_kept():
    box = sandbox()
    with box.workdir({"p.py": HOSTILE.encode()}) as work:
        ran = box.run([box.python(Path(sys.executable)), "p.py"], work, limits=SMALL)
        refused = ["link", "folder/passwd", "fifo", "directory", "one", "two", "large", "socket", "missing", "fine/x"]
        begin = time.monotonic()
        assert {rel: work.read(rel, 1000) for rel in refused} == dict.fromkeys(refused)
        assert time.monotonic() - begin < 1  # a FIFO must not block
        assert work.read("fine", 1000) == b"y" * 1000
        with pytest.raises(ValueError, match="leaves"):
            work.read("../etc/passwd", 1000)
    assert ran.exit == 0 or ran.killed == "disk"
    assert not work.path.exists()


def test_removing_spares_what_links_point_to(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    with Workdir({}, scratch=tmp_path) as work:
        (work.path / "link").symlink_to(precious)
        (work.path / "sub").mkdir()
        (work.path / "sub/link").symlink_to(precious)
        os.link(precious / "file", work.path / "sub/hard")
    assert (precious / "file").read_text() == "kept"


def test_removing_a_locked_root_works(tmp_path):
    top = tmp_path / "top"
    (top / "in").mkdir(parents=True)
    top.chmod(0)
    remove_tree(top)
    assert not top.exists()


def test_an_abandoned_directory_is_swept_and_one_in_use_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr("nightmill.gate.workdir._STALE_AFTER_S", -1)
    code = """
        import os, sys
        from pathlib import Path
        from nightmill.gate.workdir import Workdir
        Workdir({"x": b""}, scratch=Path(sys.argv[1]))
        os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=False, env=dict(os.environ, PYTHONPATH=_tools()))
    assert len(list(tmp_path.iterdir())) == 1
    with Workdir({}, scratch=tmp_path) as used:
        sweep(tmp_path, os.geteuid() + 1)
        assert len(list(tmp_path.iterdir())) == 2
        sweep(tmp_path, os.geteuid())
        assert list(tmp_path.iterdir()) == [used.path]


def _tools() -> str:
    import nightmill

    return str(Path(nightmill.__file__).parent.parent)


def test_a_link_in_the_middle_of_a_path_is_not_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    root = os.open(tmp_path, os.O_RDONLY)
    try:
        os.close(open_below(root, "real/file", os.O_RDONLY))
        with pytest.raises(NotADirectoryError):
            open_below(root, "link/file", os.O_RDONLY)
    finally:
        os.close(root)


def test_measuring_many_files_never_holds_the_caller_up(tmp_path):
    for i in range(20):
        folder = tmp_path / str(i)
        folder.mkdir()
        for j in range(100):
            (folder / str(j)).write_bytes(b"x")
    root = os.open(tmp_path, os.O_RDONLY)
    try:
        small, large = DiskUse(root, 1 << 20), DiskUse(root, 1 << 30)
        verdicts = []
        for use in (small, large):
            slices = []
            for _ in range(30):
                begin = time.monotonic()
                slices.append((use.over(), time.monotonic() - begin))
            verdicts.append(any(over for over, _ in slices))
            assert sorted(seconds for _, seconds in slices)[-2] < 0.1  # one slice may lose the processor
    finally:
        os.close(root)
    assert verdicts == [True, False]  # 2,000 files of one 4 kB block each


def test_a_file_is_overwritten_only_while_it_is_the_file_that_was_laid(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("precious")
    with Workdir({"a/b.txt": b"one", "c.txt": b"two"}, scratch=tmp_path / "scratch") as work:
        work.overwrite("a/b.txt", b"1")
        assert work.read("a/b.txt", 10) == b"1"
        (work.path / "c.txt").unlink()
        (work.path / "c.txt").symlink_to(outside)
        with pytest.raises(OSError):
            work.overwrite("c.txt", b"gone")
        (work.path / "c.txt").unlink()
        os.link(outside, work.path / "c.txt")
        with pytest.raises(OSError):
            work.overwrite("c.txt", b"gone")
    assert outside.read_text() == "precious"
