"""What Cargo is told and what it tells: a manifest that is always written by program, and located diagnostics from its messages."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from nightmill.gate.languages._rust_suites import ALIAS
from nightmill.gate.languages._rust_tokens import code
from nightmill.gate.languages.base import ACCEPTANCE, PRIVATE, plain
from nightmill.gate.records import Diagnostic
from nightmill.run.trees import Tree

MANIFEST = "Cargo.toml"
BLOCKING = frozenset({
    "unused_must_use", "unreachable_code", "unreachable_patterns", "unconditional_recursion", "unused_comparisons", "path_statements",
    "dropping_references", "dropping_copy_types", "forgetting_references", "forgetting_copy_types", "noop_method_call",
    "arithmetic_overflow", "overflowing_literals", "unconditional_panic", "let_underscore_lock", "undropped_manually_drops",
    "bindings_with_variant_name", "invalid_reference_casting", "invalid_from_utf8_unchecked", "invalid_value", "unsafe_code",
})  # fmt: skip
"""Warnings that say that written code does nothing, never runs, or always fails: a mistake, whatever the tests say. What a tree denies
beyond these (`#![deny(warnings)]`) is told and does not block, or no stub would compile."""
_LINKED = frozenset({"no_mangle", "export_name", "link_section", "link_args", "global_asm", "naked", "naked_asm"})
_EDITION = "2021"
_MESSAGE_LIMIT = 600


def manifest(tree: Tree) -> dict[str, Any]:
    """The tree's own Cargo.toml; {} when it has none or it does not parse."""
    try:
        return tomllib.loads(tree.get(MANIFEST, b"").decode("utf-8"))
    except (ValueError, RecursionError):
        return {}


def _table(value: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def crate(tree: Tree) -> str:
    """The name by which tests import the tree's library."""
    own = manifest(tree)
    name = _table(own, "lib").get("name") or _table(own, "package").get("name")
    return name.replace("-", "_") if isinstance(name, str) and re.fullmatch(r"[A-Za-z][\w-]*", name) else ALIAS


def library(tree: Tree) -> str:
    """The file at the root of the library; "" when there is none. A program without one is compiled as its own library."""
    path = _table(manifest(tree), "lib").get("path")
    if isinstance(path, str) and path in tree:
        return path
    usual = ("src/lib.rs", "lib.rs", "src/main.rs", "main.rs")
    found = next((path for path in usual if path in tree), "")
    alone = [path for path in tree if path.endswith(".rs") and "/" not in path.removeprefix("src/")]
    return found or (alone[0] if len(alone) == 1 else "")


def scaffold(source: Tree) -> bytes:
    """Cargo.toml of the new version: the old one's name, version, edition and description, and no dependencies."""
    package = _table(manifest(source), "package")
    name = crate(source) if not isinstance(package.get("name"), str) else package["name"]
    kept = {"name": name, "version": "0.1.0", "edition": edition(source) if package else _EDITION}
    kept |= {key: package[key] for key in ("version", "description", "license") if isinstance(package.get(key), str)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in kept.items()]
    lib = _table(manifest(source), "lib").get("name")
    more = f"\n[lib]\nname = {json.dumps(lib)}\n" if isinstance(lib, str) else ""
    return ("[package]\n" + "\n".join(lines) + "\n" + more).encode()


def edition(tree: Tree) -> str:
    """As Cargo has it: without the line it is 2015."""
    said = _table(manifest(tree), "package").get("edition", "2015")
    return said if said in ("2015", "2018", "2021", "2024") and MANIFEST in tree else _EDITION


def targets(acceptance: Tree, is_test_file: Any) -> dict[str, str]:
    """Test file → the name of the target that it becomes."""
    return {path: "t_" + re.sub(r"\W", "_", path.removesuffix(".rs")) for path in sorted(acceptance) if is_test_file(path)}


def written(tree: Tree, tests: Mapping[str, str]) -> bytes:
    """The manifest that judges. Build scripts, procedural macros, profiles, patches and dependencies of the tree have no part in it."""
    package = {"name": crate(tree), "version": "0.1.0", "edition": edition(tree)}
    said = _table(manifest(tree), "package").get("version")
    package |= {"version": said} if isinstance(said, str) and re.fullmatch(r"\d+\.\d+\.\d+", said) else {}
    lines = ["[package]", *(f"{key} = {json.dumps(value)}" for key, value in package.items()), "build = false"]
    lines += [f"auto{kind} = false" for kind in ("tests", "examples", "benches")]
    if root := library(tree):
        lines += ["[lib]", f"name = {json.dumps(crate(tree))}", f"path = {json.dumps(root)}", "test = false", "doctest = false"]
    features = {name: list(map(str, parts)) for name, parts in _table(manifest(tree), "features").items() if _features(parts)}
    lines += ["[features]", *(f"{json.dumps(name)} = {json.dumps(parts)}" for name, parts in features.items())]
    for path, name in tests.items():
        lines += ["[[test]]", f"name = {json.dumps(name)}", f"path = {json.dumps(path)}"]
    lines += ["[profile.dev]", "debug = false", "incremental = false", "[workspace]"]
    return ("\n".join(lines) + "\n").encode()


def _features(parts: Any) -> bool:
    return isinstance(parts, list) and all(isinstance(part, str) and "/" not in part and ":" not in part for part in parts)


def problems(tree: Tree, numbers: tuple[int, ...] = ()) -> Iterator[Diagnostic]:
    """What the tree's own Cargo.toml asks for and cannot have. `numbers`: rustc's version."""
    if MANIFEST not in tree:
        return
    text = tree[MANIFEST].decode("utf-8", "replace")
    try:
        own = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        yield Diagnostic(file=MANIFEST, line=int(line[1]) if line else 1, message=str(error), code="toml")
        return
    if numbers and numbers < (1, 85) and edition(tree) == "2024":
        why = f"edition 2024 needs Rust 1.85 or newer, and here is {'.'.join(map(str, numbers))}"
        yield Diagnostic(file=MANIFEST, line=_line(text, "edition"), message=why, code="edition")
    needed = {**_table(own, "dependencies"), **_table(own, "build-dependencies")}
    for name, wanted in needed.items():
        if isinstance(wanted, dict) and wanted.get("optional") is True:
            continue
        why = "the gate builds without network and registry, with the standard library only"
        yield Diagnostic(file=MANIFEST, line=_line(text, name), message=f"the crate {name} cannot be had: {why}", code="dependency")
    if "workspace" in own and "package" not in own:
        why = "give the folder of one package as `source:`"
        yield Diagnostic(file=MANIFEST, line=_line(text, "[workspace"), message=f"a workspace of several packages: {why}", code="workspace")


def linkage(path: str, text: str) -> Diagnostic | None:
    """The first place where a file would change the programs that it is linked into, the tests' among them, or hides what it holds."""
    found = code(text)
    if found is None:
        return None
    for index, token in enumerate(found.tokens):
        included = found.at(index, "include", "!") and not found.slice(index + 3, index + 4).endswith('.rs"')
        if token.kind == "name" and (token.text in _LINKED or included):
            why = (
                "`include!` of what is no .rs file" if included else f"`{token.text}`, which changes the programs that this is linked into"
            )
            line, column = found.line(token.start), found.column(token.start)
            return Diagnostic(file=path, line=line, column=column, message=f"cannot be judged: {why}", code="linkage")
    return None


def _line(text: str, start: str) -> int:
    return next((n for n, line in enumerate(text.split("\n"), 1) if line.strip().strip('"').startswith(start)), 1)


def messages(output: bytes) -> Iterator[dict[str, Any]]:
    """The JSON messages among the lines of Cargo's output."""
    for line in output.splitlines():
        if line.startswith(b"{"):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict) and isinstance(value.get("reason"), str):
                yield value


def diagnostics(output: bytes, tree: Tree, *, blocking: bool = True) -> tuple[Diagnostic, ...]:
    """The compiler's complaints about files of the tree, each once. `blocking`: whether some warnings count as errors."""
    found: dict[tuple[object, ...], Diagnostic] = {}
    for value in messages(output):
        if value["reason"] == "compiler-message" and (made := diagnostic(value.get("message"), tree, blocking=blocking)):
            found.setdefault((made.file, made.line, made.column, made.code, made.message), made)
    return tuple(found.values())


def diagnostic(told: Any, tree: Tree, *, blocking: bool = True) -> Diagnostic | None:
    """One message of rustc; None for those without a place in the tree, which only sum up."""
    level = str(told.get("level")) if isinstance(told, dict) else ""
    if level not in ("error", "warning") and not level.startswith("error"):
        return None
    spans = _tables(told, "spans")
    place = next((found for span in sorted(spans, key=lambda s: not s.get("is_primary")) if (found := _inside(span, tree))), None)
    if place is None:
        return None
    lint = plain(str(_table(told, "code").get("code") or ""))
    label = next((str(s["label"]) for s in spans if s.get("is_primary") and s.get("label")), "")
    message = str(told.get("message", ""))
    text = message + (f": {label}" if label and label not in message else "")
    notes = [c for c in _tables(told, "children") if c.get("level") in ("help", "note")]
    for note in notes[:2]:
        if "on by default" not in (said := str(note.get("message", ""))):
            text += f"; {note['level']}: {said}"
    blocks = blocking and level == "warning" and lint in BLOCKING
    return Diagnostic(
        file=place["file_name"],
        line=int(place["line_start"]),
        column=int(place["column_start"]),
        code=lint,
        message=folded(text) + (" (this warning counts as an error)" if blocks else ""),
        severity="error" if level != "warning" or blocks else "warning",
    )


def _tables(told: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects of a list; empty for anything that is none."""
    value = told.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _inside(span: Any, tree: Tree) -> dict[str, Any] | None:
    """The place in the tree that a span stands for; of a macro of the library, where it was used."""
    for _ in range(64):
        if not isinstance(span, dict):
            return None
        name = relative(str(span.get("file_name", "")))
        if name in tree:
            return {**span, "file_name": name}
        span = _table(span, "expansion").get("span")
    return None


_PLACES = re.compile(r"(?:/private)?/(?:build|tmp)/(?:nightmill-gate-[\w-]+/)?")
_TARGET = re.compile(rf"{re.escape(PRIVATE)}/target/\S+")


def relative(path: str) -> str:
    return PurePosixPath(_PLACES.sub("", path, count=1)).as_posix()


def folded(text: str) -> str:
    """One line that is the same on every machine and in every run: without colours and without the names of work directories."""
    line = " ".join(plain(text).split())
    line = _TARGET.sub("…", _PLACES.sub("", line))
    return line if len(line) <= _MESSAGE_LIMIT else line[: _MESSAGE_LIMIT - 1] + "…"


def executables(output: bytes) -> dict[str, str]:
    """Test target → the name of its program."""
    return {
        str(_table(value, "target")["name"]): PurePosixPath(value["executable"]).name
        for value in messages(output)
        if value["reason"] == "compiler-artifact"
        and _table(value, "target").get("kind") == ["test"]
        and isinstance(value.get("executable"), str)
    }


def sources(tree: Tree) -> list[str]:
    """The files that the build step answers for."""
    return sorted(path for path in tree if path.endswith(".rs") and path.split("/")[0] not in (ACCEPTANCE, PRIVATE, "target"))
