"""Line endings, final newlines, byte-order marks, encodings: what an edit leaves of a file's own bytes."""

from __future__ import annotations

import pytest

from nightmill.edits import plan_edits

ONE = "a.txt\n<<<<<<< SEARCH\nb\n=======\nB\nBB\n>>>>>>> REPLACE\n"
WHOLE = "a.txt\n```\nx\ny\n```\n"


@pytest.mark.parametrize(
    ("before", "reply", "after"),
    [
        pytest.param(b"a\r\nb\r\nc\r\n", ONE, b"a\r\nB\r\nBB\r\nc\r\n", id="crlf stays"),
        pytest.param(b"a\nb\r\nc\n", ONE, b"a\nB\r\nBB\r\nc\n", id="new lines end like the first matched line"),
        pytest.param(b"a\r\nb\nc\r\n", ONE, b"a\r\nB\nBB\nc\r\n", id="and so they do the other way round"),
        pytest.param(b"a\nb", ONE, b"a\nB\nBB", id="a missing final newline stays missing"),
        pytest.param(b"a\r\nb", ONE, b"a\r\nB\r\nBB", id="and the lines before take the majority's ending"),
        pytest.param(b"b", ONE, b"B\nBB", id="a single line without ending"),
        pytest.param(b"\xef\xbb\xbfb\nc\n", ONE, b"\xef\xbb\xbfB\nBB\nc\n", id="a mark stays and is invisible"),
        pytest.param(b"a\x0c\nb\n", ONE, b"a\x0c\nB\nBB\n", id="a form feed ends no line"),
        pytest.param("a\u2028b\nb\n\x85\n".encode(), ONE, "a\u2028b\nB\nBB\n\x85\n".encode(), id="nor does U+2028"),
        pytest.param(b"a\rb\nb\nc\r", ONE, b"a\rb\nB\nBB\nc\r", id="nor does a lone CR"),
        pytest.param(b"a\nb\nc\n", ONE.replace("\n", "\r\n"), b"a\nB\nBB\nc\n", id="a reply in CRLF"),
        pytest.param(b"a\r\nb\r\nc\r\n", ONE.replace("\n", "\r\n"), b"a\r\nB\r\nBB\r\nc\r\n", id="a reply and a file in CRLF"),
        pytest.param(b"a\nb\n", "\ufeff" + ONE, b"a\nB\nBB\n", id="a reply with a mark"),
        pytest.param(b"a\r\nb\r\nc\n", WHOLE, b"x\r\ny\r\n", id="a whole file keeps the old majority"),
        pytest.param(b"a\nb", WHOLE, b"x\ny", id="a whole file keeps the missing final newline"),
        pytest.param(b"\xef\xbb\xbfa\n", WHOLE, b"\xef\xbb\xbfx\ny\n", id="a whole file keeps the mark"),
        pytest.param(None, WHOLE.replace("\n", "\r\n"), b"x\ny\n", id="a new file has LF"),
        pytest.param(b"", WHOLE, b"x\ny\n", id="an empty file filled as a whole"),
        pytest.param(
            b"a\nb",
            "a.txt\n<<<<<<< SEARCH\nb\n=======\n>>>>>>> REPLACE\n",
            b"a",
            id="still missing after the last line went",
        ),
        pytest.param(
            b"a  \r\nb\nc\t\n",
            "a.txt\n<<<<<<< SEARCH\na\nb\nc\n=======\na\nx\nc\n>>>>>>> REPLACE\n",
            b"a  \r\nx\r\nc\t\n",
            id="lines that REPLACE shares with SEARCH keep blanks and ending",
        ),
        pytest.param(
            b"\tif a:\n\t\tb\n\tc  \n",
            "a.txt\n<<<<<<< SEARCH\n    if a:\n        b\n    c\n=======\n    if a:\n        d\n    c\n>>>>>>> REPLACE\n",
            b"\tif a:\n\t\td\n\tc  \n",
            id="tabs and blanks of kept lines stay",
        ),
    ],
)
def test_an_edit_leaves_bytes_alone(before: bytes | None, reply: str, after: bytes) -> None:
    tree = {} if before is None else {"a.txt": before}
    outcome = plan_edits(tree, reply)
    assert outcome.refused == ""
    assert outcome.tree == {"a.txt": after}


@pytest.mark.parametrize("data", [b"a\nb\n\xff\n", "b\n".encode("utf-16"), b"b\n\xed\xa0\x80"])
@pytest.mark.parametrize("reply", [ONE, WHOLE])
def test_a_file_that_is_not_utf8_is_refused(data: bytes, reply: str) -> None:
    outcome = plan_edits({"a.txt": data}, reply)
    assert outcome.reasons == ("path",)
    assert "UTF-8" in outcome.refused


def test_a_file_that_is_not_utf8_can_be_deleted() -> None:
    assert plan_edits({"a.bin": b"\xff"}, "DELETE: a.bin").tree == {}


def test_a_whole_file_that_differs_in_nothing_but_the_missing_newline_is_no_edit() -> None:
    assert plan_edits({"a.txt": b"x\ny"}, WHOLE).reasons == ("no edit",)


def test_a_lone_cr_in_search_is_content() -> None:
    reply = "a.txt\n<<<<<<< SEARCH\na\rb\n=======\nc\n>>>>>>> REPLACE\n"
    assert plan_edits({"a.txt": b"a\rb\r\n"}, reply).tree == {"a.txt": b"c\r\n"}
    assert plan_edits({"a.txt": b"a\nb\n"}, reply).reasons == ("not found",)


def test_a_reply_with_lone_surrogates_is_refused() -> None:
    assert plan_edits({"a.txt": b"b\n"}, ONE + "\ud800").reasons == ("truncated",)
