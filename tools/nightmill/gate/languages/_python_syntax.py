"""What the syntax tree of a Python file tells: its names, its stubs, its tests, its syntax errors. Nothing here runs the file."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Literal

from nightmill.gate.languages.base import Symbol
from nightmill.gate.records import Diagnostic
from nightmill.syntax import parsed

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_SIGNATURE_LIMIT = 200


def parse(path: str, source: str | bytes) -> ast.Module | Diagnostic:
    """The module, or the located error that keeps it from parsing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are reported by the build step
            return parsed(source, path)
    except SyntaxError as error:
        return Diagnostic(
            file=path,
            line=error.lineno or 1,
            column=max(error.offset or 0, 0),
            message=error.msg or "invalid syntax",
            code=type(error).__name__,
        )
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes; nesting deeper than the parser's stack
        return Diagnostic(file=path, line=1, message=str(error) or "nested too deeply to parse", code=type(error).__name__)


def symbols(path: str, text: str) -> list[Symbol]:
    """Functions, classes, methods and module or class constants in the order of the file; functions inside functions are not names."""
    module = parse(path, text)
    if isinstance(module, Diagnostic):
        return []
    exported = _exported(module)
    inner = any(part.startswith("_") for part in PurePosixPath(path).with_suffix("").parts if not _special(part))

    def public(name: str) -> bool:
        parts = name.split(".")
        return not inner and not any(part.startswith("_") for part in parts) and (exported is None or parts[0] in exported)

    return [
        Symbol(name=name, kind=kind, file=path, line=node.lineno, signature=_cut(signature), public=public(name))
        for name, kind, node, signature in _declared(module.body, "")
    ]


def stubs(path: str, source: bytes) -> tuple[str, ...]:
    """Qualified names of functions whose body is a docstring and `raise NotImplementedError` or `...`, if that is all.

    Abstract methods, overloads and methods of protocols are complete as they are and do not count.
    """
    module = parse(path, source)
    return () if isinstance(module, Diagnostic) else tuple(_stubs(module.body, ""))


def tests(path: str, text: str) -> tuple[str, ...]:
    """`path::test_name` and `path::TestClass::test_name`, as pytest's default naming rules would collect them."""
    module = parse(path, text)
    return () if isinstance(module, Diagnostic) else tuple(f"{path}::{name}" for name in _tests(module.body))


def _declared(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Literal["function", "class", "method", "constant"], ast.stmt, str]]:
    for node in flat(body):
        if isinstance(node, _Function):
            yield prefix + node.name, "method" if prefix else "function", node, _function(node)
        elif isinstance(node, ast.ClassDef):
            yield prefix + node.name, "class", node, _class(node)
            yield from _declared(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield prefix + node.target.id, "constant", node, ast.unparse(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and not _special(target.id):
                    yield prefix + target.id, "constant", node, f"{target.id} = {ast.unparse(node.value)}"


def flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, those under `if`, `try` and `with` included: they declare names in the same scope."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.TryStar | ast.With):
            for field in ("body", "orelse", "finalbody"):
                yield from flat(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from flat(handler.body)


def _function(node: _Function) -> str:
    marks = "".join(f"@{ast.unparse(d)} " for d in node.decorator_list)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{marks}{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}def {node.name}({ast.unparse(node.args)}){returns}"


def _class(node: ast.ClassDef) -> str:
    """The class line; a written constructor follows it, since that is how callers make one."""
    marks = "".join(f"@{ast.unparse(d)} " for d in node.decorator_list)
    bases = ", ".join(
        [
            *map(ast.unparse, node.bases),
            *(f"{k.arg}={ast.unparse(k.value)}" if k.arg else f"**{ast.unparse(k.value)}" for k in node.keywords),
        ]
    )
    made = next((f": {_function(n)}" for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), "")
    return f"{marks}class {node.name}{f'({bases})' if bases else ''}{made}"


def _exported(module: ast.Module) -> frozenset[str] | None:
    """Names listed in `__all__`; None when the module has none."""
    found: set[str] | None = None
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []
        value = getattr(node, "value", None)
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets) and isinstance(value, ast.List | ast.Tuple | ast.Set):
            found = (found or set()) | {e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)}
    return None if found is None else frozenset(found)


def _stubs(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in flat(body):
        if isinstance(node, ast.ClassDef) and not any(last(b) == "Protocol" for b in node.bases):
            yield from _stubs(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, _Function) and _is_stub(node):
            yield prefix + node.name


def _is_stub(node: _Function) -> bool:
    if any(last(d) in ("abstractmethod", "overload") for d in node.decorator_list):
        return False
    body = node.body[1:] if len(node.body) > 1 and _text(node.body[0]) else node.body
    match body:
        case [ast.Raise(exc=ast.expr() as raised)]:
            return last(raised.func if isinstance(raised, ast.Call) else raised) == "NotImplementedError"
        case [ast.Expr(value=ast.Constant(value=value))]:
            return value is Ellipsis
    return False


def _tests(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in flat(body):
        if isinstance(node, _Function) and node.name.startswith("test"):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            case = any(last(b).endswith("TestCase") for b in node.bases)
            made = any(isinstance(n, ast.FunctionDef) and n.name == "__init__" for n in node.body)
            if case or (node.name.startswith("Test") and not made):
                yield from _tests(node.body, f"{prefix}{node.name}::")


def last(node: ast.expr) -> str:
    """`abc.abstractmethod` → `abstractmethod`, `Protocol[T]` → `Protocol`."""
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _cut(signature: str) -> str:
    line = " ".join(signature.split())
    return line if len(line) <= _SIGNATURE_LIMIT else line[: _SIGNATURE_LIMIT - 1] + "…"


def without(text: str, names: set[str]) -> str:
    """Python text without the functions `test_x` and `TestClass::test_x` in `names`, their decorators included."""
    lines = text.split("\n")
    for prefix, node in scoped(parsed(text).body):
        if isinstance(node, _Function) and prefix + node.name in names:
            first, end = min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.end_lineno or node.lineno
            lines[first - 1 : end] = [""] * (end - first + 1)
            if node.col_offset:
                lines[first - 1] = " " * node.col_offset + "pass"
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines))


def scoped(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Every declaring statement with the classes it stands in, as test ids name them."""
    for node in flat(body):
        yield prefix, node
        if isinstance(node, ast.ClassDef):
            yield from scoped(node.body, f"{prefix}{node.name}::")
