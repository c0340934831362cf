"""The text that goes back to the model: what it must say for each reason, and how long it may be."""

from __future__ import annotations

from nightmill.edits import Outcome, plan_edits

CODE = b"""import os


def load(path):
    with open(path) as f:
        return f.read()


def save(path, text):
    with open(path, "w") as f:
        f.write(text)


def count(path):
    return len(load(path))
"""


def block(path: str, search: str, replace: str) -> str:
    return f"{path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def refused(reply: str, **tree: bytes) -> Outcome:
    outcome = plan_edits({"a.py": CODE, **{name.replace("_", "."): data for name, data in tree.items()}}, reply)
    assert outcome.refused
    return outcome


def test_it_says_that_nothing_changed_and_that_all_blocks_are_wanted() -> None:
    first = refused(block("a.py", "nothing", "x")).refused.split("\n")[0]
    assert "Nothing was changed" in first
    assert "ALL blocks" in first


def test_each_failed_block_has_its_file_its_number_and_its_reason() -> None:
    reply = block("a.py", "import os", "import sys") + block("a.py", "    return 0", "x") + block("b.py", "x", "y") + "DELETE: ../c.py"
    outcome = refused(reply)
    assert outcome.reasons == ("not found", "path", "outside")
    assert "a.py, block 2: not found" in outcome.refused
    assert "b.py, block 3: path" in outcome.refused
    assert "../c.py, block 4: outside" in outcome.refused
    assert "block 1" not in outcome.refused


def test_not_found_shows_the_closest_lines_verbatim_with_five_around() -> None:
    text = refused(block("a.py", "def save(path, txt):\n    with open(path, 'w') as f:\n        f.write(text)", "x")).refused
    fence = text.split("```")[1].strip("\n").split("\n")
    lines = CODE.decode().rstrip("\n").split("\n")
    at = lines.index("def save(path, text):")
    assert fence == lines[at - 5 : at + 3 + 5]


def test_not_found_names_the_first_line_that_differs_and_how() -> None:
    cases = {
        "def load(path):\n    With open(path) as f:": ("Line 2", "upper and lower case"),
        "def load(path):\n    with open( path ) as f:": ("Line 2", "spaces inside the line"),
        "def load(path):\n        with open(path) as f:\n        return f.read()": ("Line 2", "indentation"),
        "def load(path):\n\n    with open(path) as f:": ("Line 2", "blank"),
        "    return len(load(path))\nmore": ("Line 2", "behind the end of the file"),
        "def load": ("Line 1", "give whole lines"),
    }
    for search, (line, how) in cases.items():
        text = refused(block("a.py", search, "x")).refused
        assert f"{line} of SEARCH" in text
        assert how in text


def test_not_found_shows_tabs_where_they_are_the_difference() -> None:
    text = refused(block("b.txt", "\tx = 1\ny", "z"), b_txt=b"    x = 1\ny = 2\n").refused
    assert "\\tx = 1" in text


def test_not_found_in_an_empty_or_wholly_different_file_says_so() -> None:
    assert "empty" in refused(block("b.txt", "x", "y"), b_txt=b"").refused
    assert "resembles nothing" in refused(block("b.txt", "(((", "y"), b_txt=b"one\n").refused


def test_a_fence_around_real_lines_is_longer_than_theirs() -> None:
    text = refused(block("b.md", "```python\nx = 2\n```", "z"), b_md=b"````md\n```python\nx = 1\n```\n````\n").refused
    assert "`````\n````md\n" in text


def test_ambiguous_names_every_place_the_lines_above_and_the_line_to_add() -> None:
    data = b"def a():\n    x = 1\n    return x\n\n\ndef b():\n    y = 1\n    return x\n"
    text = refused(block("b.py", "    return x", "    return 0"), b_py=data).refused
    assert "2 places" in text
    assert "- line 3, below:\n      def a():\n          x = 1\n" in text
    assert "begin SEARCH 1 line earlier, with:     x = 1" in text
    assert "- line 8, below:" in text


def test_ambiguous_looks_below_and_further_up_when_it_must() -> None:
    text = refused(block("b.txt", "x", "y"), b_txt=b"one\na\nx\ntwo\na\nx\n").refused
    assert "begin SEARCH 2 lines earlier, with: one" in text or "end SEARCH with: two" in text


def test_a_search_that_stands_in_another_file_names_it_and_does_not_apply() -> None:
    outcome = refused(block("b.txt", "def count(path):", "x"), b_txt=b"def other():\n")
    assert "Elsewhere" in outcome.refused
    assert "`a.py`" in outcome.refused


def test_a_search_in_a_missing_file_names_files_that_could_be_meant() -> None:
    outcome = plan_edits({"src/ledger.py": b"x = 1\n"}, block("ledger.py", "x = 1", "x = 2"))
    assert outcome.reasons == ("path",)
    assert "Files of that name: `src/ledger.py`" in outcome.refused
    assert "matches exactly once in `src/ledger.py`" in outcome.refused


def test_a_replacement_that_already_stands_is_pointed_out() -> None:
    text = refused(block("a.py", "import sys", "import os")).refused
    assert "Already there: REPLACE stands at line 1" in text


def test_a_broken_syntax_is_told_with_its_line() -> None:
    outcome = refused(block("a.py", "import os", "import (os"))
    assert outcome.guards == ("parse",)
    assert "line 1" in outcome.refused


def test_it_never_exceeds_sixty_lines() -> None:
    big = "".join(f"line {n % 7}\n" for n in range(400)).encode()
    search = "\n".join(f"line {n}" for n in range(60))
    reply = "".join(block("b.txt", f"{search}\n{n}", "x") + block("b.txt", "line 3", f"{n}") for n in range(40))
    outcome = refused(reply, b_txt=big)
    assert len(outcome.reasons) == 80
    assert len(outcome.refused.split("\n")) <= 60
    assert "more" in outcome.refused.split("\n")[-1]
    one = refused(block("b.txt", search, "x"), b_txt=big).refused
    assert one.count("```") == 2


def test_a_cut_fence_is_closed() -> None:
    data = "".join(f"value_{n} = {n}\n" for n in range(100)).encode()
    reply = "".join(block("b.txt", f"value_{n} = {n}\nvalue_{n + 1} = 0", "x") for n in range(0, 60, 10))
    text = refused(reply, b_txt=data).refused
    assert text.count("```") % 2 == 0
    assert text.count("not found") == 6


def test_a_very_long_line_is_cut_and_marked() -> None:
    text = refused(block("b.txt", "aaa\nb", "x"), b_txt=b"a" * 100_000 + b"\naaa\n").refused
    assert len(text) < 3_000
    assert "line cut" in text


def test_control_characters_of_a_path_do_not_reach_the_text() -> None:
    text = plan_edits({}, "src/\x1b[31m\u202ea.py\n```\nx\n```").refused
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_same_search_failing_again_is_told_to_change_its_way_and_then_handed_back() -> None:
    reply = block("a.py", "nowhere", "x")
    first = plan_edits({"a.py": CODE}, reply)
    second = plan_edits({"a.py": CODE}, reply, failed_before=first.failed)
    third = plan_edits({"a.py": CODE}, reply, failed_before=first.failed + second.failed)
    assert "failed before" not in first.refused
    assert "whole function" in second.refused
    assert (first.hand_back, second.hand_back, third.hand_back) == (False, False, True)
    assert "failed before" not in plan_edits({"a.py": CODE}, block("a.py", "elsewhere", "x"), failed_before=first.failed).refused


def test_a_reply_without_edits_is_shown_the_shape() -> None:
    text = plan_edits({}, "I see nothing to do.").refused
    assert "<<<<<<< SEARCH" in text
    assert ">>>>>>> REPLACE" in text


def test_a_missing_end_marker_is_told_by_name() -> None:
    text = refused("a.py\n<<<<<<< SEARCH\nimport os\n=======\nimport sys\n").refused
    assert "a.py, block 1: truncated" in text
    assert "`>>>>>>> REPLACE`" in text
