"""What a JavaScript test threw, in the words that every language's records share."""

from __future__ import annotations

import re

from nightmill.gate.languages import _javascript_syntax as syntax
from nightmill.gate.languages.base import ACCEPTANCE
from nightmill.gate.records import TestOutcome
from nightmill.run.trees import Tree

_NO_FUNCTION = re.compile(r"(.+) is not a (function|constructor)")
_NO_EXPORT = re.compile(r"does not provide an export named|Cannot find (module|package)")


def translated(test: TestOutcome, laid: Tree) -> TestOutcome:
    """`NotImplementedError` for a stub's error, `ImportError` for what a test calls and nobody has; and the function it came from."""
    text = laid.get(test.crash_file, b"").decode("utf-8", "replace")
    function = syntax.enclosing(text, test.crash_line) if test.crash_line else ""
    return test.model_copy(update={"crash_function": function, "exception": _exception(test, function, text)})


def _exception(test: TestOutcome, function: str, text: str) -> str:
    in_test = test.crash_file.startswith(f"{ACCEPTANCE}/") or not test.crash_file
    if test.exception == "Error" and syntax.NOT_IMPLEMENTED.match(test.message) and function in syntax.stubs(text):
        return "NotImplementedError"
    if _NO_EXPORT.search(test.message) and test.exception in ("SyntaxError", "Error"):
        return "ImportError"
    if in_test and test.exception == "TypeError" and _NO_FUNCTION.match(test.message):
        return "ImportError"
    return test.exception
