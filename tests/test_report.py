"""report.html: one page, complete, escaped, the same for the same input."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.clauses import Unproven
from nightmill.deviations import render_deviations
from nightmill.report import MAX_FILE_LINES, MAX_WIDTH, TreeDiff, diff_trees, render_report
from nightmill.run.events import CallFinished, Event, Finding, GateRan, RunStarted, StageStarted
from nightmill.summary import Summary, summarize
from run_story import CONTRACT, MATRIX, PROOF, V1, V2, outcome, record, story

TEMPLATES = Path(__file__).parent.parent / "templates"
NO_DIFF = TreeDiff((), 0, 0)


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags nest."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.text += " "
        self.attributes += attrs
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self.text += data


def page(summary: Summary, diff: TreeDiff = NO_DIFF, deviations: str = "") -> str:
    return render_report(summary, diff, deviations, TEMPLATES)


def full() -> str:
    summary = summarize(story(), contract=CONTRACT, matrix=MATRIX, proof=PROOF)
    return page(summary, diff_trees(V1, V2), render_deviations(summary.findings, summary.unproven))


def test_the_page_tells_the_whole_story() -> None:
    text = " ".join(Page(full()).text.split())
    for words in (
        "V2 green all steps passed",
        "5 not proven · 1 finding · 6 calls, 1 replayed · 2 invocations · last one: waiting (exit 75): ip_review is held",
        "C10: no row of the test matrix covers it",
        "T2 passed acceptance/test_total.py::test_t2_half_up",
        "python -m pytest acceptance",
        "bubblewrap, seccomp, no-network",
        "acceptance/test_total.py::test_t2_half_up failed assert 1.0 == 1.01",
        "ledger.py:2 AssertionError 1.0 is not 1.01",
        "coder-7b patch located failures shown refused 0 of 2 0 yes",
        "SEARCH block 1 matches two places in ledger.py",
        "charged to nobody: 1 × idle",
        "C10 (REJECTED): names no <currency>",
        "local coder-7b 6 24.0 6,000 3,600 2,400 60% 1,200",
        "over the calls for which it said so (6,000 of 6,000 tokens)",
        "2023-11-14 22:13:20 UTC doit unfinished",
        "replayed without analysis",
        "logo.png removed +0 −0 (binary file, not shown)",
        "- return sum(xs) + return round(sum(xs), 2)",
    ):
        assert words in text, words


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    html = full()
    parsed = Page(html)
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(parsed.tags)
    assert {name for name, _ in parsed.attributes} <= {
        "lang", "charset", "http-equiv", "content", "name", "id", "class", "href", "style", "open", "colspan",
    }  # fmt: skip
    assert all(value and value.startswith("#") for name, value in parsed.attributes if name == "href")
    assert "url(" not in html and "@import" not in html
    assert "default-src 'none'" in html
    assert "prefers-color-scheme: dark" in html


def test_the_same_input_gives_the_same_bytes() -> None:
    assert full() == full()


MARKUP = ["<script>", "</pre>", '"', "'", "&", "{{ 7*7 }}", "{% x", "\x1b[31m", "\0"]
HOSTILE = st.lists(st.one_of(st.text(max_size=6), st.sampled_from(MARKUP)))


@settings(max_examples=25, deadline=None)
@given(HOSTILE)
def test_no_text_of_a_model_becomes_markup(parts: list[str]) -> None:
    evil = "".join(parts)
    try:
        evil.encode()
    except UnicodeEncodeError:
        return
    events: list[Event] = [
        RunStarted(at=1, pid=1, version="0", command=evil),
        StageStarted(at=1, stage=evil, why=evil),
        Finding(at=1, stage="s", source=evil, text=evil, where=evil),
        GateRan(at=1, stage="verify", attempt=0, record=record("red", outcome("test_t1_" + evil, "failed"), reason=evil)),
    ]
    summary = summarize(events, contract={"C1": evil}, matrix={"T1": "C1"})
    diff = diff_trees({"a": b""}, {"a": evil.encode(), evil: b"x\n"})
    html = page(summary, diff, render_deviations(summary.findings, [Unproven(what=evil, why=evil)]))
    parsed = Page(html)
    assert "script" not in parsed.tags
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", html)


def test_reuse_that_no_server_told_is_not_shown_as_none() -> None:
    names = {"stage": "plan", "label": "plan#1", "key": "a", "provider": "local", "model": "coder-7b"}
    silent = CallFinished.model_validate({**names, "outcome": "ok", "prompt_tokens": 900, "completion_tokens": 50})
    text = " ".join(Page(page(summarize([silent]))).text.split())
    assert "local coder-7b 1 0.0 900 – – not told 50" in text
    assert "(0 of 900 tokens)" in text


def test_a_model_that_answered_for_another_is_named_with_it() -> None:
    names = {"stage": "plan", "label": "plan#1", "key": "a", "provider": "local", "model": "small.gguf", "named": "large-70b"}
    text = " ".join(Page(page(summarize([CallFinished.model_validate({**names, "outcome": "ok"})]))).text.split())
    assert "small.gguf (asked for large-70b)" in text
    assert "Another model than the named one: local: asked for large-70b, small.gguf answered." in text


def test_an_empty_run_makes_an_honest_page() -> None:
    text = Page(page(summarize([]))).text
    for words in (
        "not run",
        "the quality gate never ran on it",
        "No contract yet.",
        "No gate ran.",
        "was attempted.",
        "Nothing ran.",
    ):
        assert words in text


def test_a_hand_edited_deviations_file_is_shown_as_it_stands() -> None:
    text = Page(page(summarize([]), deviations="# Deviations\n\nI looked: *all* fine ** really.\n\n## mine\n- **C1**: a\n- b\n")).text
    assert "I looked: *all* fine ** really." in text
    assert "C1: a" in text


def test_only_changed_files_are_in_the_diff() -> None:
    diff = diff_trees(V1, V2)
    assert [(f.path, f.status, f.added, f.removed) for f in diff.files] == [
        ("ledger.py", "changed", 1, 1),
        ("logo.png", "removed", 0, 0),
        ("money.py", "added", 1, 0),
    ]
    assert (diff.unchanged, diff.cut) == (1, 0)


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        (b"a\n", b"a\r\n", "differs only in line ends or control characters"),
        (None, b"", "empty file"),
        (b"\xff\xfe", b"a", "binary file, not shown"),
        (b"a\n" * (MAX_FILE_LINES + 1), b"a\n", f"{MAX_FILE_LINES + 1:,} lines, too long to compare here"),
    ],
)
def test_a_file_that_shows_no_lines_says_why(old: bytes | None, new: bytes, note: str) -> None:
    (only,) = diff_trees({} if old is None else {"f": old}, {"f": new}).files
    assert (only.lines, only.note) == ((), note)


def test_a_long_diff_is_cut_and_says_by_how_much() -> None:
    tree = {name: b"".join(b"%d\n" % i for i in range(100)) for name in ("a", "b", "c")}
    diff = diff_trees({}, tree, max_lines=150)
    assert [len(f.lines) for f in diff.files] == [101, 49, 0]
    assert diff.cut == 3 * 101 - 150
    assert diff.files[2].note == "101 lines of this diff cut"
    assert "Only the beginning is shown; 153 lines of diff cut." in Page(page(summarize([]), diff)).text


def test_a_line_without_end_is_cut() -> None:
    (only,) = diff_trees({}, {"min.js": b"x" * 100_000}).files
    assert len(only.lines[-1].text) == MAX_WIDTH + 1


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_two_files_can_be_compared(old: bytes, new: bytes) -> None:
    diff = diff_trees({"f": old}, {"f": new})
    assert len(diff.files) + diff.unchanged == 1
    assert all("\x1b" not in line.text for f in diff.files for line in f.lines)


def test_the_cases_of_a_parametrised_test_are_counted_not_listed() -> None:
    from nightmill.report import _functions

    assert _functions(["a.py::test_t1_x[1]", "a.py::test_t1_x[2]", "a.py::test_t2_y"]) == ["a.py::test_t1_x ×2", "a.py::test_t2_y"]
