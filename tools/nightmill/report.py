"""`report.html`: one page that needs nothing else. Everything on it is escaped; it carries no script and loads nothing."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from nightmill.deviations import UNPROVEN_HEADING
from nightmill.lines import count, seconds, stopwatch, terminal_safe
from nightmill.summary import Summary
from nightmill.timeline import Invocation, share, substitutes

MAX_LINES = 4000
"""Lines of diff on the page."""
MAX_FILE_LINES = 3000
"""A file with more lines than this, old or new, is named but not compared: difflib is quadratic on repetitive text."""
MAX_WIDTH = 400
"""Characters of one line of the diff."""
CONTEXT = 3


@dataclass(frozen=True)
class DiffLine:
    kind: Literal["hunk", "old", "new", "same"]
    text: str


@dataclass(frozen=True)
class FileDiff:
    """`note` says why `lines` is empty or ends early."""

    path: str
    status: Literal["added", "removed", "changed"]
    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    note: str = ""


@dataclass(frozen=True)
class TreeDiff:
    files: tuple[FileDiff, ...]
    unchanged: int
    cut: int
    """Lines of diff that did not fit on the page."""


def diff_trees(old: Mapping[str, bytes], new: Mapping[str, bytes], *, max_lines: int = MAX_LINES) -> TreeDiff:
    """Changed files in the order of their paths, as unified diffs, together at most `max_lines` lines."""
    files: list[FileDiff] = []
    left, cut = max_lines, 0
    paths = sorted({*old, *new})
    changed = [path for path in paths if old.get(path) != new.get(path)]
    for path in changed:
        whole = _diff_file(path, old.get(path), new.get(path))
        shown = whole.lines[:left]
        missing = len(whole.lines) - len(shown)
        note = whole.note or (f"{count(missing, 'line')} of this diff cut" if missing else "")
        files.append(FileDiff(whole.path, whole.status, whole.added, whole.removed, shown, note))
        left, cut = left - len(shown), cut + missing
    return TreeDiff(tuple(files), len(paths) - len(changed), cut)


def _diff_file(path: str, old: bytes | None, new: bytes | None) -> FileDiff:
    status: Literal["added", "removed", "changed"] = "added" if old is None else "removed" if new is None else "changed"
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return FileDiff(path, status, 0, 0, (), "binary file, not shown")
    if max(len(before), len(after)) > MAX_FILE_LINES:
        return FileDiff(path, status, 0, 0, (), f"{count(max(len(before), len(after)), 'line')}, too long to compare here")
    lines = tuple(_unified(before, after))
    added = sum(line.kind == "new" for line in lines)
    removed = sum(line.kind == "old" for line in lines)
    same = "differs only in line ends or control characters" if status == "changed" else "empty file"
    return FileDiff(path, status, added, removed, lines, "" if lines else same)


def _lines(data: bytes | None) -> list[str] | None:
    """None for binary data."""
    if data is None:
        return []
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else terminal_safe(text).splitlines()


def _unified(before: list[str], after: list[str]) -> Iterator[DiffLine]:
    kinds: dict[str, Literal["hunk", "old", "new", "same"]] = {"@": "hunk", "-": "old", "+": "new", " ": "same"}
    for i, line in enumerate(difflib.unified_diff(before, after, lineterm="", n=CONTEXT)):
        if i < 2:  # the two lines that name the files
            continue
        text = line if line[0] == "@" else line[1:]
        yield DiffLine(kinds[line[0]], text if len(text) <= MAX_WIDTH else text[:MAX_WIDTH] + "…")


def render_report(summary: Summary, diff: TreeDiff, deviations: str, template_dir: Path) -> str:
    """The page as text. `deviations` is the content of deviations.md, as a person may have edited it.

    The same arguments give the same bytes: times are UTC, and none of them is now.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    env = Environment(
        loader=FileSystemLoader(template_dir),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "seconds": seconds,
        "stopwatch": stopwatch,
        "count_of": count,
        "utc": _utc,
        "words": _words,
        "share": share,
        "substitutes": substitutes,
        "span": _span,
        "functions": _functions,
    }
    page = env.get_template("report.html.j2").render(s=summary, diff=diff, deviations=_blocks(deviations))
    return page.rstrip("\n") + "\n"


def _shown(value: object) -> object:
    """What an expression of the template prints: text of models and tools without control characters; escaping follows."""
    return terminal_safe(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _words(identifier: str) -> str:
    return identifier.replace("_", " ")


def _functions(tests: Iterable[str]) -> list[str]:
    """Test ids with the cases of a parametrised test counted: `test_x.py::test_t6_cut ×6`."""
    cases = Counter(test.partition("[")[0] for test in tests)
    return [f"{name} ×{n}" if n > 1 else name for name, n in cases.items()]


def _span(run: Invocation) -> float:
    """Seconds from the start of an invocation to the end of its last stage; never 0."""
    return max([stage.offset + stage.seconds for stage in run.stages] + [0.001])


_TAGS = {"### ": "h4", "## ": "h3", "# ": "", "- ": "li", "* ": "li", "": "p"}


def _blocks(markdown: str) -> list[tuple[str, list[tuple[bool, str]]]]:
    """The little Markdown of deviations.md as (tag, [(bold, text), …]) a line, without its title and its list of what is not proven,
    which have their own place on the page. What it does not know stays as it was written.
    """
    blocks = []
    for raw in terminal_safe(markdown).partition(UNPROVEN_HEADING)[0].splitlines():
        line = raw.strip()
        mark = next(m for m in _TAGS if line.startswith(m))
        if line and _TAGS[mark]:
            text = line.removeprefix(mark).replace("\\<", "<")
            parts = text.split("**") if text.count("**") % 2 == 0 else [text]
            blocks.append((_TAGS[mark], [(i % 2 == 1, part) for i, part in enumerate(parts)]))
    return blocks
