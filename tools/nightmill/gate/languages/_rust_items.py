"""The items that a Rust file declares: functions with their parameters and bodies, types, constants, modules, imports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from nightmill.gate.languages._rust_tokens import Code, Unreadable, code, read, string_value
from nightmill.gate.languages.base import Symbol
from nightmill.gate.records import Diagnostic

NOT_IMPLEMENTED = re.compile(r"not (yet )?implemented\b", re.I)
"""How the text of a stub's panic begins."""
_QUALIFIERS = frozenset({"const", "async", "unsafe", "extern", "default", "safe"})
_TYPES = frozenset({"struct", "enum", "union", "trait", "type"})
_SIGNATURE_LIMIT = 200


@dataclass(frozen=True)
class Item:
    """One declaration; ranges are of tokens, the second index not included."""

    kind: Literal["function", "method", "class", "constant", "module", "use", "impl", "macro"]
    name: str
    """Qualified within the file: `Till.total`, `inner.parse`; of a `use` its text."""
    first: int
    """Its first attribute, or visibility, or keyword."""
    head: int
    """Its first token that belongs to no attribute."""
    after: int
    public: bool = False
    params: tuple[int, int] = (0, 0)
    body: tuple[int, int] = (0, 0)
    """The braces of a function included; empty where there is none."""
    is_const: bool = False
    only_tests: bool = False
    """Below `#[cfg(test)]`, or a test itself."""

    @property
    def is_function(self) -> bool:
        return self.kind in ("function", "method")


@lru_cache(maxsize=256)
def items(found: Code) -> tuple[Item, ...]:
    """All of the file, an outer item before the ones inside it. A name that comes twice is told apart by its trait, or a number."""
    every = list(_scan(found, 0, len(found.tokens), "", "function", False, False))
    seen: dict[str, int] = {}
    named = []
    for item in every:
        seen[item.name] = seen.get(item.name, 0) + 1
        times = seen[item.name]
        named.append(replace(item, name=f"{item.name}~{times}") if item.is_function and times > 1 else item)
    return tuple(named)


def _scan(
    found: Code, index: int, end: int, prefix: str, kind: Literal["function", "method"], public: bool, only_tests: bool
) -> Iterator[Item]:
    while index < end:
        first = index
        attributes: list[tuple[str, ...]] = []
        while index < end and found.at(index, "#"):
            bracket = index + 2 if found.at(index + 1, "!") else index + 1
            if bracket >= end or not found.at(bracket, "["):
                break
            if bracket == index + 1:
                attributes.append(found.words(bracket + 1, found.partner[bracket]))
            else:
                first = found.over(bracket)
            index = found.over(bracket)
        if index >= end:
            return
        tests = only_tests or ("test",) in attributes or ("cfg", "(", "test", ")") in attributes
        made = _item(found, first, index, end, prefix, kind, public, tests)
        yield from made
        index = max(made[0].after, index + 1) if made else found.over(index)


def _item(
    found: Code, first: int, head: int, end: int, prefix: str, kind: Literal["function", "method"], public: bool, tests: bool
) -> list[Item]:
    index, visible = head, public
    if found.at(index, "pub"):
        visible = not found.at(index + 1, "(")
        index = index + 1 if visible else found.over(index + 1)
    start, is_const = index, False
    while index < end and found.tokens[index].text in _QUALIFIERS and not found.at(index, "const", "_"):
        is_const = is_const or found.at(index, "const")
        index += 1
        if index < end and found.tokens[index].kind == "string":
            index += 1
    if index + 1 >= end:
        return []
    word, name = found.tokens[index].text, found.tokens[index + 1]
    base = Item("macro", "", first, head, _end(found, index, end), visible, only_tests=tests)
    if word == "fn" and name.kind == "name":
        return _function(found, replace(base, kind=kind, name=prefix + name.text, is_const=is_const), index + 2, end)
    index = start
    word, name = found.tokens[index].text, found.tokens[index + 1]
    if word in ("unsafe", "default", "auto") and index + 2 < end:
        index += 1
        word, name = found.tokens[index].text, found.tokens[index + 1]
    if word in _TYPES and name.kind == "name":
        own = replace(base, kind="class", name=prefix + name.text)
        opens = _brace(found, index, own.after)
        inside = [] if word != "trait" or opens < 0 else _inner(found, opens, f"{own.name}.", "method", visible, tests)
        return [own, *inside]
    if word in ("const", "static"):
        at = index + 2 if found.at(index + 1, "mut") else index + 1
        own = replace(base, kind="constant", name=prefix + found.tokens[at].text)
        return [replace(own, after=_semicolon(found, index, end))]
    if word == "mod" and name.kind == "name":
        own = replace(base, kind="module", name=prefix + name.text)
        return [own, *(_inner(found, index + 2, f"{own.name}.", "function", False, tests) if found.at(index + 2, "{") else [])]
    if word == "impl":
        return _impl(found, base, index, prefix, tests)
    if word in ("use", "extern"):
        after = _semicolon(found, index, end) if word == "use" or found.at(index + 1, "crate") else base.after
        return [replace(base, kind="use", name=" ".join(found.slice(index, after).split()), after=after)]
    return [replace(base, name=found.tokens[index].text)]


def _inner(found: Code, opens: int, prefix: str, kind: Literal["function", "method"], public: bool, tests: bool) -> list[Item]:
    return list(_scan(found, opens + 1, found.partner[opens], prefix, kind, public, tests))


def _impl(found: Code, base: Item, index: int, prefix: str, tests: bool) -> list[Item]:
    opens = _brace(found, index, base.after)
    if opens < 0:
        return [base]
    at = _over_angles(found, index + 1) if found.at(index + 1, "<") else index + 1
    of_trait = next((i for i in range(at, opens) if found.at(i, "for") and not found.at(i + 1, "<")), 0)
    stop = next((i for i in range(of_trait or at, opens) if found.at(i, "where")), opens)
    name = _type_name(found, of_trait + 1 if of_trait else at, stop)
    own = replace(base, kind="impl", name=f"impl {' '.join(found.slice(index + 1, opens).split())}")
    return [own, *_inner(found, opens, f"{prefix}{name}.", "method", bool(of_trait), tests)]


def _type_name(found: Code, first: int, after: int) -> str:
    """The last part of the path at the front of a type: `Ledger` of `&'a mut books::Ledger<T>`."""
    name = ""
    for index in range(first, after):
        token = found.tokens[index]
        if token.kind == "name" and token.text not in ("dyn", "mut"):
            name = token.text
            if not found.at(index + 1, "::"):
                break
        elif token.text == "<":
            break
    return name or "impl"


def _function(found: Code, item: Item, index: int, end: int) -> list[Item]:
    if index < end and found.at(index, "<"):
        index = _over_angles(found, index)
    if index >= end or not found.at(index, "("):
        return []
    closed = found.partner[index]
    at = closed + 1
    while at < end and found.tokens[at].text not in ("{", ";"):
        at = found.over(at)
    if at >= end:
        return []
    params = (index + 1, closed)
    if found.at(at, ";"):
        return [replace(item, after=at + 1, params=params)]
    return [replace(item, after=found.over(at), params=params, body=(at, found.over(at)))]


def _over_angles(found: Code, index: int) -> int:
    depth = 0
    while index < len(found.tokens):
        depth += found.at(index, "<") - found.at(index, ">")
        index = found.over(index)
        if depth <= 0:
            break
    return index


def _brace(found: Code, index: int, after: int) -> int:
    """The first brace outside of other brackets; -1 when there is none before `after`."""
    while index < after:
        if found.at(index, "{"):
            return index
        index = found.over(index)
    return -1


def _end(found: Code, index: int, end: int) -> int:
    """Behind the first semicolon or brace."""
    while index < end:
        if found.tokens[index].text in (";", "{"):
            return found.over(index)
        index = found.over(index)
    return end


def _semicolon(found: Code, index: int, end: int) -> int:
    while index < end and not found.at(index, ";"):
        index = found.over(index)
    return min(index + 1, end)


def problem(path: str, data: bytes) -> Diagnostic | None:
    """The located error that keeps the file from being read as Rust; only the coarsest are seen without the compiler."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Diagnostic(file=path, line=line, message="not UTF-8 text", code="UnicodeDecodeError")
    try:
        read(text)
    except Unreadable as error:
        place = Code(text, (), {})
        return Diagnostic(file=path, line=place.line(error.at), column=place.column(error.at), message=str(error), code="SyntaxError")
    return None


def owing(found: Code) -> list[Item]:
    """The functions that may be asked for: with a body, no test, and not complete by its nature."""
    return [i for i in items(found) if i.is_function and i.body[1] and not i.only_tests and not _complete(found, i)]


def _complete(found: Code, item: Item) -> bool:
    """A `const fn` runs in the compiler, `-> impl …` needs a value to have a type, and a constructor may keep its arguments."""
    opens, after = item.body
    inner = found.words(opens + 1, after - 1)
    names = ("Self", item.name.split(".")[-2]) if item.kind == "method" else ()
    whole = len(inner) == 1 or (inner[1:2] in (("{",), ("(",)) and found.over(opens + 2) == after - 1)
    computes = {"(", "!", "?", "if", "match", "for", "while", "loop"} & set(inner[2:])
    keeps = bool(inner) and inner[0] in names and whole and not computes
    return item.is_const or found.at(item.params[1] + 1, "->", "impl") or keeps


def stubs(text: str) -> tuple[str, ...]:
    """Qualified names of the functions whose only statement is `todo!()`, `unimplemented!()` or `panic!("not implemented")`."""
    found = code(text)
    return tuple(i.name for i in items(found) if i.is_function and not i.only_tests and is_stub(found, i)) if found else ()


def is_stub(found: Code, item: Item) -> bool:
    """`let _ = (a, b);` before it, which keeps the compiler quiet about unused parameters, does not count."""
    index, after = item.body[0] + 1, item.body[1] - 1
    while found.at(index, "let", "_", "=") and index < after:
        index = _semicolon(found, index, after)
    if after - index < 4 or not (found.at(index + 1, "!") and found.at(index + 2, "(")):
        return False
    behind = found.over(index + 2)
    if behind not in (after, after - 1) or (behind == after - 1 and not found.at(behind, ";")):
        return False
    said = string_value(found.tokens[index + 3]) or ""
    word = found.tokens[index].text
    return word in ("todo", "unimplemented") or (word == "panic" and NOT_IMPLEMENTED.match(said) is not None)


def symbols(path: str, text: str) -> list[Symbol]:
    """Functions, types and constants of a file without those for tests. Methods that a trait only declares are part of the trait."""
    found = code(text)
    if found is None:
        return []
    whole = set(owing(found))
    return [
        Symbol(
            name=i.name,
            kind=i.kind,
            file=path,
            line=found.line(found.tokens[i.head].start),
            signature=_signature(found, i),
            public=i.public,
        )
        for i in items(found)
        if i.kind in ("function", "method", "class", "constant") and not i.only_tests and (not i.is_function or i in whole)
    ]  # fmt: skip


def _signature(found: Code, item: Item) -> str:
    after = item.body[0] if item.body[1] else item.after
    line = " ".join(found.slice(item.head, after).split()).removesuffix(";")
    return line if len(line) <= _SIGNATURE_LIMIT else line[: _SIGNATURE_LIMIT - 1] + "…"


def enclosing(text: str, line: int) -> str:
    """The qualified name of the innermost function around a line; "" outside of all."""
    found = code(text)
    best = ""
    for item in items(found) if found and line else ():
        first, last = found.line(found.tokens[item.head].start), found.line(found.tokens[item.after - 1].end - 1)  # type: ignore[union-attr]
        if item.is_function and first <= line <= last:
            best = item.name
    return best
