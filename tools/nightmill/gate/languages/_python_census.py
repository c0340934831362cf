"""What the tests of a Python file ask: assertions, skips, expected failures and time limits, counted per test. Nothing here runs it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from nightmill.gate.authority import Asked
from nightmill.gate.languages import _python_syntax as syntax

_SKIPS = frozenset({"skip", "skipif", "skipIf", "skipUnless", "importorskip", "skipTest", "SkipTest"})
_XFAILS = frozenset({"xfail", "expectedFailure"})
_CHECKS = frozenset({"raises", "warns", "fail", "deprecated_call"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def census(path: str, text: str) -> dict[str, Asked]:
    """Test id, as `syntax.tests` has it → what it asks; what stands outside of the tests counts under the file's own path."""
    module = syntax.parse(path, text)
    if not isinstance(module, ast.Module):
        return {}
    known = set(syntax.tests(path, text))
    found: dict[str, Asked] = {}
    inside: set[int] = set()
    for prefix, node in syntax.scoped(module.body):
        name = f"{path}::{prefix}{getattr(node, 'name', '')}"
        if isinstance(node, _Function) and name in known:
            parts = list(ast.walk(node))
            inside |= {id(part) for part in parts}
            found[name] = _asked(parts)
    return {path: _asked([part for part in ast.walk(module) if id(part) not in inside]), **found}


def _asked(nodes: list[ast.AST]) -> Asked:
    names = [syntax.last(n.func) for n in nodes if isinstance(n, ast.Call)]
    marks = [syntax.last(d) for n in nodes for d in getattr(n, "decorator_list", []) if not isinstance(d, ast.Call)]
    marks += [syntax.last(n.value) for n in nodes if isinstance(n, ast.Assign) and _marked(n)]
    used = [*names, *marks]
    asserted = sum(isinstance(n, ast.Assert) and not isinstance(n.test, ast.Constant) for n in nodes)
    checked = sum(name in _CHECKS or (name.startswith("assert") and name != "assert_") for name in names)
    return Asked(
        assertions=asserted + checked,
        skips=sum(name in _SKIPS for name in used),
        xfails=sum(name in _XFAILS for name in used),
        timeouts=tuple(sorted(_timeouts(nodes))),
    )


def _marked(node: ast.Assign) -> bool:
    """`pytestmark = pytest.mark.skip` marks a whole file."""
    return any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)


def _timeouts(nodes: list[ast.AST]) -> Iterator[float]:
    for node in nodes:
        if isinstance(node, ast.Call):
            given = [k.value for k in node.keywords if k.arg == "timeout"]
            given += node.args[:1] if syntax.last(node.func) == "timeout" else []
            for value in given:
                if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                    yield float(value.value)
