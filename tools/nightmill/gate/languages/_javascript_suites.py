"""The tests that a file declares for `node:test`, as text: their ids, and the file without some of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nightmill.gate.authority import Asked, Census
from nightmill.gate.languages._javascript_declared import code
from nightmill.gate.languages._javascript_tokens import Code, string_value

_TESTS, _SUITES = frozenset({"test", "it"}), frozenset({"describe", "suite"})
_MARKS = frozenset({"skip", "only", "todo"})
_CASES = re.compile(r"([^`$]+)\[\$\{")
"""A name of cases: `name[${n}]`, in a template."""


@dataclass(frozen=True)
class Declared:
    name: str
    """With the suites it stands in, `group::test_t1_x`; of cases without their brackets."""
    first: int
    after: int
    """Tokens of the whole statement."""


def clean(name: str) -> str:
    """A test's name as a part of an id: one line, without the marks that ids are split at."""
    return " ".join(name.split()).replace("::", ":").replace("[", "(").replace("]", ")")


def tests(path: str, text: str) -> tuple[str, ...]:
    """`path::test_t1_name`, `path::group::test_t1_name`. Subtests belong to their test; names made at run time are not known here."""
    found = code(text)
    return tuple(dict.fromkeys(f"{path}::{t.name}" for t in declared(found, 0, len(found.tokens), ""))) if found else ()


def source(text: str, name: str) -> str:
    """The statement of the test called `group.test_t1_x`; "" when there is none."""
    found = code(text)
    every = declared(found, 0, len(found.tokens), "") if found else ()
    return next((found.slice(t.first, t.after) for t in every if found and t.name.replace("::", ".") == name), "")


def without(text: str, names: set[str]) -> str:
    """The file without the tests in `names`; unchanged where it cannot be read."""
    found = code(text)
    if found is None:
        return text
    for test in reversed([t for t in declared(found, 0, len(found.tokens), "") if t.name in names]):
        start, end = found.tokens[test.first].start, found.tokens[test.after - 1].end
        text = text[:start] + text[end:]
    return re.sub(r"\n{4,}", "\n\n\n", text)


def declared(found: Code, index: int, end: int, prefix: str) -> Iterator[Declared]:
    while index < end:
        word = found.tokens[index]
        called = word.kind == "name" and (word.text in _TESTS or word.text in _SUITES) and not found.at(index - 1, ".")
        marked = called and found.at(index + 1, ".") and index + 2 < end and found.tokens[index + 2].text in _MARKS
        opens = index + 3 if marked else index + 1
        if not (called and found.at(opens, "(") and not found.at(index - 1, "function")):
            index += 1
            continue
        after = found.over(opens)
        name = _name(found, opens + 1)
        if name and word.text in _SUITES:
            yield from declared(found, opens + 2, after - 1, f"{prefix}{name}::")
        elif name:
            first = index - 1 if found.at(index - 1, "await") else index
            yield Declared(prefix + name, first, after + 1 if found.at(after, ";") else after)
        index = after


def _name(found: Code, index: int) -> str:
    """The name that the first argument gives; "" when it is made at run time."""
    token = found.tokens[index]
    value = string_value(token)
    if value is not None:
        return clean(value)
    cases = _CASES.match(token.text[1:]) if token.kind == "template" else None
    return cases[1].strip() if cases else ""


def census(path: str, text: str) -> Census:
    """What each test asks: its assertions, and what keeps it from running. The file's own path stands for the rest of the file."""
    found = code(text)
    if found is None:
        return {path: Asked()}
    made = {path: Asked()}
    inside: set[int] = set()
    for test in declared(found, 0, len(found.tokens), ""):
        here = range(test.first, test.after)
        inside |= set(here)
        made[f"{path}::{test.name}"] = _asked(found, here)
    return made | {path: _asked(found, [i for i in range(len(found.tokens)) if i not in inside])}


def _asked(found: Code, indices: Iterable[int]) -> Asked:
    indices = list(indices)
    asserts = [i for i in indices if found.tokens[i].text == "assert" and not found.at(i - 1, ".") and _calls(found, i)]
    checks = [i for i in asserts if not _constant(found, i)]
    marks = [found.tokens[i].text for i in indices if found.at(i - 1, ".") or found.at(i + 1, ":")]
    return Asked(len(checks), marks.count("skip"), marks.count("todo") + marks.count("expectFailure"))


def _calls(found: Code, index: int) -> int:
    """The parenthesis of `assert(…)` or `assert.equal(…)`; 0 when it is none."""
    return index + 1 if found.at(index + 1, "(") else index + 3 if found.at(index + 1, ".") and found.at(index + 3, "(") else 0


def _constant(found: Code, index: int) -> bool:
    """Whether it asserts nothing but literals: `assert.ok(true)`, `assert.equal(1, 1)`."""
    opens = _calls(found, index)
    inner = found.tokens[opens + 1 : found.partner[opens]]
    return all(t.kind in ("number", "string") or t.text in ("true", "false", ",", "null", "undefined") for t in inner)
