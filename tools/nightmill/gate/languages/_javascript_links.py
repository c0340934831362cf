"""Which modules of a tree import what from which: names and files that are not there are certain errors."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from nightmill.gate.languages import _javascript_declared as declared
from nightmill.gate.languages._javascript_tokens import Code, Token, commas, string_value
from nightmill.gate.records import Diagnostic
from nightmill.run.trees import Tree


@dataclass(frozen=True)
class Link:
    """One static `import … from "x"` or `export … from "x"`."""

    target: Token
    names: tuple[str, ...]
    """What it takes from there, as the other module calls it."""


def problems(tree: Tree, sources: list[str]) -> Iterator[Diagnostic]:
    """Relative imports whose file does not export the name; in a whole tree, which has a package.json, also those whose file is missing."""
    read = {path: declared.code(tree[path].decode("utf-8", "replace")) for path in sources}
    for path, code in read.items():
        for link in links(code) if code else ():
            spec = string_value(link.target) or ""
            where = posixpath.normpath(posixpath.join(posixpath.dirname(path), spec))
            if not spec.startswith(("./", "../")) or where.startswith("..") or "?" in spec:
                continue
            assert code is not None
            line, column = code.line(link.target.start), code.column(link.target.start)
            if where not in tree and "package.json" in tree:
                yield Diagnostic(file=path, line=line, column=column, message=f"cannot find module {spec!r}", code="ERR_MODULE_NOT_FOUND")
            elif (
                where in tree and (given := exports(read.get(where))) is not None and (missing := [n for n in link.names if n not in given])
            ):
                said = f"the module {spec!r} does not export {', '.join(missing)}"
                yield Diagnostic(file=path, line=line, column=column, message=said, code="SyntaxError")


def links(code: Code) -> Iterator[Link]:
    for index, token in enumerate(code.tokens):
        if token.text not in ("import", "export") or token.kind != "name" or code.at(index - 1, ".") or code.at(index - 1, "{"):
            continue
        at, names = index + 1, []
        if token.text == "import" and at < len(code.tokens) and code.tokens[at].kind == "string":
            yield Link(code.tokens[at], ())
            continue
        if token.text == "import" and at < len(code.tokens) and code.tokens[at].kind == "name":
            names.append("default")
            at += 1 + code.at(at + 1, ",")
        if code.at(at, "*"):
            at += 3 if code.at(at + 1, "as") else 1
        elif code.at(at, "{"):
            names += [(string_value(code.tokens[start]) or code.tokens[start].text) for start, _ in commas(code, at + 1, code.partner[at])]
            at = code.over(at)
        if code.at(at, "from") and at + 1 < len(code.tokens) and code.tokens[at + 1].kind == "string":
            yield Link(code.tokens[at + 1], tuple(names))


def exports(code: Code | None) -> set[str] | None:
    """The names that an ES module exports; None where they cannot be told from its text alone, as in CommonJS."""
    if code is None:
        return None
    found: set[str] = set()
    for index, token in enumerate(code.tokens):
        if token.text != "export" or token.kind != "name" or code.at(index - 1, ".") or not (token.fresh or code.at(index - 1, ";")):
            continue
        declares = index + 2 < len(code.tokens) and code.tokens[index + 1].text in ("const", "let", "var")
        if code.at(index + 1, "*") or (declares and code.tokens[index + 2].text in ("{", "[")):
            return None
        if code.at(index + 1, "default"):
            found.add("default")
        elif code.at(index + 1, "{"):
            for _, after in commas(code, index + 2, code.partner[index + 1]):
                found.add(string_value(code.tokens[after - 1]) or code.tokens[after - 1].text)
    found |= {p.name for p in declared.pieces(code) if p.exported and "." not in p.name and not code.at(p.first, "export", "default")}
    return found or None


def moved(path: str, text: str, tree: Tree, folder: str) -> str:
    """A test file as it must read one folder deeper: what it imports from the program is named from there."""
    code = declared.code(text)
    for link in reversed(list(links(code))) if code else ():
        spec = string_value(link.target) or ""
        here = posixpath.normpath(posixpath.join(posixpath.dirname(path), spec))
        there = posixpath.normpath(posixpath.join(posixpath.dirname(path.removeprefix(f"{folder}/")), spec))
        if spec.startswith(("./", "../")) and here not in tree and there in tree:
            new = posixpath.relpath(there, posixpath.dirname(path))
            quote = link.target.text[0]
            text = f"{text[: link.target.start]}{quote}{new if new.startswith('.') else './' + new}{quote}{text[link.target.end :]}"
    return text
