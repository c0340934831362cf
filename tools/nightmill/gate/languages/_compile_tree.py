"""Runs inside the sandbox: compiles the Python files named in a list, without running or writing any of them.

    python compile_tree.py LIST        LIST: JSON array of relative paths

One JSON line per complaint `{file, line, column, message, code, severity}`, then `{"compiled": N}`. Standard library only.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

MANY = 20
"""Warnings reported per file; the rest would say the same."""


def compile_one(path: str) -> list[dict[str, object]]:
    """The complaints about one file. Warnings are what the compiler itself warns about (`x is 1`, unknown escapes)."""
    found: list[dict[str, object]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
        except SyntaxError as error:
            found.append(_complaint(path, error.lineno, error.offset, error.msg, error, "error"))
        except (ValueError, RecursionError, MemoryError) as error:
            found.append(_complaint(path, 1, 0, str(error) or "nested too deeply to compile", error, "error"))
    found += [_complaint(path, w.lineno, 0, str(w.message), w.message, "warning") for w in caught[:MANY] if isinstance(w.message, Warning)]
    return found


def _complaint(path: str, line: int | None, column: int | None, message: str, error: BaseException, severity: str) -> dict[str, object]:
    return {
        "file": path,
        "line": line or 1,
        "column": max(column or 0, 0),
        "message": message,
        "code": type(error).__name__,
        "severity": severity,
    }


def main(listing: str) -> int:
    paths: list[str] = json.loads(Path(listing).read_text(encoding="utf-8"))
    failed = False
    for path in paths:
        for complaint in compile_one(path):
            failed = failed or complaint["severity"] == "error"
            print(json.dumps(complaint))  # noqa: T201 - this is its output
    print(json.dumps({"compiled": len(paths)}))  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
