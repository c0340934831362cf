"""The content of a whole file as a reply gives it: unwrapped, and refused when it is plainly something else."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from nightmill.edits.fences import Fence, fence_at
from nightmill.edits.items import Refused
from nightmill.edits.lines import BLANK, is_blank
from nightmill.edits.markers import dedented
from nightmill.edits.paths import is_prose, suffix_of

_PATCH_TAGS = frozenset({"diff", "patch", "udiff"})
_PATCH_SUFFIXES = frozenset({"diff", "patch"})
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_SHELL_TAGS = frozenset({"bash", "sh", "shell", "zsh", "console", "terminal", "shell-session", "powershell", "output", "traceback"})
_SHELL_SUFFIXES = frozenset({"", "sh", "bash", "zsh", "ksh", "bats", "env", "ps1", "txt", "conf", "cfg", "out"})
_EXAMPLE_TAGS = _SHELL_TAGS | {"text", "txt", "plaintext", "log", "markdown", "md", "json"}
_MARKER_LIKE = re.compile(
    r"[ \t]*(?:(?:<{3,}|>{3,})[ \t]*(?:SEARCH|REPLACE|ORIGINAL|UPDATED|HEAD)\b.*|(?:<{5,}|>{5,}|(?:&[lg]t;){5,})(?:[ \t]*\w.*)?)",
    re.IGNORECASE | re.DOTALL,
)
_HALVES = tuple(re.compile(rf"[\W_]*{word}[\W_]*") for word in ("SEARCH", "REPLACE"))
_TAGS = tuple(re.compile(rf"[ \t]*<{word}>[ \t]*", re.IGNORECASE) for word in ("search", "replace"))
_ENVELOPE = re.compile(r"\*\*\* (?:Begin Patch|Update File:|End Patch)")
_DIVIDER = re.compile(r"[ \t]*={5,}[ \t]*")
_TEXT_SUFFIXES = frozenset({"", "txt", "text", "log", "out", "csv", "tsv", "diff", "patch", "org", "tex", "snap", "feature"})
_NUMBERED = re.compile(r"[ \t]*\d+[ \t]*[|│→]")
_CLOSING_TAG = re.compile(r"[ \t]*</(?:think|thinking|reasoning)>[ \t]*", re.IGNORECASE)
_OPENING_TAG = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)


def tag_of(info: str) -> str:
    """The language an info string names, lower case; "" when it names none."""
    match = re.match(r"[\w#+-]+", info)
    return match[0].lower() if match else ""


def is_example(fence: Fence) -> bool:
    """Does the fence say that it holds a session, an output or a remark rather than program text?"""
    return tag_of(fence.info) in _EXAMPLE_TAGS


def content(fence: Fence, opener: str, lines: Sequence[str], path: str) -> tuple[str, ...]:
    """The file's lines, given those inside `fence`, whose own line is `opener`.

    Raises Refused when they are plainly a patch or a shell session, or when nobody can tell what belongs to the file.
    """
    if any(map(_CLOSING_TAG.fullmatch, lines)) and not any(map(_OPENING_TAG.search, lines)):
        raise Refused("ambiguous", "a closing reasoning tag stands inside the file: send the files after the reasoning.")
    tag, suffix = tag_of(fence.info), suffix_of(path)
    inner = _unwrapped(fence, dedented(lines, opener), path)
    hunks = not is_prose(path) and any(_HUNK.match(line) for line in inner)
    if suffix not in _PATCH_SUFFIXES and (tag in _PATCH_TAGS or hunks):
        raise Refused("no edit", "diffs are not accepted: send SEARCH/REPLACE blocks or the whole file.")
    if tag in _SHELL_TAGS and suffix not in _SHELL_SUFFIXES:
        raise Refused("path", f"a fence tagged `{tag}` stands directly under this path, so it is taken for the file's whole content.")
    return tuple(inner)


def _is_program(path: str) -> bool:
    """Would a fence or an underline at the left edge be out of place in this file?"""
    return not is_prose(path) and suffix_of(path) not in _TEXT_SUFFIXES


def _unwrapped(fence: Fence, lines: Sequence[str], path: str) -> Sequence[str]:
    """`lines` without a second fence just inside the first; a file that may really begin with one is refused."""
    filled = [index for index, line in enumerate(lines) if not is_blank(line)]
    if not filled:
        return lines
    first, last = fence_at(lines, filled[0]), fence_at(lines, filled[-1])
    doubled = first is not last and first and last and last.bare and last.may_close(first)
    if doubled and _is_program(path):
        return lines[filled[0] + 1 : filled[-1]]
    if (first or last) if _is_program(path) else (first and first.may_close(fence)):
        raise Refused("ambiguous", "a fence stands just inside the fence: put four backticks around a file that begins or ends with one.")
    return lines


def demand_plain(lines: Sequence[str], path: str, known: Collection[str], parses: bool | None) -> None:
    """Raises Refused when a whole file holds the remains of another edit format, or line numbers, that the file does not hold already.

    `parses` is None for a language that cannot be checked.
    """
    fresh = [line for line in lines if line.strip(BLANK) not in known]
    if any(map(_MARKER_LIKE.fullmatch, fresh)) or _all_occur(_HALVES, fresh) or _all_occur(_TAGS, fresh):
        raise Refused("truncated", "half an edit stands inside a whole file: write `<<<<<<< SEARCH`, `=======` and `>>>>>>> REPLACE`.")
    if any(map(_ENVELOPE.match, fresh)):
        raise Refused("no edit", "patches are not accepted: send SEARCH/REPLACE blocks or the whole file.")
    divided = _is_program(path) and any(map(_DIVIDER.fullmatch, fresh))
    if divided and not parses:
        raise Refused("truncated", "a divider stands inside a whole file: a block needs its SEARCH and REPLACE lines too.")
    filled = [line for line in fresh if not is_blank(line)]
    if len(filled) > 2 and all(map(_NUMBERED.match, filled)):
        raise Refused("ambiguous", "every line has a number in front: send the lines without numbers.")


def _all_occur(patterns: Iterable[re.Pattern[str]], lines: Sequence[str]) -> bool:
    return all(any(map(pattern.fullmatch, lines)) for pattern in patterns)
