"""Small faults put into Python functions, one at a time, in the text as it stands: all other lines stay what they are."""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Iterator

from nightmill.gate.faults import Mutant
from nightmill.gate.languages import _python_syntax as syntax
from nightmill.syntax import parsed

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def mutants(path: str, text: str) -> list[Mutant]:
    """Every mutant of the functions of a file, in the order of the file; none when it does not parse.

    Comparison, arithmetic, `and`/`or`, `not`, numbers, truth values, returned values, raised errors, calls whose result nobody uses.
    Formatted strings, docstrings, annotations, defaults and decorators stay as they are.
    """
    module = syntax.parse(path, text)
    if isinstance(module, ast.Module):
        return list(_of_functions(path, text, module.body, ""))
    return []


def _of_functions(path: str, text: str, body: list[ast.stmt], prefix: str) -> Iterator[Mutant]:
    for node in syntax.flat(body):
        if isinstance(node, ast.ClassDef):
            yield from _of_functions(path, text, node.body, f"{prefix}{node.name}.")
        elif isinstance(node, _Function):
            for place, replacement in _faults(node.body):
                if mutant := _written(path, text, prefix + node.name, place, replacement):
                    yield mutant


def _faults(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """(what, the text in its place) for everything in a body, nested functions included."""
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            yield from ((node, text) for text in _of_statement(node))
        elif isinstance(node, ast.expr):
            yield from ((node, f"({text})") for text in _of_expression(node))
        pending += reversed(list(_parts(node)))


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.JoinedStr):
        return
    skipped = {"annotation", "returns", "decorator_list", "args"} if isinstance(node, _Function | ast.AnnAssign) else set()
    for name, value in ast.iter_fields(node):
        if name not in skipped:
            yield from (part for part in (value if isinstance(value, list) else [value]) if isinstance(part, ast.AST))


def _of_statement(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return None"
        case ast.Raise(exc=ast.expr()) | ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Await()):
            yield "pass"


def _of_expression(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[one]):
            yield _changed(node, "ops", [_COMPARISONS[type(one)]()])
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC and not any(_is_text(side) for side in (node.left, node.right)):
            yield _changed(node, "op", _ARITHMETIC[type(op)]())
        case ast.BoolOp(op=op):
            yield _changed(node, "op", ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield ast.unparse(node.operand)
        case ast.Constant(value=bool() as truth):
            yield str(not truth)
        case ast.Constant(value=int() as number):
            yield str(number + 1)
        case ast.IfExp():
            yield _changed(node, "test", ast.UnaryOp(ast.Not(), node.test))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _changed(node: ast.expr, field: str, value: object) -> str:
    changed = copy.copy(node)
    setattr(changed, field, value)
    return ast.unparse(changed)


def _written(path: str, text: str, function: str, node: ast.stmt | ast.expr, replacement: str) -> Mutant | None:
    """None where the place is not one of the text, as in older formatted strings, or the result does not parse."""
    lines = text.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    if last >= len(lines):
        return None
    start = sum(map(len, lines[:first])) + node.col_offset
    end = sum(map(len, lines[:last])) + (node.end_col_offset or 0)
    data = text.encode()
    before, new = data[start:end].decode("utf-8", "replace"), data[:start] + replacement.encode() + data[end:]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed(new)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    after = replacement if isinstance(node, ast.stmt) else replacement[1:-1]
    return Mutant(file=path, line=node.lineno, function=function, before=" ".join(before.split()), after=" ".join(after.split()), data=new)
