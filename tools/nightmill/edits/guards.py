"""Checks on what a reply would write, each returning why it must not, or None. Adding a language means one line in a table here."""

from __future__ import annotations

import json
import re
import threading
import tomllib
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from nightmill.edits.lines import is_blank
from nightmill.edits.paths import suffix_of
from nightmill.syntax import parsed

_LARGE = 40
"""Lines from which on a file that comes back much smaller is suspicious (EDIT_RULES)."""

_DECLARATION = re.compile(
    r"[ \t]*(?:(?:export|default|pub(?:\([\w:]+\))?|public|private|protected|internal|static|final|abstract|async|unsafe|extern)[ \t]+)*"
    r"(?:def|class|fn|func|fun|function|struct|enum|trait|impl|interface|type|module|namespace|const|let|var|val)\b[ \t*]*([\w$]+)"
)
_DOTS = re.compile(r"\W*(?:\.{3,}|…)\W*")
_EXAMPLE_FOLDER = "path/to/"
_EXAMPLE_BODIES = ("old lines", "new lines")
"""The grammar's own example, as the prompt's format section shows it."""

_LONGEST_CHECKED = 500_000
"""Characters up to which syntax is checked: about half a second for Python; larger files are data."""

_quiet = threading.Lock()


def shrinks(old: Sequence[str], new: Sequence[str]) -> str | None:
    """For a whole-file answer: does it drop most lines and most declarations of a file of some size?"""
    filled, left = (sum(not is_blank(line) for line in lines) for lines in (old, new))
    if len(old) < _LARGE or left * 2 >= filled:
        return None
    declared, kept = _declared(old), _declared(old) & _declared(new)
    if declared and len(kept) * 2 >= len(declared):
        return None
    lost = f" and {len(declared) - len(kept)} of {len(declared)} declarations" if declared else ""
    return f"the whole file given has {left} lines instead of {filled}{lost} gone: send SEARCH/REPLACE blocks, or every line."


def hides_code(old: Sequence[str], new: Sequence[str]) -> bool:
    """Does a whole-file answer have a new line of dots, bare or as a comment, and lack declarations, or hold nothing else?"""
    before = {line.strip() for line in old}
    dots = [line for line in new if _DOTS.fullmatch(line) and line.strip() not in before]
    return bool(dots) and (bool(_declared(old) - _declared(new)) or all(is_blank(line) or line in dots for line in new))


def is_excerpt(old: Sequence[str], new: Sequence[str]) -> bool:
    """Are the new lines a part of the old ones, in one piece and shorter?"""
    return len(new) < len(old) and "\n".join(("", *new, "")) in "\n".join(("", *old, ""))


def _declared(lines: Iterable[str]) -> set[str]:
    return {match[1] for line in lines if (match := _DECLARATION.match(line))}


def copied_example(path: str, missing: bool, bodies: Iterable[str], examples: Collection[str]) -> str | None:
    """Does this part repeat the prompt's own example: its path (which is no file here) or one of its bodies?"""
    if missing and (path in examples or path.startswith(_EXAMPLE_FOLDER)):
        return f"`{path}` is the path of the example in the instructions."
    known = {example.strip() for example in (*examples, *_EXAMPLE_BODIES)}
    if any(body.strip() in known for body in bodies if body.strip()):
        return "this is the example from the instructions: give your own edit."
    return None


def _python(text: str) -> str | None:
    try:
        with _quiet, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return None


def _json(text: str) -> str | None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None


def _toml(text: str) -> str | None:
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None


SYNTAX: Mapping[str, Callable[[str], str | None]] = {"py": _python, "pyi": _python, "json": _json, "toml": _toml}
"""File ending → what is wrong with a text of that language, None when it parses."""


def syntax_error(path: str, text: str) -> str | None:
    """What keeps `text` from parsing; None when it parses, the language is unknown, or the text is too long to look at."""
    check = SYNTAX.get(suffix_of(path))
    return check(text) if check and len(text) <= _LONGEST_CHECKED else None


def knows_syntax(path: str) -> bool:
    return suffix_of(path) in SYNTAX


def breaks_syntax(path: str, old: str, new: str) -> str | None:
    """Did `old` parse, and does `new` not?"""
    error = syntax_error(path, new)
    return error if error and syntax_error(path, old) is None else None
