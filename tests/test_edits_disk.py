"""apply_reply on a real disk: links, special files, permissions, and all or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nightmill.edits import apply_reply
from nightmill.run.trees import read_tree


def block(path: str, old: str, new: str) -> str:
    return f"{path}\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_bytes(b"x = 1\n")
    (root / "b.py").write_bytes(b"y = 1\n")
    (tmp_path / "secret.py").write_bytes(b"x = 1\n")
    return root


@pytest.mark.parametrize("target", ["../secret.py", "/etc/hostname", "../nowhere.py"])
def test_a_link_out_of_the_root_is_never_followed(root: Path, target: str) -> None:
    (root / "link.py").symlink_to(target)
    for reply in (block("link.py", "x = 1", "x = 2"), "link.py\n```\nx = 2\n```\n", "DELETE: link.py"):
        assert apply_reply(root, reply).reasons == ("outside",)
    assert (root.parent / "secret.py").read_bytes() == b"x = 1\n"
    assert not (root.parent / "nowhere.py").exists()
    assert (root / "link.py").is_symlink()


def test_a_linked_folder_out_of_the_root_is_never_entered(root: Path) -> None:
    (root / "out").symlink_to("..")
    assert apply_reply(root, block("out/secret.py", "x = 1", "x = 2")).reasons == ("outside",)
    assert apply_reply(root, "out/new/c.py\n```\nx = 2\n```\n").reasons == ("outside",)
    assert sorted(p.name for p in root.parent.iterdir()) == ["root", "secret.py"]


def test_a_link_within_the_root_is_refused_with_the_real_name(root: Path) -> None:
    (root / "link.py").symlink_to("src/a.py")
    outcome = apply_reply(root, block("link.py", "x = 1", "x = 2"))
    assert outcome.reasons == ("path",)
    assert "`src/a.py`" in outcome.refused


def test_a_loop_of_links_is_refused(root: Path) -> None:
    (root / "p").symlink_to("q")
    (root / "q").symlink_to("p")
    assert apply_reply(root, "p/c.py\n```\nx = 2\n```\n").reasons == ("outside",)


def test_a_fifo_is_refused_without_blocking(root: Path) -> None:
    os.mkfifo(root / "pipe.py")
    assert apply_reply(root, "pipe.py\n```\nx = 2\n```\n").reasons == ("path",)


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)
    assert apply_reply(alias, block("src/a.py", "x = 1", "x = 2")).changed == ("src/a.py",)
    assert (root / "src" / "a.py").read_bytes() == b"x = 2\n"


def test_permissions_of_an_edited_file_stay(root: Path) -> None:
    (root / "b.py").chmod(0o750)
    apply_reply(root, block("b.py", "y = 1", "y = 2"))
    assert (root / "b.py").stat().st_mode & 0o777 == 0o750


def test_nothing_but_the_named_files_is_left_behind(root: Path) -> None:
    outcome = apply_reply(root, block("src/a.py", "x = 1", "x = 2") + "new/deep/c.py\n```\nz = 1\n```\nDELETE: b.py\n")
    assert outcome.changed == ("b.py", "new/deep/c.py", "src/a.py")
    assert sorted(p.relative_to(root).as_posix() for p in root.rglob("*")) == ["new", "new/deep", "new/deep/c.py", "src", "src/a.py"]


def test_a_write_that_fails_midway_rolls_everything_back(root: Path) -> None:
    def obstruct(path: str) -> None:
        """A folder appears where the last file is about to be created."""
        if path == "new/d.py":
            (root / "new" / "d.py").mkdir(parents=True)

    (root / "new").mkdir()
    reply = "DELETE: b.py\n" + block("src/a.py", "x = 1", "x = 2") + "other/c.py\n```\nz = 1\n```\nnew/d.py\n```\nz = 1\n```\n"
    with pytest.raises(OSError):
        apply_reply(root, reply, guard=lambda path: obstruct(path))
    assert read_tree(root) == {"b.py": b"y = 1\n", "src/a.py": b"x = 1\n"}
    assert sorted(p.name for p in root.iterdir()) == ["b.py", "new", "src"]


def test_a_parent_swapped_for_a_link_is_not_followed(root: Path) -> None:
    def swap(path: str) -> None:
        (root / "src").rename(root / "old")
        (root / "src").symlink_to("../elsewhere")

    (root.parent / "elsewhere").mkdir()
    (root.parent / "elsewhere" / "a.py").write_bytes(b"x = 1\n")
    with pytest.raises(OSError):
        apply_reply(root, block("src/a.py", "x = 1", "x = 2"), guard=swap)
    assert (root.parent / "elsewhere" / "a.py").read_bytes() == b"x = 1\n"


def test_a_guard_refuses_with_its_own_reason(root: Path) -> None:
    reply = block("src/a.py", "x = 1", "x = 2") + block("b.py", "y = 1", "y = 2")
    outcome = apply_reply(root, reply, guard=lambda path: "locked test" if path == "b.py" else None)
    assert (outcome.reasons, outcome.guards) == (("locked test",), ("collision",))
    assert (root / "src" / "a.py").read_bytes() == b"x = 1\n"


@pytest.mark.parametrize("finish", ["length", "dropped", "content_filter", ""])
def test_a_call_that_did_not_stop_by_itself_is_truncated(root: Path, finish: str) -> None:
    outcome = apply_reply(root, block("b.py", "y = 1", "y = 2"), finish=finish)
    assert outcome.reasons == ("truncated",)
    assert (root / "b.py").read_bytes() == b"y = 1\n"


def test_a_creation_beside_another_name_in_another_case_is_refused(root: Path) -> None:
    assert apply_reply(root, "SRC/c.py\n```\nz = 1\n```\n").reasons == ("path",)
    assert apply_reply(root, "src/A.py\n```\nz = 1\n```\n").reasons == ("path",)
