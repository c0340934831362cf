"""Python's own parser, one caller at a time."""

from __future__ import annotations

import ast
import threading
from typing import Literal, overload

_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 and 3.12 count the depth of syntax trees in state that threads share: two parsers at once can end in a SystemError
("AST constructor recursion depth mismatch")."""


@overload
def parsed(text: str | bytes, filename: str = ..., mode: Literal["exec"] = ...) -> ast.Module: ...
@overload
def parsed(text: str | bytes, filename: str = ..., *, mode: Literal["eval"]) -> ast.Expression: ...
def parsed(text: str | bytes, filename: str = "<text>", mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """`ast.parse`. Raises SyntaxError, ValueError on null bytes, RecursionError or MemoryError on absurd nesting, as it does."""
    with _ONE_AT_A_TIME:
        return ast.parse(text, filename=filename, mode=mode)
