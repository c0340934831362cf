"""Rust taken apart and put together function by function, for models that are asked for one function at a time."""

from __future__ import annotations

import re

from nightmill.gate.languages import _rust_items as declared
from nightmill.gate.languages._rust_items import Item
from nightmill.gate.languages._rust_tokens import Code, code

STUB = "todo!()"
_REMARK = re.compile(r"(?:^[ \t]*//[^\n]*\n)*^[ \t]*\Z", re.M)
_NAMED = ("function", "class", "constant")


def skeleton(text: str) -> str | None:
    """The file with a stub in place of every body that is owed; None when it cannot be read."""
    found = code(text)
    if found is None:
        return None
    for item in reversed(declared.owing(found)):
        start, end = _span(found, item.body)
        indent = _indent(text, found.tokens[item.head].start)
        text = f"{text[:start]}{{\n{indent}    {STUB}\n{indent}}}{text[end:]}"
    return text


def function(text: str, name: str) -> str:
    """The source of one function or test by its qualified name, with its attributes and the comment right above; "" when there is none."""
    found = code(text)
    item = _functions(found).get(name) if found else None
    if found is None or item is None:
        return ""
    return text[_above(text, found, item) : found.tokens[item.after - 1].end]


def graft(text: str, name: str, written: str) -> str:
    """`text` with the body of its function `name` as `written` has it, and with the imports, helpers and constants that this adds.

    Raises ValueError, in words for the model, when `written` does not hold that function whole and with its signature.
    """
    old = code(text)
    assert old is not None, "the file was written by a stage that reads it"
    target = _functions(old)[name]
    new, node = _written(written, name)
    short = _short(name)
    if declared.is_stub(new, node):
        raise ValueError(f"{short} still has no body: write what it does in place of {STUB}")
    if _signature(new, node) != _signature(old, target):
        raise ValueError(f"keep the signature of {short}: {' '.join(old.slice(target.head, target.body[0]).split())}")
    known = {i.name for i in declared.items(old)}
    added = [i for i in _top(new) if i.name not in known and not (i.first <= node.first < i.after)]
    if taken := sorted({i.name for i in _top(new) if i.kind in _NAMED and i.name in known and i is not node and not _same(old, new, i)}):
        raise ValueError(f"{', '.join(taken)} stands in the file already and stays as it is: use another name")
    body = new.text[slice(*_span(new, node.body))]
    body = _shifted(body, _indent(new.text, new.tokens[node.head].start), _indent(text, old.tokens[target.head].start))
    top = next(i for i in _top(old) if i.first <= target.first < i.after)
    start, end = _span(old, target.body)
    text = text[:start] + body + text[end:]
    before = _above(text, old, top)
    helpers = [new.slice(i.first, i.after) for i in added if i.kind in (*_NAMED, "impl")]
    text = text[:before] + "".join(f"{helper}\n\n" for helper in helpers) + text[before:]
    return _with_imports(text, [new.slice(i.first, i.after) for i in added if i.kind == "use"])


def _written(written: str, name: str) -> tuple[Code, Item]:
    """The function in a model's code: alone, or in its `impl`."""
    new = code(written)
    if new is None:
        problem = declared.problem("", written.encode("utf-8", "replace"))
        raise ValueError(f"your code does not parse: line {problem.line if problem else 1}: {problem.message if problem else ''}")
    every, short = _functions(new), _short(name)
    node = every.get(name.partition("~")[0]) or every.get(short) or next((i for n, i in every.items() if _short(n) == short), None)
    if node is None or not node.body[1]:
        raise ValueError(f"your code has no function {short} with a body")
    return new, node


def _functions(found: Code | None) -> dict[str, Item]:
    return {i.name: i for i in declared.items(found) if i.is_function} if found else {}


def _top(found: Code) -> list[Item]:
    """The items that lie in no other."""
    made: list[Item] = []
    for item in declared.items(found):
        if not made or item.first >= made[-1].after:
            made.append(item)
    return made


def _same(old: Code, new: Code, item: Item) -> bool:
    return any(old.words(i.head, i.after) == new.words(item.head, item.after) for i in declared.items(old) if i.name == item.name)


def _short(name: str) -> str:
    return name.partition("~")[0].rpartition(".")[2]


def _signature(found: Code, item: Item) -> tuple[str, ...]:
    """From the name to the body, without optional commas, and `mut` of parameters, which is the body's own affair."""
    words = list(found.words(item.head, item.body[0]))
    words = words[words.index("fn") :]
    return tuple(
        w
        for i, w in enumerate(words)
        if not (w == "," and words[i + 1 : i + 2] in ([")"], [">"])) and not (w == "mut" and words[i - 1] in ("(", ","))
    )


def _span(found: Code, body: tuple[int, int]) -> tuple[int, int]:
    return found.tokens[body[0]].start, found.tokens[body[1] - 1].end


def _indent(text: str, offset: int) -> str:
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip())]


def _shifted(body: str, old: str, new: str) -> str:
    """The lines of a body moved from one indentation to another; what stands further left stays, as the insides of strings may."""
    first, *rest = body.split("\n")
    return "\n".join([first, *(new + line.removeprefix(old) if line.strip() and line.startswith(old) else line for line in rest)])


def _above(text: str, found: Code, item: Item) -> int:
    """Where the lines of an item begin, its attributes and the `//` comment right above it included."""
    start = found.tokens[item.first].start
    before = found.tokens[item.first - 1].end if item.first else 0
    remark = _REMARK.search(text, before, start)
    return remark.start() if remark else start


def _with_imports(text: str, lines: list[str]) -> str:
    """The file with these imports behind its own, or below the comment and the attributes of the file at its top."""
    found = code(text)
    if not lines or found is None:
        return text
    own = [i for i in _top(found) if i.kind == "use"]
    head = re.match(r"(?:\s*//!.*\n|\s*#!\[.*\]\n)*", text)
    end = text.find("\n", found.tokens[own[-1].after - 1].end) + 1 or len(text) if own else head.end() if head else 0
    return text[:end] + "".join(f"{line}\n" for line in lines) + ("" if own else "\n") + text[end:]
