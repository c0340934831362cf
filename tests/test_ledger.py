"""The one door for writes: whose text lies there, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.run.atomic import sweep, write_atomic
from nightmill.run.journal import Journal
from nightmill.run.ledger import Ledger, Objects
from nightmill.run.record import Stamp
from nightmill.run.trees import sha


def ledger_at(root: Path) -> Ledger:
    return Ledger(root, Journal(root / ".nightmill" / "journal.jsonl"), Objects(root / ".nightmill" / "objects"))


def stamp(ledger: Ledger, targets: list[str], by: str = "stage") -> Stamp:
    return Stamp("s", {}, ledger.current(targets), len(ledger.journal), by)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return ledger_at(tmp_path)


def test_what_a_stage_made_is_no_edit_even_before_its_stamp_is_written(ledger: Ledger) -> None:
    ledger.publish("s", ["a.md"], {"a.md": b"one"}, None)
    assert ledger.edits(["a.md"], None) == []
    assert (ledger.root / "a.md").read_bytes() == b"one"


def test_a_text_that_the_journal_does_not_know_is_a_persons(ledger: Ledger) -> None:
    ledger.publish("s", ["a.md"], {"a.md": b"one"}, None)
    made = stamp(ledger, ["a.md"])
    (ledger.root / "a.md").write_text("mine")
    assert ledger.edits(["a.md"], made) == ["a.md"]


def test_an_older_text_of_ours_that_a_person_brought_back_is_a_persons(ledger: Ledger) -> None:
    ledger.publish("s", ["a.md"], {"a.md": b"one"}, None)
    ledger.publish("s", ["a.md"], {"a.md": b"two"}, stamp(ledger, ["a.md"]))
    made = stamp(ledger, ["a.md"])
    (ledger.root / "a.md").write_text("one")
    assert ledger.edits(["a.md"], made) == ["a.md"]


def test_an_edited_target_is_not_overwritten_but_proposed_beside_it(ledger: Ledger) -> None:
    ledger.publish("s", ["a.md"], {"a.md": b"one"}, None)
    made = stamp(ledger, ["a.md"])
    (ledger.root / "a.md").write_text("mine")
    published = ledger.publish("s", ["a.md"], {"a.md": b"two"}, made)
    assert published.proposed == "a.md.proposed"
    assert (ledger.root / "a.md").read_text() == "mine"
    assert (ledger.root / "a.md.proposed").read_text() == "two"


def test_a_file_added_to_or_deleted_from_a_directory_is_an_edit(ledger: Ledger) -> None:
    ledger.publish("s", ["d/"], {"d/a.py": b"a", "d/b.py": b"b"}, None)
    made = stamp(ledger, ["d/"])
    (ledger.root / "d/c.py").write_text("c")
    (ledger.root / "d/b.py").unlink()
    assert ledger.edits(["d/"], made) == ["d/b.py", "d/c.py"]


def test_a_missing_target_is_no_edit_it_is_made_again(ledger: Ledger) -> None:
    ledger.publish("s", ["d/"], {"d/a.py": b"a"}, None)
    made = stamp(ledger, ["d/"])
    (ledger.root / "d/a.py").unlink()
    (ledger.root / "d").rmdir()
    assert ledger.edits(["d/"], made) == []
    assert not ledger.present(["d/"])


def test_files_that_a_new_product_lacks_are_removed_and_their_text_stays_an_object(ledger: Ledger) -> None:
    first = ledger.publish("s", ["d/"], {"d/a.py": b"a", "d/sub/b.py": b"b"}, None)
    made = stamp(ledger, ["d/"])
    ledger.publish("s", ["d/"], {"d/a.py": b"a2"}, made)
    assert ledger.current(["d/"]).keys() == {"d/a.py"}
    assert not (ledger.root / "d/sub").exists()
    assert ledger.objects.get(first.product["d/sub/b.py"]) == b"b"
    assert ledger.edits(["d/"], made) == []


def test_a_kept_text_counts_as_a_persons_for_ever(ledger: Ledger) -> None:
    (ledger.root / "a.md").write_text("mine")
    kept = stamp(ledger, ["a.md"], by="person")
    assert ledger.edits(["a.md"], kept) == ["a.md"]


def test_setting_aside_keeps_the_text_as_an_object(ledger: Ledger) -> None:
    (ledger.root / "a.md").write_text("mine")
    aside = ledger.set_aside("s", ["a.md"])
    assert not (ledger.root / "a.md").exists()
    assert ledger.objects.get(aside["a.md"]) == b"mine"


def test_a_torn_journal_line_costs_only_itself(ledger: Ledger) -> None:
    ledger.publish("s", ["a.md"], {"a.md": b"one"}, None)
    with ledger.journal.path.open("ab") as file:
        file.write(b'{"act": "made", "sta')
    again = ledger_at(ledger.root)
    again.publish("s", ["b.md"], {"b.md": b"two"}, None)
    assert [e.path for e in ledger_at(ledger.root).journal] == ["a.md", "b.md"]


def test_left_over_temporary_files_are_swept(tmp_path: Path) -> None:
    write_atomic(tmp_path / "x" / "a.md", b"text")
    (tmp_path / "x" / ".a.md.0123456789ab.tmp").write_text("torn")
    assert sweep(tmp_path) == 1
    assert [p.name for p in (tmp_path / "x").iterdir()] == ["a.md"]


PATHS = st.sampled_from(["d/a", "d/b", "d/sub/c"])
TREES = st.dictionaries(PATHS, st.binary(max_size=4), max_size=3)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), TREES), max_size=6))
def test_no_text_of_a_person_is_ever_lost_and_ours_is_never_taken_for_one(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, dict[str, bytes]]]
) -> None:
    """Publications and hand edits in any order: every byte a person wrote stands in place or was never replaced."""
    ledger = ledger_at(tmp_path_factory.mktemp("run"))
    made: Stamp | None = None
    for by_person, tree in steps:
        if by_person:
            for path, data in tree.items():
                (ledger.root / path).parent.mkdir(parents=True, exist_ok=True)
                (ledger.root / path).write_bytes(data)
            continue
        before = {p: (ledger.root / p).read_bytes() for p in ledger.current(["d/"])}
        edits = ledger.edits(["d/"], made)
        published = ledger.publish("s", ["d/"], tree, made)
        if edits:
            assert published.proposed
            assert {p: (ledger.root / p).read_bytes() for p in ledger.current(["d/"])} == before
        else:
            made = stamp(ledger, ["d/"])
            assert ledger.edits(["d/"], made) == []
            assert {p: (ledger.root / p).read_bytes() for p in ledger.current(["d/"])} == tree


def test_a_text_that_a_killed_publication_had_linked_aside_is_kept(ledger: Ledger) -> None:
    ledger.publish("s", ["a.md"], {"a.md": b"one"}, None)
    (ledger.root / ".a.md.0123456789ab.old.tmp").write_bytes(b"a person's")
    (ledger.root / ".a.md.ba9876543210.old.tmp").write_bytes(b"one")
    ledger.rescue_left()
    sweep(ledger.root)
    assert ledger.objects.get(sha(b"a person's")) == b"a person's"
    assert [e.act for e in ledger.journal] == ["made", "rescued"]
    assert list(ledger.root.glob(".*.tmp")) == []
