"""What a Rust test ran into, in the words that every language's records share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nightmill.gate.languages import _rust_items as declared
from nightmill.gate.languages._rust_cargo import folded, relative
from nightmill.gate.languages.base import ACCEPTANCE
from nightmill.gate.records import Diagnostic, TestOutcome
from nightmill.run.trees import Tree

_ASSERTED = re.compile(r"(debug_)?assert|panic|unreachable|matches")
_UNWRAPPED = re.compile(r"called `(Result|Option)::\w+\(\)` on an? `\w+` value")
_ABSENT = frozenset({
    "E0405", "E0412", "E0422", "E0423", "E0424", "E0425", "E0426", "E0432", "E0433", "E0463", "E0531", "E0532", "E0599", "E0603", "E0609",
    "E0616", "E0624",
})  # fmt: skip
"""rustc's codes for a name that is not there, or not for others."""
_SIGNATURE = frozenset(
    {"E0023", "E0026", "E0027", "E0040", "E0050", "E0053", "E0057", "E0060", "E0061", "E0063", "E0107", "E0277", "E0308", "E0560"}
)
"""rustc's codes for another number or type of arguments, or of a result."""


def translated(test: TestOutcome, laid: Tree) -> TestOutcome:
    """`NotImplementedError` for a stub's panic, `AssertionError` for a judging test's; and the function it came from."""
    file = relative(test.crash_file) if test.crash_file else ""
    if file not in laid:
        return test.model_copy(update={"crash_file": "", "crash_line": 0, "crash_function": ""})
    text = laid[file].decode("utf-8", "replace")
    function = declared.enclosing(text, test.crash_line)
    exception = test.exception
    if exception == "Panic":
        exception = _exception(test, file, text, function)
    return test.model_copy(update={"crash_file": file, "crash_function": function, "exception": exception})


def _exception(test: TestOutcome, file: str, text: str, function: str) -> str:
    if not file.startswith(f"{ACCEPTANCE}/"):
        stub = declared.NOT_IMPLEMENTED.match(test.message) and function in declared.stubs(text)
        return "NotImplementedError" if stub else "Panic"
    if test.message.startswith("assertion "):
        return "AssertionError"
    lines = text.split("\n")
    line = lines[test.crash_line - 1] if 0 < test.crash_line <= len(lines) else ""
    if _UNWRAPPED.match(test.message):
        return "Failed"
    return "AssertionError" if _ASSERTED.search(line) else "Failed" if ".expect" in line else "Panic"


def unbuilt(path: str, found: Sequence[Diagnostic], output: str) -> TestOutcome:
    """A test file, or one test (with `::`), that does not compile. `ImportError` where it names what nobody has, or not in this way."""
    errors = [d for d in found if d.severity == "error"]
    first = errors[0] if errors else None
    own = first is not None and first.file.startswith(f"{ACCEPTANCE}/")
    fitting = bool(errors) and all(d.code in _ABSENT | _SIGNATURE for d in errors)
    said = f"{first.code}: {first.message}" if first and first.code else first.message if first else "does not compile"
    return TestOutcome(
        id=path,
        outcome="error",
        exception="ImportError" if own and fitting else "SyntaxError",
        message=folded(said),
        crash_file=first.file if first else "",
        crash_line=first.line if first else 0,
        traceback="\n".join(f"{d.file}:{d.line}:{d.column}: {d.code} {d.message}" for d in errors[:10]) or output,
    )
