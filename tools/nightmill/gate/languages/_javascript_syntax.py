"""What the tokens of a JavaScript file tell: its names, its functions and where they end, its stubs, its tests. Nothing here runs it."""

from __future__ import annotations

import re

from nightmill.gate.languages._javascript_declared import Piece, code, pieces
from nightmill.gate.languages._javascript_tokens import Code, Unreadable, read
from nightmill.gate.languages.base import Symbol
from nightmill.gate.records import Diagnostic

NOT_IMPLEMENTED = re.compile(r"not implemented\b", re.I)
"""How the text of a stub's error begins."""

_SIGNATURE_LIMIT = 200


def problem(path: str, data: bytes) -> Diagnostic | None:
    """The located error that keeps the file from being read as JavaScript; only the coarsest are seen without its parser."""
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


def symbols(path: str, text: str) -> list[Symbol]:
    """Functions, classes, methods and constants of the module. A constructor that only keeps its arguments is part of its class."""
    found = code(text)
    if found is None:
        return []
    every = pieces(found)
    return [
        Symbol(
            name=p.name,
            kind=p.kind,
            file=path,
            line=found.line(found.tokens[p.first].start),
            signature=_signature(found, p, every),
            public=p.exported and not any(part.startswith(("_", "#")) for part in p.name.split(".")) and not _constructs(p),
        )
        for p in every
        if not (_constructs(p) and _keeps_arguments(found, p))
    ]


def is_module(text: str) -> bool:
    """Whether it imports or exports as ES modules do."""
    found = code(text)
    return found is not None and any(
        t.kind == "name" and (t.text == "export" or (t.text == "import" and not found.at(i + 1, "("))) and not found.at(i - 1, ".")
        for i, t in enumerate(found.tokens)
    )


def stubs(text: str) -> tuple[str, ...]:
    """Qualified names of the functions whose only statement is `throw new Error("not implemented")`."""
    found = code(text)
    return tuple(p.name for p in pieces(found) if p.is_function and is_stub(found, p)) if found else ()


def is_stub(found: Code, piece: Piece) -> bool:
    start, end = piece.body
    inner = found.tokens[start + 1 : end - 1]
    texts = [t.text for t in inner if t.text != ";"]
    return (
        end - start > 2
        and found.tokens[start].text == "{"
        and len(texts) == 6
        and texts[:4] == ["throw", "new", "Error", "("]
        and inner[4].kind == "string"
        and NOT_IMPLEMENTED.match(texts[4][1:]) is not None
    )


def enclosing(text: str, line: int, column: int = 0) -> str:
    """The qualified name of the innermost declared function around a place; "" outside of all."""
    found = code(text)
    if found is None:
        return ""
    best = ""
    for piece in pieces(found):
        if piece.is_function:
            start, end = found.tokens[piece.first].start, found.tokens[piece.after - 1].end
            first, last = (found.line(start), found.column(start)), (found.line(end), found.column(end))
            if first <= (line, column or first[1]) and (line, column) <= last:
                best = piece.name
    return best


def _constructs(piece: Piece) -> bool:
    return piece.kind == "method" and piece.name.endswith(".constructor")


def _keeps_arguments(found: Code, piece: Piece) -> bool:
    """Whether each statement is `super(…)`, `this.name = …;` without a call, or a call of Object.freeze."""
    inner = found.slice(piece.body[0] + 1, piece.body[1] - 1)
    return all(
        not line.strip() or re.match(r"\s*(super\(|Object\.freeze\(this\)|this\.#?[\w$]+\s*=\s*[^()]*$)", line)
        for line in re.split(r"[;\n]", inner)
    )


def _signature(found: Code, piece: Piece, every: list[Piece]) -> str:
    last = piece.body[0] if piece.body[1] and found.at(piece.body[0], "{") else piece.after
    line = " ".join(found.slice(piece.first, last).split()).removesuffix(";")
    if piece.kind == "class":
        made = next((p for p in every if p.name == f"{piece.name}.constructor"), None)
        line += f" {{ constructor({found.slice(*made.params)}) }}" if made else ""
    return line if len(line) <= _SIGNATURE_LIMIT else line[: _SIGNATURE_LIMIT - 1] + "…"
