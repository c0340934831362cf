"""The content of a whole file as a reply gives it: unwrapped, and refused when it is plainly something else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nightmill.edits.fences import Fence, fence_at
from nightmill.edits.items import Refused
from nightmill.edits.lines import is_blank
from nightmill.edits.paths import is_prose, suffix_of

_PATCH_TAGS = frozenset({"diff", "patch", "udiff"})
_PATCH_SUFFIXES = frozenset({"diff", "patch"})
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_SHELL_TAGS = frozenset({"bash", "sh", "shell", "zsh", "console", "terminal", "shell-session", "powershell", "output", "traceback"})
_SHELL_SUFFIXES = frozenset({"", "sh", "bash", "zsh", "ksh", "bats", "env", "ps1", "txt", "conf", "cfg", "out"})
_EXAMPLE_TAGS = _SHELL_TAGS | {"text", "txt", "plaintext", "log", "markdown", "md", "json"}
_CLOSING_TAG = re.compile(r"[ \t]*</(?:think|thinking|reasoning)>[ \t]*", re.IGNORECASE)
_OPENING_TAG = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)


def tag_of(info: str) -> str:
    """The language an info string names, lower case; "" when it names none."""
    match = re.match(r"[\w#+-]+", info)
    return match[0].lower() if match else ""


def is_code(fence: Fence) -> bool:
    """Does the fence say that it holds program text, as opposed to an example session or nothing?"""
    return bool(tag_of(fence.info)) and tag_of(fence.info) not in _EXAMPLE_TAGS


def content(fence: Fence, lines: Sequence[str], path: str) -> tuple[str, ...]:
    """The file's lines, given those inside `fence`. Raises Refused when they are a patch, a shell session, or wrapped beyond doubt."""
    if any(map(_CLOSING_TAG.fullmatch, lines)) and not any(map(_OPENING_TAG.search, lines)):
        raise Refused("ambiguous", "a closing reasoning tag stands inside the file: send the files after the reasoning.")
    tag, suffix = tag_of(fence.info), suffix_of(path)
    inner = _unwrapped(fence, lines, path)
    hunks = not is_prose(path) and any(_HUNK.match(line) for line in inner)
    if suffix not in _PATCH_SUFFIXES and (tag in _PATCH_TAGS or hunks):
        raise Refused("no edit", "diffs are not accepted: send SEARCH/REPLACE blocks or the whole file.")
    if tag in _SHELL_TAGS and suffix not in _SHELL_SUFFIXES:
        raise Refused("path", f"a fence tagged `{tag}` stands directly under this path, so it is taken for the file's whole content.")
    return tuple(inner)


def _unwrapped(fence: Fence, lines: Sequence[str], path: str) -> Sequence[str]:
    """`lines` without a second fence just inside the first; a file that may really begin with one is refused."""
    filled = [index for index, line in enumerate(lines) if not is_blank(line)]
    if len(filled) < 2:
        return lines
    first, last = fence_at(lines, filled[0]), fence_at(lines, filled[-1])
    if not first or not last or not last.bare or not last.may_close(first):
        return lines
    if not is_prose(path):
        return lines[filled[0] + 1 : filled[-1]]
    if first.may_close(fence):
        raise Refused("ambiguous", "the fence is doubled: put four backticks around a file that itself begins with a fence.")
    return lines
