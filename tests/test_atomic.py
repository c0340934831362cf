"""Whole files or nothing, whatever the disk does: seen from outside, on real files, with real errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.errors import MachineError
from nightmill.run.atomic import append_line, sweep, write_atomic

CODE = Path(__file__).parent.parent / "tools"


def child(program: str, *around: str, limit: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a program that may import nightmill; `around` is the command it is started by."""
    start = f"import sys; sys.path.insert(0, {str(CODE)!r})\n{limit}\n{textwrap.dedent(program)}"
    return subprocess.run([*around, sys.executable, "-c", start], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_the_text_is_on_disk_before_the_name_and_the_name_before_the_return(tmp_path: Path) -> None:
    """A missing fsync survives every kill test, because the page cache does: only the order of the calls shows it."""
    target, log = tmp_path / "sub" / "a.md", tmp_path / "log"
    program = f"""
        from pathlib import Path
        from nightmill.run.atomic import write_atomic
        write_atomic(Path({str(target)!r}), b"x" * 300_000)
        print("returned", flush=True)
    """
    done = child(program, "strace", "-y", "-o", str(log), "-e", "trace=write,fsync,fdatasync,rename,renameat,renameat2,link")
    assert done.returncode == 0, done.stderr
    temp = rf"{re.escape(str(target.parent))}/\.a\.md\.\w+\.tmp"
    kinds = {
        "write": rf"write\(\d+<{temp}>",
        "sync": rf"f(?:data)?sync\(\d+<{temp}>\)\s+= 0",
        "rename": rf'rename\w*\(.*"{temp}".*"{re.escape(str(target))}"',
        "sync name": rf"fsync\(\d+<{re.escape(str(target.parent))}>\)\s+= 0",
        "returned": r"write\(1<.*returned",
    }
    seen = [kind for line in log.read_text().splitlines() for kind, shape in kinds.items() if re.search(shape, line)]
    assert list(dict.fromkeys(seen)) == ["write", "sync", "rename", "sync name", "returned"]
    assert seen.count("sync") == seen.count("rename") == 1


FULL = """
    from pathlib import Path
    from nightmill.errors import MachineError
    from nightmill.run.atomic import append_line, write_atomic

    target = Path("/mnt/a.md")
    write_atomic(target, b"old")
    Path("/mnt/filler").write_bytes(b"f" * 150_000)
    for write in (lambda: write_atomic(target, b"n" * 400_000), lambda: write_atomic(Path("/mnt/new/b.md"), b"n" * 400_000)):
        try:
            write()
        except MachineError as error:
            print(error)
    print(target.read_text(), sorted(p.name for p in Path("/mnt").rglob("*") if p.is_file()))
"""


def test_a_full_disk_is_told_and_leaves_the_old_text_and_no_debris() -> None:
    done = child(FULL, "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--size", "262144", "--tmpfs", "/mnt")
    assert done.returncode == 0, done.stderr
    first, second, left = done.stdout.splitlines()
    assert first.startswith("/mnt/a.md: the disk is full") and second.startswith("/mnt/new/b.md: the disk is full")
    assert left == "old ['a.md', 'filler']"


def test_a_write_beyond_the_file_size_limit_fails_and_leaves_the_old_text_and_no_debris(tmp_path: Path) -> None:
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    program = f"""
        from pathlib import Path
        from nightmill.run.atomic import write_atomic
        target = Path({str(tmp_path / "a.md")!r})
        write_atomic(target, b"old")
        try:
            write_atomic(target, b"n" * 400_000)
        except Exception as error:
            print(getattr(error.__cause__ or error, "errno", None))
    """
    done = child(program, limit=limit)
    assert done.stdout.split() == ["27"], done.stderr  # EFBIG
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.md", b"old")]


def test_a_directory_in_the_way_is_an_error_and_leaves_no_debris(tmp_path: Path) -> None:
    (tmp_path / "a.md").mkdir()
    with pytest.raises(OSError, match=r"a\.md"):
        write_atomic(tmp_path / "a.md", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.md"]


@pytest.mark.skipif(not Path("/sys").exists(), reason="no read-only directory to try")
def test_a_place_that_cannot_be_written_is_named_with_a_remedy() -> None:
    with pytest.raises(MachineError, match=r"/sys/\S*: "):
        write_atomic(Path("/sys/nightmill-test/a.md"), b"new")


@pytest.mark.parametrize(("umask", "modes"), [(0o022, [0o644, 0o600]), (0o077, [0o600, 0o600])])
def test_a_replaced_file_gets_the_mode_asked_for_as_far_as_the_umask_allows(tmp_path: Path, umask: int, modes: list[int]) -> None:
    for name in ("a.md", "secret"):
        (tmp_path / name).write_text("old")
        (tmp_path / name).chmod(0o666)
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "a.md", b"new")
        write_atomic(tmp_path / "secret", b"new", 0o600)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a.md", "secret")] == modes


def test_a_very_long_name_is_written_too(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_atomic(path, b"text")
    assert path.read_bytes() == b"text"


def test_a_line_after_a_torn_one_stands_on_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    append_line(log, b'{"n": 1}\n', sync=True)
    with log.open("ab") as file:
        file.write(b'{"n": 2, "te')
    append_line(log, b'{"n": 3}\n', sync=True)
    assert log.read_bytes().split(b"\n") == [b'{"n": 1}', b'{"n": 2, "te', b'{"n": 3}', b""]


@settings(max_examples=40, deadline=None)
@given(
    parts=st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=12).map(lambda b: b.replace(b"\n", b".") or b".")), max_size=8)
)
def test_no_torn_line_ever_touches_a_whole_one(tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[bool, bytes]]) -> None:
    log = tmp_path_factory.mktemp("log") / "log"
    whole = []
    for torn, line in parts:
        if torn:
            with log.open("ab") as file:
                file.write(line)
        else:
            append_line(log, line + b"\n", sync=False)
            whole.append(line)
    lines = log.read_bytes().split(b"\n") if log.exists() else []
    assert [line for line in whole if line not in lines] == []


FULL_LOG = """
    from pathlib import Path
    from nightmill.errors import MachineError
    from nightmill.run.atomic import append_line

    log = Path("/mnt/log")
    append_line(log, b"one\\n", sync=True)
    filler = Path("/mnt/filler")
    filler.write_bytes(b"f" * (262_144 - 2 * 4096))
    try:
        append_line(log, b"t" * 20_000 + b"\\n", sync=True)
    except MachineError as error:
        print(error)
    filler.unlink()
    append_line(log, b"three\\n", sync=True)
    lines = log.read_bytes().split(b"\\n")
    print(lines[0] == b"one" and lines[-2:] == [b"three", b""])
"""


def test_a_line_that_did_not_fit_damages_no_line_before_or_after_it() -> None:
    done = child(FULL_LOG, "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--size", "262144", "--tmpfs", "/mnt")
    assert done.returncode == 0, done.stderr
    told, kept = done.stdout.splitlines()
    assert told.startswith("/mnt/log: the disk is full") and kept == "True"


def test_sweeping_takes_our_temporary_files_only(tmp_path: Path) -> None:
    names = [".a.md.0123456789ab.tmp", "mine.tmp", ".hidden", "a.md"]
    for name in names:
        (tmp_path / name).write_text("x")
    assert sweep(tmp_path) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names[1:])
