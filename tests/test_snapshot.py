"""The person's tree: what counts as source, and what is left out by name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nightmill.errors import ConfigError
from nightmill.run.snapshot import is_secret, scan


def write(root: Path, files: dict[str, bytes]) -> None:
    for rel, data in files.items():
        (root / rel).parent.mkdir(parents=True, exist_ok=True)
        (root / rel).write_bytes(data)


def test_ignored_binary_secret_and_large_files_are_left_out_and_named(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".gitignore": b"*.log\nbuild/\n",
            "a.py": b"x = 1\n",
            "noise.log": b"x",
            "build/out.py": b"x",
            "logo.png": b"\x89PNG\0",
            "latin.txt": "ä".encode("latin-1"),
            ".env": b"KEY=1",
            "deploy/id_rsa": b"x",
            "big.txt": b"x" * 1_000_001,
            "__pycache__/a.pyc": b"x",
        },
    )
    (tmp_path / "link.py").symlink_to("a.py")
    found = scan(tmp_path)
    assert sorted(found.files) == [".gitignore", "a.py"]
    assert found.skipped["secret"] == [".env", "deploy/id_rsa"]
    assert found.skipped["binary"] == ["latin.txt", "logo.png"]
    assert found.skipped["larger than 1 MB"] == ["big.txt"]
    assert found.skipped["not a regular file"] == ["link.py"]


def test_a_repository_inside_the_source_is_read_too(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": b"", "sub/b.py": b"", "sub/.gitignore": b"c.py\n", "sub/c.py": b""})
    subprocess.run(["git", "init", "-q", str(tmp_path / "sub")], check=True)
    assert sorted(scan(tmp_path).files) == ["a.py", "sub/.gitignore", "sub/b.py"]


def test_a_hostile_git_configuration_in_the_source_runs_nothing(tmp_path: Path) -> None:
    source, witness = tmp_path / "src", tmp_path / "ran"
    write(source, {"a.py": b"x"})
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    hook = tmp_path / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {witness}\n")
    hook.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "core.sshCommand", "diff.external"):
        subprocess.run(["git", "-C", str(source), "config", key, str(hook)], check=True)
    assert list(scan(source).files) == ["a.py"]
    assert not witness.exists()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: None, "does not exist"),
        (lambda p: p.write_text("x"), "is a file"),
        (lambda p: p.mkdir(), "no text files"),
        (lambda p: (p.mkdir(), (p / "x.bin").write_bytes(b"\0")), "no text files"),
    ],
    ids=["missing", "a file", "empty", "binary only"],
)
def test_an_unusable_source_is_refused_in_one_line(tmp_path: Path, make: object, said: str) -> None:
    make(tmp_path / "src")  # type: ignore[operator]
    with pytest.raises(ConfigError, match=said) as caught:
        scan(tmp_path / "src")
    assert "run.yaml" in str(caught.value)


def test_too_many_files_are_refused_with_the_remedy(tmp_path: Path) -> None:
    write(tmp_path, {f"f{n}.txt": b"x" for n in range(30)})
    with pytest.raises(ConfigError, match=r"30 files, more than 20.*gitignore"):
        scan(tmp_path, max_files=20)


def test_reading_leaves_the_source_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": b"x", "d/b.py": b"y"})
    before = sorted((str(p), p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    scan(tmp_path)
    assert sorted((str(p), p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_left_out_and_named(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": b"x", "b.py": b"y"})
    (tmp_path / "b.py").chmod(0)
    assert scan(tmp_path).skipped["not readable"] == ["b.py"]


def test_examples_of_environment_files_are_no_secrets() -> None:
    assert (
        is_secret("config/.env.production") and not is_secret(".env.example") and is_secret(".ssh/config") and not is_secret("src/key.py")
    )
