"""JavaScript taken apart and put together function by function, for models that are asked for one function at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nightmill.gate.languages import _javascript_declared as declared
from nightmill.gate.languages import _javascript_syntax as syntax
from nightmill.gate.languages._javascript_declared import Piece
from nightmill.gate.languages._javascript_tokens import Code, commas

STUB = 'throw new Error("not implemented");'


def skeleton(text: str) -> str | None:
    """The file with a stub in place of every body; constructors that only keep their arguments stay. None when it cannot be read."""
    found = declared.code(text)
    if found is None:
        return None
    kept = {s.name for s in syntax.symbols("", text)}
    for piece in reversed([p for p in declared.pieces(found) if p.is_function and p.name in kept]):
        start, end = _span(found, piece.body)
        indent = _indent(text, found.tokens[piece.first].start)
        text = f"{text[:start]}{{\n{indent}  {STUB}\n{indent}}}{text[end:]}"
    return text


def function(text: str, name: str) -> str:
    """The source of one function by its qualified name, with the comment right above it; "" when there is none."""
    found = declared.code(text)
    piece = _functions(found).get(name) if found else None
    if found is None or piece is None:
        return ""
    start = found.tokens[piece.first].start
    before = found.tokens[piece.first - 1].end if piece.first else 0
    remark = text[before:start].rpartition("\n\n")[2]
    source = found.slice(piece.first, piece.after)
    named = piece.kind == "method" or re.match(r"(export|async|function|const|let|var)\b", source)
    return (remark.lstrip("\n") if remark.strip() else "") + ("" if named else "const ") + source


def graft(text: str, name: str, code: str) -> str:
    """`text` with the body of its function `name` as `code` writes it, and with the imports, helpers and constants that `code` adds.

    Raises ValueError, in words for the model, when `code` does not hold that function whole and with its parameters.
    """
    old = declared.code(text)
    assert old is not None, "the file was written by a stage that reads it"
    target = _functions(old)[name]
    short = name.rpartition(".")[2]
    new, node = _written(code, name, short)
    if syntax.is_stub(new, node):
        raise ValueError(f"{short} still throws `not implemented`: write its body")
    if _parameters(new, node) != _parameters(old, target):
        raise ValueError(f"keep the parameters of {short}: ({old.slice(*target.params)})")
    if node.is_async != target.is_async:
        raise ValueError(f"keep {short} {'async' if target.is_async else 'without async'}, as the file has it")
    pieces = declared.pieces(old)
    known = {p.name for p in pieces}
    helpers = [
        new.slice(p.first, p.after).removeprefix("export ")
        for p in declared.pieces(new)
        if "." not in p.name and p.name not in known and p is not node and p.name not in (name, short) and not _inside(node, p)
    ]
    start, end = _span(old, target.body)
    body = new.slice(*node.body) if new.at(node.body[0], "{") else f"{{\n  return {new.slice(*node.body)};\n}}"
    body = _shifted(body, _indent(new.text, new.tokens[node.first].start), _indent(text, old.tokens[target.first].start))
    top = next(p for p in pieces if p.first <= target.first < p.after)
    before = _above(text, old, top)
    text = text[:start] + body + text[end:]
    text = text[:before] + "".join(f"{helper}\n\n" for helper in helpers) + text[before:]
    return _with_imports(text, [line for line in _imports(new) if line not in text])


def _written(code: str, name: str, short: str) -> tuple[Code, Piece]:
    """The code and the function in it; a bare method is read as if its class stood around it."""
    for attempt in (code, f"class {name.rpartition('.')[0] or 'Written'} {{\n{code}\n}}"):
        new = declared.code(attempt)
        written = _functions(new) if new else {}
        node = written.get(name) or written.get(short) or next((p for n, p in written.items() if n.rpartition(".")[2] == short), None)
        if new is not None and node is not None:
            return new, node
    if declared.code(code) is None:
        problem = syntax.problem("", code.encode("utf-8", "replace"))
        raise ValueError(f"your code does not parse: line {problem.line if problem else 1}: {problem.message if problem else ''}")
    raise ValueError(f"your code has no function {short}")


def _functions(found: Code | None) -> Mapping[str, Piece]:
    return {p.name: p for p in declared.pieces(found) if p.is_function} if found else {}


def _parameters(found: Code, piece: Piece) -> list[str]:
    """Names of the parameters; a pattern as it is written."""
    names = []
    for start, after in commas(found, *piece.params):
        equals = next((i for i in range(start, after) if found.at(i, "=") and _outside(found, start, i)), after)
        names.append("".join(found.slice(start, equals).split()))
    return names


def _outside(found: Code, start: int, index: int) -> bool:
    at = start
    while at < index:
        at = found.over(at)
    return at == index


def _inside(outer: Piece, inner: Piece) -> bool:
    return (outer.first <= inner.first and inner.after <= outer.after) or (inner.first <= outer.first and outer.after <= inner.after)


def _span(found: Code, body: tuple[int, int]) -> tuple[int, int]:
    return found.tokens[body[0]].start, found.tokens[body[1] - 1].end


def _indent(text: str, offset: int) -> str:
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip())]


def _shifted(body: str, old: str, new: str) -> str:
    """The lines of a body moved from one indentation to another; what stands further left stays, as the insides of templates may."""
    first, *rest = body.split("\n")
    return "\n".join([first, *(new + line.removeprefix(old) if line.strip() and line.startswith(old) else line for line in rest)])


def _above(text: str, found: Code, top: Piece) -> int:
    """Where a helper goes: before the function and the comment right above it."""
    start = found.tokens[top.first].start
    before = found.tokens[top.first - 1].end if top.first else 0
    gap = text.rfind("\n\n", before, start)
    return gap + 2 if gap >= 0 else text.find("\n", before, start) + 1 or before


def _imports(found: Code) -> list[str]:
    lines = []
    for index, token in enumerate(found.tokens):
        if token.text == "import" and token.fresh and not found.at(index + 1, "(") and not found.at(index + 1, "."):
            end = next((i for i in range(index, len(found.tokens)) if found.tokens[i].kind == "string"), index)
            lines.append(f"{found.slice(index, end + 1)};")
    return lines


def _with_imports(text: str, lines: list[str]) -> str:
    """The file with these imports behind its own, or at its top."""
    if not lines:
        return text
    found = declared.code(text)
    own = [i for i, t in enumerate(found.tokens) if t.text == "import" and t.fresh and not found.at(i + 1, "(")] if found else []
    if found is None or not own:
        return "\n".join([*lines, "", text])
    end = next(t.end for t in found.tokens[own[-1] :] if t.kind == "string")
    end = text.find("\n", end) + 1 or len(text)
    return text[:end] + "".join(f"{line}\n" for line in lines) + text[end:]
