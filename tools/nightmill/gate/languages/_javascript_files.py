"""Which files of a tree are JavaScript, of which kind, and what its parser says of them."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from nightmill.gate.languages import _javascript_syntax as syntax
from nightmill.gate.languages.base import ACCEPTANCE, PRIVATE, plain
from nightmill.gate.limits import Ran
from nightmill.gate.records import Diagnostic, StepRecord, StepStatus
from nightmill.run.trees import Tree

SUFFIXES = (".js", ".mjs", ".cjs")
_KEPT = ("name", "version", "description", "license", "main", "exports", "imports", "bin", "engines")
"""Of the old program's package.json: what says how it is imported. Scripts and dependencies are left behind."""


def package(source: Tree) -> bytes:
    """package.json of the new version: it says whether `.js` files are ES modules or CommonJS, which is what most of them look like."""
    try:
        old = json.loads(source.get("package.json", b"{}"))
    except ValueError:
        old = {}
    kept = {key: old[key] for key in _KEPT if key in old} if isinstance(old, dict) else {}
    texts = [data.decode("utf-8", "replace") for path, data in source.items() if path.endswith(".js")]
    modules = sum(map(syntax.is_module, texts))
    kind = "module" if 2 * modules >= len(texts) else "commonjs"
    return (json.dumps({**kept, "private": True, "type": kind}, indent=2) + "\n").encode()


def sources(tree: Tree) -> list[str]:
    """The files that the build step answers for."""
    out = (ACCEPTANCE, PRIVATE, "node_modules")
    return sorted(path for path in tree if path.endswith(SUFFIXES) and not any(part in out for part in path.split("/")))


def kind(path: str, tree: Tree) -> str:
    """`module` or `script` as Node tells them apart; without any package.json by what the file itself uses."""
    if not path.endswith(".js"):
        return "module" if path.endswith(".mjs") else "script"
    for folder in PurePosixPath(path).parents:
        if (place := (folder / "package.json").as_posix()) in tree:
            try:
                return "module" if json.loads(tree[place]).get("type") == "module" else "script"
            except (ValueError, AttributeError):
                return "script"
    return "module" if syntax.is_module(tree[path].decode("utf-8", "replace")) else "script"


def is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def complaints(output: bytes) -> list[Diagnostic]:
    found = []
    for line in output.splitlines():
        try:
            fact = json.loads(line)
        except ValueError:
            continue
        if isinstance(fact, dict) and "file" in fact:
            found.append(Diagnostic(**{**fact, "file": plain(fact["file"]), "message": plain(fact["message"])}))
    return found


def record(
    name: str, status: StepStatus, command: tuple[str, ...], ran: Ran, detail: str, diagnostics: tuple[Diagnostic, ...] = ()
) -> StepRecord:
    how = {"exit": ran.exit, "signal": ran.signal, "killed": ran.killed, "seconds": ran.seconds}
    return StepRecord.model_validate(
        {"name": name, "status": status, "command": command, "detail": detail, "diagnostics": diagnostics, **how}
    )
