"""The declarations of a JavaScript file, found by its tokens: which names, and from where to where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from nightmill.gate.languages._javascript_tokens import Code, Unreadable, commas, read

_MODIFIERS = frozenset({"static", "async", "get", "set", "*", "accessor"})
_DECLARES = frozenset({"const", "let", "var"})
_JOINS = frozenset({
    "=", "=>", "+", "-", "*", "/", "%", "&", "|", "^", "!", "~", "?", ":", ",", ".", "?.", "&&", "||", "??", "==", "!=", "===", "!==",
    "<", ">", "<=", ">=", "**", "<<", ">>", ">>>", "in", "of", "instanceof", "new", "typeof",
})  # fmt: skip
_GOES_ON = frozenset({
    "=", "+", "-", "*", "/", "%", "&", "|", "^", "?", ":", ",", ".", "?.", "&&", "||", "??", "==", "!=", "===", "!==", "<", ">", "<=",
    ">=", "**", "(", "[", "in", "of", "instanceof", "=>", ";", ")", "]", "}",
})  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """One declaration. All places are indices of tokens; `after` is the one behind its last."""

    name: str
    """Qualified: `Ledger.total`, `Ledger.total=` for its setter, `Ledger.#sum`."""
    kind: Literal["function", "class", "method", "constant"]
    first: int
    after: int
    params: tuple[int, int] = (0, 0)
    """Between the parentheses, or the one name of an arrow function."""
    body: tuple[int, int] = (0, 0)
    """A block from `{` to behind `}`, or the expression of an arrow function; (0, 0) for what has none."""
    exported: bool = False
    is_async: bool = False

    @property
    def is_function(self) -> bool:
        return self.kind in ("function", "method")


def code(text: str) -> Code | None:
    """None when it cannot be read."""
    try:
        return read(text)
    except Unreadable:
        return None


def pieces(found: Code) -> list[Piece]:
    """Declarations of the module and of its classes, in the order of the file."""
    made = list(_statements(found))
    exported = _exported_lists(found)
    return [replace(p, exported=p.exported or p.name.split(".")[0] in exported) for p in made]


def _statements(found: Code) -> Iterator[Piece]:
    index = 0
    while index < len(found.tokens):
        first, exported = index, found.at(index, "export")
        index += exported
        named_default = exported and found.at(index, "default")
        index += named_default
        made, index = _declaration(found, first, index, exported, named_default)
        yield from made
        if not made:
            index = _common_js(found, index) or found.over(index) if index < len(found.tokens) else index


def _declaration(found: Code, first: int, index: int, exported: bool, default: bool) -> tuple[list[Piece], int]:
    """The declaration that begins at `index`, if any, and where the scan goes on."""
    if found.at(index, "async", "function") or found.at(index, "function"):
        return _function(found, first, index, exported, default)
    if found.at(index, "class"):
        return _class(found, first, index, exported, default)
    if index < len(found.tokens) and found.tokens[index].text in _DECLARES and not found.at(index + 1, "."):
        return _constants(found, first, index, exported)
    return [], index


def _function(found: Code, first: int, index: int, exported: bool, default: bool = False) -> tuple[list[Piece], int]:
    is_async = found.at(index, "async")
    at = index + is_async + 1
    at += found.at(at, "*")
    name = found.tokens[at].text if at < len(found.tokens) and found.tokens[at].kind == "name" else "default" if default else ""
    at += found.tokens[at].kind == "name" if at < len(found.tokens) else 0
    if not name or not found.at(at, "("):
        return [], index + 1
    body = found.over(at)
    if not found.at(body, "{"):
        return [], index + 1
    after = found.over(body)
    return [Piece(name, "function", first, after, (at + 1, body - 1), (body, after), exported, is_async)], after


def _class(found: Code, first: int, index: int, exported: bool, default: bool = False) -> tuple[list[Piece], int]:
    at = index + 1
    if at >= len(found.tokens):
        return [], at
    named = found.tokens[at].kind == "name" and found.tokens[at].text != "extends"
    name = found.tokens[at].text if named else "default" if default else ""
    while at < len(found.tokens) and not found.at(at, "{"):
        at = found.over(at)
    if at >= len(found.tokens):
        return [], index + 1
    after = found.over(at)
    own = Piece(name, "class", first, after, (0, 0), (at, after), exported)
    return [own, *(replace(m, name=f"{name}.{m.name}", exported=exported) for m in _members(found, at + 1, after - 1))], after


def _members(found: Code, index: int, end: int) -> Iterator[Piece]:
    while index < end:
        first = index
        words = []
        while index < end and found.tokens[index].text in _MODIFIERS and not _ends_a_name(found, index + 1):
            words.append(found.tokens[index].text)
            index += 1
        if found.at(index, "{") or found.at(index, ";"):
            index = found.over(index)
            continue
        name = found.tokens[index].text.strip("'\"")
        index = found.over(index)
        if found.at(index, "(") and found.at(body := found.over(index), "{"):
            after = found.over(body)
            called = f"{name}=" if "set" in words else name
            yield Piece(called, "method", first, after, (index + 1, body - 1), (body, after), False, "async" in words)
            index = after
        else:
            index = _end_of_expression(found, index, end)


def _ends_a_name(found: Code, index: int) -> bool:
    return any(found.at(index, text) for text in ("(", "=", ";", "}"))


def _constants(found: Code, first: int, index: int, exported: bool) -> tuple[list[Piece], int]:
    end = _end_of_expression(found, index + 1, len(found.tokens))
    made: list[Piece] = []
    last = end - 1 if found.at(end - 1, ";") else end
    for start, after in commas(found, index + 1, last):
        if found.tokens[start].kind == "name":
            here, stop = first if start == index + 1 else start, end if after == last else after
            made += _constant(found, Piece(found.tokens[start].text, "constant", here, stop, exported=exported), start + 2, after)
    return made, max(end, index + 1)


def _constant(found: Code, own: Piece, value: int, after: int) -> list[Piece]:
    """What one declarator declares: the name of a value, of a function, or of a class."""
    if value >= after or not found.at(value - 1, "="):
        return [own]
    if arrow := _arrow(found, value, after):
        params, body, is_async = arrow
        return [replace(own, kind="function", params=params, body=body, is_async=is_async)]
    if found.at(value, "function") or found.at(value, "async", "function"):
        opens = next((i for i in range(value, after) if found.at(i, "(")), value)
        block = found.over(opens)
        if opens > value and found.at(block, "{"):
            body = (block, found.over(block))
            return [replace(own, kind="function", params=(opens + 1, block - 1), body=body, is_async=found.at(value, "async"))]
    if found.at(value, "class"):
        inner, _ = _class(found, own.first, value, own.exported, True)
        named = [replace(p, name=".".join([own.name, *p.name.split(".")[1:]])) for p in inner]
        return [replace(p, after=own.after) if p.kind == "class" else p for p in named]
    return [own]


def _arrow(found: Code, index: int, after: int) -> tuple[tuple[int, int], tuple[int, int], bool] | None:
    """Parameters, body and whether it is async, where an arrow function stands between the two indices."""
    is_async = found.at(index, "async") and not found.at(index + 1, "=>")
    index += is_async
    if index >= after:
        return None
    behind = found.over(index)
    if not found.at(behind, "=>") or not (found.at(index, "(") or found.tokens[index].kind == "name"):
        return None
    params = (index + 1, behind - 1) if found.at(index, "(") else (index, behind)
    return params, (behind + 1, found.over(behind + 1) if found.at(behind + 1, "{") else after), is_async


def _end_of_expression(found: Code, index: int, end: int) -> int:
    """Behind the semicolon, or where a new line begins a new statement."""
    start = index
    while index < end:
        token = found.tokens[index]
        if token.text == ";":
            return index + 1
        if index > start and token.fresh and token.kind != "template" and token.text not in _GOES_ON:
            before = found.tokens[index - 1]
            if before.kind not in ("punct", "name") or before.text not in _JOINS:
                return index
        index = found.over(index)
    return index


def _common_js(found: Code, index: int) -> int:
    """Where the scan goes on behind `module.exports…` and `exports.name = …`, whose names are read by `_exported_lists`; 0 elsewhere."""
    if found.at(index, "module", ".", "exports") or found.at(index, "exports", "."):
        return max(_end_of_expression(found, index, len(found.tokens)), index + 1)
    return 0


def _exported_lists(found: Code) -> set[str]:
    """Names in `export { a, b as c }`, `module.exports = { a }` and `exports.a = a`; the name that the module itself uses."""
    names: set[str] = set()
    for index in range(len(found.tokens)):
        here = -1
        if found.at(index, "export", "{"):
            here = index + 1
        elif found.at(index, "module", ".", "exports", "=", "{"):
            here = index + 4
        elif found.at(index, "exports", ".") and found.at(index + 3, "="):
            names |= {found.tokens[index + 2].text, found.tokens[min(index + 4, len(found.tokens) - 1)].text}
        if here > 0:
            for start, after in commas(found, here + 1, found.partner[here]):
                names |= {found.tokens[start].text} | (
                    {found.tokens[start + 2].text} if found.at(start + 1, ":") and after > start + 2 else set()
                )
    return names
