"""Reading the plain text blocks that models write: labels, headed sections, bullets and table rows, however they are decorated.

Nothing here guesses: a line that does not have the shape is passed over, and the reply class that misses it says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_LEAD = r"[\s>]*+(?:#++\s*+)?+(?:[-*+•]\s++)?+(?:\d{1,3}[.)]\s++)?+[*_`]*+"  # possessive: hostile lines cost no more than their length
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})[\w+.-]*\s*$")
_BULLET = re.compile(r"(\s*)(?:[-*+•–]|\d{1,3}[.)])\s+(\S.*)$")
_HEADING = re.compile(r"\s*#{1,6}\s*(\S.*)$")
_NOTHING = frozenset(
    ["", "none", "nothing", "n a", "na", "empty"]
    + [f"no {things}" for things in ("findings", "issues", "problems", "exclusions", "deviations")]
)


def lines(text: str) -> list[str]:
    """The lines of `text`, which end at LF or CRLF and nowhere else, without the fence lines around them."""
    return [line for line in text.replace("\r\n", "\n").split("\n") if not _FENCE.match(line)]


def undecorated(value: str) -> str:
    """`value` without the bold or code marks that wrap all of it, or that lost their other half to a label."""
    before = None
    while value != before:
        before = value = value.strip()
        for mark in ("**", "__", "`"):
            if value.count(mark) % 2:
                value = value.removeprefix(mark) if value.startswith(mark) else value.removesuffix(mark)
            elif value.count(mark) == 2 and value.startswith(mark) and value.endswith(mark):
                value = value[len(mark) : -len(mark)]
    return value


def labelled(line: str, label: str) -> tuple[str, str] | None:
    """`**LABEL**: value` → (label as written, value); `label` is a regular expression, case is ignored. None when the line is not that."""
    match = re.match(rf"{_LEAD}({label})[*_`\s]*[:：][*_]*\s*(.*)$", line, re.I)
    return (match[1], undecorated(match[2])) if match else None


def heading(line: str) -> str | None:
    """The words of a `## heading` or of a line that is bold as a whole, without a closing colon; else None."""
    match = _HEADING.match(line)
    words = match[1] if match else line.strip()
    if not match and not (len(words) > 4 and words[:2] == "**" and words.rstrip(":").endswith("**") and words.count("**") == 2):
        return None
    return undecorated(undecorated(words.rstrip(" #:")).rstrip(":"))


def sections(text: str, names: Sequence[str]) -> dict[str, list[str]]:
    """The lines below each heading that begins with one of `names`; "" holds all other lines, headings included.

    A heading is `## Name`, `**Name**` or `Name:`. A name that appears twice keeps both parts; any other `#` heading ends a section.
    """
    found: dict[str, list[str]] = {"": []}
    current = found[""]
    for line in lines(text):
        title = heading(line)
        label = labelled(line, "|".join(map(re.escape, names))) if title is None else None
        name = _named(label[0] if label else title or "", names)
        if name is not None:
            current = found.setdefault(name, [])
            if label and label[1]:
                current.append(label[1])
            continue
        if _HEADING.match(line):
            current = found[""]
        current.append(line)
    return found


def _named(title: str, names: Iterable[str]) -> str | None:
    return next((name for name in names if re.match(rf"(?:\d+[.)]\s*)?{re.escape(name)}\b", title, re.I)), None)


def items(block: Iterable[str]) -> list[str]:
    """The top-level bullets of `block`, each with its continuation lines joined by spaces; bullets that say "none" are left out.

    After an empty line only an indented line continues a bullet, so that chatter below a list is not taken into it.
    """
    found: list[str] = []
    depth, gap, open_ = 0, False, False
    for line in block:
        bullet = _BULLET.match(line)
        if not line.strip():
            gap = True
            continue
        if bullet and not (open_ and len(bullet[1]) > depth):
            found.append(bullet[2].strip())
            depth, open_ = len(bullet[1]), True
        elif open_ and heading(line) is None and (line[0].isspace() or not gap):
            found[-1] += " " + (bullet[2] if bullet else line).strip()
        else:
            open_ = False
        gap = False
    return [item for item in found if not says_nothing(item)]


def says_nothing(text: str) -> bool:
    """Whether `text` is empty, punctuation, or a way of saying "none"."""
    return re.sub(r"[\W_]+", " ", text).strip().lower().removesuffix(" found") in _NOTHING


def cells(line: str) -> list[str]:
    r"""The cells of a table row, outer pipes optional; `\|` and a pipe in backticks belong to a cell. Empty when there is no inner pipe."""
    row = line.strip()
    parts = re.split(r"(?<!\\)\|", row)
    parts = parts[1:] if len(parts) > 1 and not parts[0].strip() else parts
    parts = parts[:-1] if len(parts) > 1 and not parts[-1].strip() else parts
    joined: list[str] = []
    for part in parts:
        if joined and joined[-1].count("`") % 2 and part.count("`") % 2:
            joined[-1] += "|" + part
        else:
            joined.append(part)
    return [part.replace("\\|", "|").strip() for part in joined] if len(joined) > 1 else []


def novel(text: str, *examples: str) -> str:
    """`text` without the bullets, clauses and rows that are copied from a prompt's own example, as very small models do."""
    copied = {_key(line) for example in examples for line in example.split("\n") if _is_item(line)}
    return "\n".join(line for line in text.replace("\r\n", "\n").split("\n") if not (_is_item(line) and _key(line) in copied))


def _is_item(line: str) -> bool:
    return len(_key(line)) >= 16 and (_BULLET.match(line) is not None or re.match(r"\W*[CT]\d", line) is not None)


def _key(line: str) -> str:
    return re.sub(r"[\W_]+", " ", line).strip().casefold()
