"""Calls of a Python program as text: which are usable, what running one showed, and the test that repeats it."""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from nightmill.gate.languages import _python_syntax as syntax
from nightmill.run.trees import Tree
from nightmill.syntax import parsed

_UNSTEADY = frozenset(
    {"open", "exec", "eval", "compile", "input", "exit", "quit", "globals", "locals", "vars", "id", "hash", "print", "help", "breakpoint"}
)
"""Builtins whose result depends on more than the call, or that reach outside it."""
_RAISES = re.compile(r"raises:?\s+([\w.]+?)(?:\s*[:(,]?\s*(?:with\s+)?(?:the\s+)?(?:text\s+|message\s+)?(\".*\"|'.*')\)?)?\.?$", re.S)
_PRINTS = re.compile(r"(.+?),? (?:and )?prints (\".*\"|'.*')$", re.S)
_SLIPS = frozenset({"TypeError", "AttributeError", "NameError", "UnboundLocalError", "RecursionError", "AssertionError"})
"""Met rather than raised, they tell how the code is written, not what it promises; of others only the class is a promise."""
_LONGEST = 400
_PROBE = '''import json
import linecache
import os


def origin(error):
    """`raised` by a statement of the program, `met` on the way through it, or "" when a wrong call never reached it."""
    frames, frame = [], error.__traceback__
    while frame:
        frames, frame = [*frames, (frame.tb_frame.f_code.co_filename, frame.tb_lineno)], frame.tb_next
    if all(file == __file__ for file, _ in frames):
        return ""
    own = frames[-1][0].startswith(os.getcwd()) and linecache.getline(*frames[-1]).lstrip().startswith("raise")
    return "raised" if own or isinstance(error, SystemExit) else "met"
'''


def names(sources: Tree) -> dict[str, str]:
    """Public name of the program → the module that declares it; `""` for the modules themselves. A name of two modules is left out."""
    found: dict[str, set[str]] = {}
    for path, data in sources.items():
        if path.endswith(".py"):
            for symbol in syntax.symbols(path, data.decode("utf-8", "replace")):
                if "." not in symbol.name and symbol.public:
                    found.setdefault(symbol.name, set()).add(_module(path))
    modules = {_module(path) for path in sources if path.endswith(".py")}
    return {m: "" for m in modules if "." not in m} | {name: owners.pop() for name, owners in found.items() if len(owners) == 1}


def call(text: str, known: Mapping[str, str]) -> str | None:
    """One expression that calls the program, in canonical form; None when it is none, or names something that nobody declares."""
    try:
        tree = parsed(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    used, bound = _used(tree)
    if (
        "\n" in text.strip()
        or len(text) > _LONGEST
        or any(isinstance(n, ast.Await | ast.Yield | ast.NamedExpr | ast.Lambda) for n in ast.walk(tree))
    ):
        return None
    if any(name not in known and (name in _UNSTEADY or name.startswith("_") or not hasattr(builtins, name)) for name in used - bound):
        return None
    own = any(isinstance(n, ast.Call) and _used(ast.Expression(n.func))[0] & set(known) for n in ast.walk(tree))
    return ast.unparse(tree) if own else None


def probe(calls: Mapping[str, str], known: Mapping[str, str]) -> str:
    """A test file that makes each call (row id → call) and fails with what it saw, for `seen`."""
    parts = [_PROBE]
    for row, text in calls.items():
        imports = "".join(f"    {line}\n" for line in _imports(text, known))
        parts.append(
            f"def test_{row.lower()}_seen(capsys):\n{imports}    try:\n        value = {text}\n"
            "    except (Exception, SystemExit) as error:\n"
            "        told = {'raises': type(error).__name__, 'text': str(error), 'origin': origin(error)}\n"
            "    else:\n        told = {'value': repr(value), 'type': type(value).__name__}\n"
            "    raise AssertionError(json.dumps(told | {'out': capsys.readouterr().out}))\n"
        )
    return "\n\n".join(parts)


def seen(message: str) -> str | None:
    """What a probe's failure tells, as the matrix writes an expected result; None when it is no value that text can hold."""
    try:
        told = json.loads(message.removeprefix("AssertionError: "))
        out = f", prints {told['out']!r}" if told["out"] else ""
        if "raises" in told:
            if told["origin"] == "met":
                return None if out or told["raises"] in _SLIPS else f"raises {told['raises']}"
            return None if out or not told["origin"] else f"raises {told['raises']} {told['text']!r}"
        value = ast.literal_eval(told["value"])
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        return None
    return f"{told['value']}{out}" if type(value).__name__ == told["type"] else None


def test(row: str, text: str, expected: str, known: Mapping[str, str]) -> str | None:
    """A test function for a call and its expected result; None when the result is not exact enough to be written by program."""
    head = f"def test_{row.lower()}_{_word(text)}({'capsys' if _PRINTS.match(expected) else ''}):\n"
    head += "".join(f"    {line}\n" for line in _imports(text, known))
    if raised := _RAISES.match(expected):
        return _raising(head, text, raised[1], raised[2], known)
    printed = _PRINTS.match(expected)
    value, out = _literal(printed[1] if printed else expected), _literal(printed[2]) if printed else None
    if value is None or (printed and out is None):
        return None
    exact = value in ("True", "False", "None") or re.match(r"-?[\d.]", value)
    body = f"    result = {text}\n    assert result == {value}\n"
    body += f"    assert type(result) is type({value})\n" if exact else ""
    return head + body + (f"    assert capsys.readouterr().out == {out}\n" if printed else "")


def _raising(head: str, text: str, error: str, said: str | None, known: Mapping[str, str]) -> str | None:
    kind = getattr(builtins, error, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)) and error not in known:
        return None
    more = f"    from {known[error]} import {error}\n" if error in known else ""
    literal = _literal(said) if said else None
    check = f"    assert str(caught.value) == {literal}\n" if literal else ""
    return f"{head}    import pytest\n\n{more}    with pytest.raises({error}){' as caught' if check else ''}:\n        {text}\n{check}"


def _literal(text: str) -> str | None:
    try:
        return repr(ast.literal_eval(text.strip()))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _used(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Names that are read, names that a comprehension binds."""
    every = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
    return {n.id for n in every if isinstance(n.ctx, ast.Load)}, {n.id for n in every if isinstance(n.ctx, ast.Store)}


def _imports(text: str, known: Mapping[str, str]) -> list[str]:
    used = sorted(_used(parsed(text, mode="eval"))[0] & set(known))
    return [f"from {known[name]} import {name}" if known[name] else f"import {name}" for name in used]


def _module(path: str) -> str:
    return ".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__init__")


def _word(text: str) -> str:
    return re.sub(r"\W+", "_", text.partition("(")[0]).strip("_").lower()[:40] or "call"
