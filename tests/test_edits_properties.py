"""What holds for every reply, however broken: no exception, no byte changed by a refusal, exactly the named bytes by an application."""

from __future__ import annotations

import string
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from nightmill.edits import file_blocks, plan_edits
from nightmill.edits.align import changes
from nightmill.edits.lines import Text
from nightmill.errors import BadReply

TREE = {
    "a.py": b"def f():\n    return 1\n\n\ndef g():\n    return 2\n",
    "b.md": b"# T\r\n\r\n```\r\nx\r\n```\r\n",
    "src/c.txt": b"one\ntwo\none",
    "bin": b"\xff\x00",
}
PIECES = [
    *("a.py", "**b.md**", "src/c.txt:", "`a.py`", "new.py", "../x.py", "/etc/passwd", ".git/config", "In `a.py` do:", "bin", "src"),
    *("<<<<<<< SEARCH", "<<<<< SEARCH", "=======", "=====", ">>>>>>> REPLACE", ">>>>> REPLACE", "  <<<<<<< SEARCH", "<<<<<<< HEAD"),
    *("```", "```python", "````", "~~~", "  ```", "```python a.py", "<think>", "</think>", "<|im_end|>", "DELETE: a.py", "DELETE: x"),
    *("def f():", "    return 1", "return 1", "", "  ", "one", "two", "# T", "x", "\tx", "# ... rest of code ...", "&lt;"),
    *("\x0c", "\r", "\u2028"),
]
replies = st.lists(st.sampled_from(PIECES), max_size=30).map("\n".join) | st.text(max_size=300)

LINE = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n\r\ufeff"), max_size=12)
CONTENT = st.lists(LINE, min_size=1, max_size=12)


@given(replies)
@example("</think>" * 3)
@example("DELETE: \x00")
@example("a.py\n```\n```\n```")
def test_any_reply_is_applied_or_refused_and_never_raises(reply: str) -> None:
    outcome = plan_edits(TREE, reply)
    if outcome.refused:
        assert outcome.tree == TREE
        assert not outcome.changed
        assert outcome.reasons
        assert len(outcome.refused.split("\n")) <= 60
    else:
        assert outcome.changed
        paths = TREE.keys() | outcome.tree.keys()
        assert {path for path in paths if TREE.get(path) != outcome.tree.get(path)} == set(outcome.changed)


@given(replies)
def test_file_blocks_gives_files_or_a_rule(reply: str) -> None:
    try:
        files = file_blocks(reply)
    except BadReply as rule:
        assert str(rule)
    else:
        assert files
        assert all(text == "" or text.endswith("\n") for text in files.values())


def _safe(lines: list[str]) -> bool:
    """No line that a block's reader must take for a marker, and something to find."""
    return not any(mark in line for line in lines for mark in ("<<<<<", "=====", ">>>>>")) and any(line.strip(" \t") for line in lines)


@given(CONTENT, CONTENT, CONTENT, CONTENT, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_an_exact_unique_block_gives_exactly_the_expected_bytes(
    before: list[str], search: list[str], behind: list[str], replace: list[str], ending: str, bom: bool, unfinished: bool
) -> None:
    lines = before + search + behind
    hits = [n for n in range(len(lines)) if lines[n : n + len(search)] == search]
    if not _safe(search) or not _safe([*replace, "x"]) or len(hits) != 1 or search == replace or (unfinished and not lines[-1]):
        return
    mark = "\ufeff" if bom else ""
    new = before + replace + behind
    last = "" if unfinished else ending
    tree = {"a.txt": (mark + ending.join(lines) + last).encode()}
    reply = "\n".join(["a.txt", "<<<<<<< SEARCH", *search, "=======", *replace, ">>>>>>> REPLACE"])
    outcome = plan_edits(tree, reply)
    if "elided" not in outcome.reasons:
        assert outcome.tree == {"a.txt": (mark + ending.join(new) + last).encode()}


@given(CONTENT)
def test_a_whole_file_holds_exactly_the_lines_given(lines: list[str]) -> None:
    if any(mark in line for line in lines for mark in ("<<<<<", ">>>>>", "~~~~", "@@ -", "think", "reasoning")):
        return
    outcome = plan_edits({}, "\n".join(["new/a.txt", "~~~~~~", *lines, "~~~~~~"]))
    if outcome.reasons != ("elided",):
        assert outcome.tree == {"new/a.txt": "".join(line + "\n" for line in lines).encode()}


@given(st.binary(max_size=200) | st.text("ab \r\n\ufeff\x0c\u2028", max_size=40).map(str.encode))
def test_a_file_survives_decoding_and_encoding(data: bytes) -> None:
    try:
        text = Text.decode(data)
    except UnicodeDecodeError:
        return
    assert text.with_lines(zip(text.lines, text.endings, strict=True)) == data


@given(st.text(string.ascii_lowercase[:4], max_size=40), st.text(string.ascii_lowercase[:4], max_size=40))
def test_changes_turn_one_side_into_the_other(old: str, new: str) -> None:
    result, at = "", 0
    for change in changes(list(old), list(new)):
        assert change.start < change.end or change.new_start < change.new_end
        result += old[at : change.start] + new[change.new_start : change.new_end]
        at = change.end
    assert result + old[at:] == new


def test_every_piece_of_the_vocabulary_is_used_in_a_case() -> None:
    fixtures = "".join(path.read_text() for path in (Path(__file__).parent / "fixtures" / "edits").glob("*.txt"))
    assert all(word in fixtures for word in ("<think>", "<reasoning>", "<|im_end|>", "DELETE: ", "~~~", "````", "<<<<<<< HEAD"))
