"""The milestones of a wave as one tree: whatever does not touch is taken, whatever does is a conflict, and the order never matters."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.build.merge import Merged, duplicates, merge, three_way, three_way_marked

BASE = b"".join(b"line %d\n" % n for n in range(12))
"""Changes in it merge when they are a few lines apart."""


def changed(*lines: int, by: str = "x", base: bytes = BASE) -> bytes:
    kept = base.split(b"\n")
    for n in lines:
        kept[n] = f"changed by {by}".encode()
    return b"\n".join(kept)


def test_edits_of_different_files_are_all_taken() -> None:
    base = {"a.py": b"a", "b.py": b"b", "same.py": b"s"}
    found = merge(base, {"one": base | {"a.py": b"A"}, "two": base | {"b.py": b"B", "new.py": b"n"}})
    assert found == Merged({"a.py": b"A", "b.py": b"B", "same.py": b"s", "new.py": b"n"}, ())


def test_edits_of_one_file_that_do_not_touch_are_all_taken() -> None:
    sides = {name: {"a.py": changed(n, by=name)} for name, n in (("one", 0), ("two", 5), ("three", 11))}
    found = merge({"a.py": BASE}, sides)
    assert found.conflicts == ()
    lines = found.tree["a.py"].splitlines()
    assert {n: line for n, line in enumerate(lines) if line.startswith(b"changed")} == {
        0: b"changed by one",
        5: b"changed by two",
        11: b"changed by three",
    }


def test_two_ways_to_change_one_line_are_a_conflict_that_names_both_sides() -> None:
    found = merge(
        {"a.py": BASE, "b.py": b"b"}, {"two": {"a.py": changed(3, by="two")}, "one": {"a.py": changed(3, by="one"), "b.py": b"b"}}
    )
    (conflict,) = found.conflicts
    assert (conflict.path, conflict.base, list(conflict.sides)) == ("a.py", BASE, ["one", "two"])
    assert conflict.reason == "a.py: changed by one and two in ways that exclude each other"
    assert "a.py" not in found.tree


def test_the_same_change_by_everybody_is_no_conflict() -> None:
    assert merge({"a.py": BASE}, {"one": {"a.py": changed(3)}, "two": {"a.py": changed(3)}}) == Merged({"a.py": changed(3)}, ())


def test_only_those_who_changed_a_file_have_a_say() -> None:
    sides = {"one": {"a.py": changed(3)}, "two": {"a.py": BASE}, "three": {"a.py": BASE}}
    assert merge({"a.py": BASE}, sides).tree == {"a.py": changed(3)}


def test_a_deletion_is_taken_alone_and_a_conflict_with_an_edit() -> None:
    base = {"a.py": BASE, "b.py": b"b"}
    assert merge(base, {"one": {"b.py": b"b"}, "two": dict(base)}).tree == {"b.py": b"b"}
    found = merge(base, {"one": {"b.py": b"b"}, "two": base | {"a.py": changed(1)}})
    assert [(c.path, dict(c.sides)) for c in found.conflicts] == [("a.py", {"one": None, "two": changed(1)})]


def test_two_new_files_of_one_name_are_a_conflict_unless_they_are_equal() -> None:
    assert [c.path for c in merge({}, {"one": {"n.py": b"1\n"}, "two": {"n.py": b"2\n"}}).conflicts] == ["n.py"]
    assert merge({}, {"one": {"n.py": b"1\n"}, "two": {"n.py": b"1\n"}}).tree == {"n.py": b"1\n"}


def test_two_inserts_at_one_place_are_a_conflict_because_their_order_would_be_a_guess() -> None:
    top, one, two = b"a\nb\n", b"a\none\nb\n", b"a\ntwo\nb\n"
    assert [c.path for c in merge({"a.py": top}, {"one": {"a.py": one}, "two": {"a.py": two}}).conflicts] == ["a.py"]


def test_no_side_and_one_side_are_trees_as_they_are() -> None:
    assert merge({"a": b"1"}, {}) == Merged({"a": b"1"}, ())
    assert merge({"a": b"1"}, {"one": {"b": b"2"}}) == Merged({"b": b"2"}, ())


def test_edits_that_merge_in_one_order_only_are_a_conflict_whoever_made_which() -> None:
    base = b"".join(b"%d\n" % n for n in range(7))
    texts = [b"x\n" + base, b"0\n" + base, base.replace(b"1", b"x")]
    for order in itertools.permutations(texts):
        found = merge({"a.py": base}, {f"m{n}": {"a.py": text} for n, text in enumerate(order)})
        assert [c.path for c in found.conflicts] == ["a.py"]


TEXTS = st.sampled_from([BASE, changed(0), changed(6), changed(11), changed(0, 6), changed(0, by="y"), b"", BASE.replace(b"\n", b"\r\n")])
TREES = st.dictionaries(st.sampled_from(["a.py", "b.py"]), TEXTS, max_size=2)


@settings(max_examples=50, deadline=None)
@given(base=TREES, sides=st.lists(TREES, max_size=3))
def test_the_order_of_the_sides_never_matters(base: dict[str, bytes], sides: list[dict[str, bytes]]) -> None:
    """Neither the order in which they are given nor which name belongs to which side."""
    results = set()
    for order in itertools.permutations(range(len(sides))):
        found = merge(base, {f"m{n}": sides[place] for n, place in enumerate(order)})
        conflicts = tuple((c.path, tuple(sorted(c.sides.values(), key=repr))) for c in found.conflicts)
        results.add((tuple(sorted(found.tree.items())), conflicts))
    assert len(results) == 1


@settings(max_examples=40, deadline=None)
@given(owners=st.lists(st.sampled_from(["one", "two", "three", ""]), min_size=4, max_size=4), newline=st.booleans())
def test_edits_far_enough_apart_always_merge_to_the_sum_of_them(owners: list[str], newline: bool) -> None:
    """Every fourth line of a text belongs to one side, which changes it; a missing newline at the end changes nothing of that."""
    base = b"".join(b"line %d\n" % n for n in range(16)).removesuffix(b"" if newline else b"\n")
    mine = {
        name: changed(*[4 * n for n, owner in enumerate(owners) if owner == name], by=name, base=base) for name in ("one", "two", "three")
    }
    found = merge({"a.py": base}, {name: {"a.py": text} for name, text in mine.items()})
    expected = base.split(b"\n")
    for n, owner in enumerate(owners):
        expected[4 * n] = f"changed by {owner}".encode() if owner else expected[4 * n]
    assert found == Merged({"a.py": b"\n".join(expected)}, ())


@settings(max_examples=30, deadline=None)
@given(text=st.binary(max_size=40), other=st.binary(max_size=40))
def test_a_side_that_changed_nothing_never_costs_the_other_anything(text: bytes, other: bytes) -> None:
    assert merge({"a": text}, {"one": {"a": text}, "two": {"a": other}}).tree == {"a": other}


def test_conflict_marks_carry_the_names_they_were_given() -> None:
    text, count = three_way_marked(b"mine\n", b"base\n", b"theirs\n", ("yours", "before", "remade"))
    assert count == 1 and text == b"<<<<<<< yours\nmine\n=======\ntheirs\n>>>>>>> remade\n"
    assert three_way(b"mine\n", b"base\n", b"theirs\n") is None
    assert three_way(changed(0), BASE, changed(11)) == changed(0, 11)


def test_names_that_look_like_options_and_a_hostile_git_configuration_do_nothing(tmp_path, monkeypatch) -> None:
    (tmp_path / ".gitconfig").write_text('[merge "x"]\n\tdriver = touch ' + str(tmp_path / "ran") + "\n[merge]\n\tconflictStyle = diff3\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    text, _ = three_way_marked(b"mine\n", b"base\n", b"theirs\n", ("--ours", "-p", "--help"))
    assert text.startswith(b"<<<<<<< --ours\n") and b"|||||||" not in text
    assert not (tmp_path / "ran").exists()


def test_a_name_declared_twice_in_one_file_is_told_and_the_same_name_in_two_files_is_not() -> None:
    assert duplicates({"b.py": ["f", "g", "f", "f"], "a.py": ["f", "C.m", "C.m"]}) == ["a.py: C.m", "b.py: f"]
    assert duplicates({"a.py": ["f"], "b.py": ["f"]}) == []
