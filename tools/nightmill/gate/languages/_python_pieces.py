"""Python taken apart and put together function by function, for models that are asked for one function at a time."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from nightmill.gate.languages import _python_syntax as syntax
from nightmill.gate.records import Diagnostic
from nightmill.syntax import parsed

_Function = ast.FunctionDef | ast.AsyncFunctionDef
STUB = "raise NotImplementedError"


def skeleton(path: str, text: str) -> str | None:
    """The file with a stub in place of every function body, docstrings and all else kept; None when it does not parse."""
    module = syntax.parse(path, text)
    if isinstance(module, Diagnostic):
        return None
    lines = text.split("\n")
    for _, node in sorted(_functions(module.body, ""), key=lambda found: -found[1].lineno):
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        first, last = (body[0].lineno, node.end_lineno or 0) if body else ((node.end_lineno or 0) + 1, node.end_lineno or 0)
        head = lines[first - 1].encode()[: body[0].col_offset].decode() if body else ""
        stub = " " * (node.col_offset + 4) + STUB
        lines[first - 1 : last] = [head.rstrip(), stub] if head.strip() else [stub]
    return "\n".join(lines)


def function(path: str, text: str, name: str) -> str:
    """The source of one function by its qualified name, its decorators included; "" when there is none."""
    module = syntax.parse(path, text)
    node = None if isinstance(module, Diagnostic) else dict(_functions(module.body, "")).get(name)
    return "\n".join(text.split("\n")[_first(node) - 1 : node.end_lineno]) if node else ""


def graft(text: str, name: str, code: str) -> str:
    """`text` with its function `name` as `code` writes it, and with the imports and private names that `code` adds.

    Raises ValueError, in words for the model, when `code` does not hold that function whole and with its parameters.
    """
    new = syntax.parse("", code)
    if isinstance(new, Diagnostic):
        raise ValueError(f"your code does not parse: line {new.line}: {new.message}")
    old = parsed(text)
    target = dict(_functions(old.body, ""))[name]
    written = dict(_functions(new.body, ""))
    node = written.get(name) or written.get(target.name)
    if node is None:
        raise ValueError(f"your code has no function {target.name}")
    if syntax.stubs("", code.encode()) and {name, target.name} & set(syntax.stubs("", code.encode())):
        raise ValueError(f"{target.name} still raises NotImplementedError: write its body")
    if _parameters(node) != _parameters(target):
        raise ValueError(f"keep the parameters of {target.name}: ({ast.unparse(target.args)})")
    known = {n for top in old.body for n in _binds(top)}
    for piece in new.body:
        if isinstance(piece, ast.Import | ast.ImportFrom):
            piece.names = [a for a in piece.names if (a.asname or a.name.partition(".")[0]) not in known]
        elif (taken := _binds(piece) & known) and node not in ast.walk(piece) and ast.dump(piece) not in map(ast.dump, old.body):
            raise ValueError(f"{', '.join(sorted(taken))} stands in the file already and stays as it is: use another name")
    added = [piece for piece in new.body if _binds(piece) - known and node not in ast.walk(piece)]
    helpers = [_moved(code, piece, 0) for piece in added if not isinstance(piece, ast.Import | ast.ImportFrom)]
    imports = [ast.unparse(piece) for piece in added if isinstance(piece, ast.Import | ast.ImportFrom)]
    top = next(top for top in old.body if target in ast.walk(top))
    lines = text.split("\n")
    start = _first(target) if node.decorator_list else target.lineno
    lines[start - 1 : target.end_lineno] = _moved(code, node, target.col_offset)
    before = _first(top) - 1
    lines[before:before] = [line for helper in helpers for line in (*helper, "", "")]
    at = max((n.end_lineno or 0 for n in old.body if _heads(n) and n.lineno < _first(top)), default=0)
    lines[at:at] = imports
    return "\n".join(lines)


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, _Function]]:
    """Functions and methods that owe a body, by qualified name; of several with one name the last."""
    for node in syntax.flat(body):
        if isinstance(node, ast.ClassDef) and not any(syntax.last(b) == "Protocol" for b in node.bases):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, _Function) and not any(syntax.last(d) in ("abstractmethod", "overload") for d in node.decorator_list):
            yield prefix + node.name, node


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, _Function | ast.ClassDef) else []


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(d.lineno for d in _decorators(node))])


def _parameters(node: _Function) -> list[str]:
    every = (*node.args.posonlyargs, *node.args.args, node.args.vararg, *node.args.kwonlyargs, node.args.kwarg)
    return [a.arg for a in every if a is not None]


def _binds(node: ast.stmt) -> set[str]:
    """Names that a statement at the top of a module declares."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {a.asname or a.name.partition(".")[0] for a in node.names if a.name != "*" and getattr(node, "module", "") != "__future__"}
    if isinstance(node, _Function | ast.ClassDef):
        return {node.name} if node.name.startswith("_") else set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {t.id for t in targets if isinstance(t, ast.Name) and t.id.startswith("_")}


def _heads(node: ast.stmt) -> bool:
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or isinstance(node, ast.Import | ast.ImportFrom)


def _moved(code: str, node: ast.stmt, column: int) -> list[str]:
    """The lines of a statement, brought to another column; the insides of longer strings stay where they are."""
    lines = code.split("\n")[_first(node) - 1 : node.end_lineno]
    inside = {
        line - _first(node)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant | ast.JoinedStr) and not _is_docstring(node, part)
        for line in range(part.lineno + 1, (part.end_lineno or 0) + 1)
    }
    bare = [
        line if n in inside else line[node.col_offset :] if not line[: node.col_offset].strip() else line for n, line in enumerate(lines)
    ]
    return [line if n in inside else textwrap.indent(line, " " * column) for n, line in enumerate(bare)]


def _is_docstring(node: ast.stmt, part: ast.expr) -> bool:
    body = getattr(node, "body", [])
    return bool(body) and isinstance(body[0], ast.Expr) and body[0].value is part
