"""Calls of a Rust program as text: which are usable, what running one showed, and the test that repeats it. Values stand as in `{:?}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from nightmill.gate.languages import _rust_cargo as cargo
from nightmill.gate.languages._rust_items import items
from nightmill.gate.languages._rust_tokens import Code, Token, code, string_value
from nightmill.run.trees import Tree

_LANGUAGE = frozenset({
    "Some", "None", "Ok", "Err", "String", "Vec", "Option", "Result", "Box", "true", "false", "vec", "format", "as", "mut", "str", "char",
    "bool", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize", "f32", "f64",
})  # fmt: skip
_MACROS = frozenset({"vec", "format"})
_UNSTEADY = frozenset({"now", "elapsed", "random", "exit", "abort", "spawn", "env", "fs", "process", "as_ptr"})
_NEVER = frozenset({"=", ";", "=>", "->", "|", "#", "$", "@", "?", "~"})
_LONGEST = 400
_WORDS = frozenset({"true", "false", "NaN", "inf"})
_PANICS = re.compile(
    r"(?:raises|panics|throws)(?: with)?:?\s*(?:a |the )?(?:panic)?\s*"
    r"(?:[:(,]?\s*(?:with\s+)?(?:the\s+)?(?:text\s+|message\s+)?(\".*\")\)?)?\.?$",
    re.S,
)
_MET = re.compile(
    r"attempt to |called `|index out of bounds|range |slice index|byte index|assertion|already |cannot |capacity overflow|internal error"
)
"""How panics begin that nobody wrote: they tell how the code is made, not what it promises."""
_UNMADE = re.compile(r"not (yet )?implemented\b")
_SUFFIX = re.compile(r"_?(?:[iu](?:8|16|32|64|128|size)|f32|f64)$")
_PROBE = """#![allow(warnings)]
struct Show<T>(T);
trait Told { fn told(&self) -> String; }
impl<T: std::fmt::Debug> Told for Show<T> { fn told(&self) -> String { format!("seen value {:?}", self.0) } }
trait Untold { fn told(&self) -> String; }
impl<T> Untold for &Show<T> { fn told(&self) -> String { String::from("seen nothing") } }

fn seen(call: impl FnOnce() -> String) {
    let told = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
        Ok(text) => text,
        Err(error) => match (error.downcast_ref::<String>(), error.downcast_ref::<&str>()) {
            (Some(text), _) => format!("seen panic {:?}", text),
            (_, Some(text)) => format!("seen panic {:?}", text),
            _ => String::from("seen nothing"),
        },
    };
    panic!("{}", told);
}
"""


def names(sources: Tree) -> dict[str, str]:
    """Public name of the program → its path from the crate. A name of two modules is left out."""
    root, crate = cargo.library(sources), cargo.crate(sources)
    found: dict[str, set[str]] = {}
    every = _module(sources, root, crate, 0) if root else _alone(sources, crate)
    for name, path in every:
        found.setdefault(name, set()).add(path)
    return {crate: crate} | {name: paths.pop() for name, paths in found.items() if len(paths) == 1}


def _alone(sources: Tree, crate: str) -> Iterator[tuple[str, str]]:
    """Files without the one at their root: each is taken for a module that is named like it."""
    for path in cargo.sources(sources):
        parts = PurePosixPath(path.removeprefix("src/")).with_suffix("").parts
        yield from _declared(sources, path, "::".join((crate, *(p for p in parts if p != "mod"))))


def _declared(sources: Tree, path: str, prefix: str) -> Iterator[tuple[str, str]]:
    found = code(sources[path].decode("utf-8", "replace"))
    for item in items(found) if found else ():
        if item.public and "." not in item.name and item.kind in ("function", "class", "constant") and not item.only_tests:
            yield item.name, f"{prefix}::{item.name}"


def _module(sources: Tree, path: str, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """What a module's file makes reachable below `prefix`: its own names, its public modules', and what it hands on."""
    yield from _declared(sources, path, prefix)
    found = code(sources[path].decode("utf-8", "replace"))
    if found is None or depth > 8:
        return
    top = [i for i in items(found) if "." not in i.name and not i.only_tests]
    files = {i.name: file for i in top if i.kind == "module" and (file := _file(sources, path, i.name))}
    for item in top:
        if item.kind == "module" and item.public and item.name in files:
            yield item.name, f"{prefix}::{item.name}"
            yield from _module(sources, files[item.name], f"{prefix}::{item.name}", depth + 1)
        if item.kind == "use" and item.public:
            words = [t.text for t in found.tokens[item.head : item.after]]
            source = next((files[w] for w in words if w in files), "")
            inner = [name for name, _ in _module(sources, source, prefix, depth + 1)] if source else []
            for name in inner:
                if name in words or words[-2:] == ["*", ";"]:
                    yield name, f"{prefix}::{name}"


def _file(sources: Tree, path: str, name: str) -> str:
    """The file of a module that `path` declares."""
    own = PurePosixPath(path)
    folder = own.parent if own.name in ("lib.rs", "main.rs", "mod.rs") else own.with_suffix("")
    places = ((folder / f"{name}.rs").as_posix(), (folder / name / "mod.rs").as_posix())
    return next((place for place in places if place in sources), "")


def call(text: str, known: Mapping[str, str]) -> str | None:
    """One expression that calls the program, in canonical form; None when it is none, or names something that nobody declares."""
    text = text.strip().removesuffix(";").strip()
    found = code(text)
    if found is None or not found.tokens or "\n" in text or len(text) > _LONGEST or not _one_expression(found):
        return None
    called = False
    for index, token in enumerate(found.tokens):
        if token.text in _NEVER or token.kind == "lifetime" or token.text in _UNSTEADY:
            return None
        if token.kind != "name":
            continue
        member = found.at(index - 1, ".") or found.at(index - 1, "::")
        key = found.at(index + 1, ":") and (found.at(index - 1, "{") or found.at(index - 1, ","))
        if found.at(index + 1, "!") and not found.at(index + 2, "=") and token.text not in _MACROS:
            return None
        if not (member or key) and token.text not in known and token.text not in _LANGUAGE:
            return None
        end = index + 1
        while found.at(end, "::") and end + 1 < len(found.tokens):
            end += 2
        called = called or (not member and token.text in known and found.at(end, "("))
    return _canonical(found) if called else None


def _one_expression(found: Code) -> bool:
    """Whether no operand follows another: `fee(1) is 5` is prose."""
    operand = False
    for index, token in enumerate(found.tokens):
        if token.kind == "name" and token.text in ("as", "mut"):
            operand = False
            continue
        begins = token.kind != "punct"
        literal = token.text == "{" and operand and found.tokens[index - 1].text[:1].isupper()
        if (operand and begins) or (token.text == "{" and not literal):
            return False
        operand = begins or token.text in (")", "]", "}")
    index = 0
    while index < len(found.tokens):
        if found.tokens[index].text == ",":
            return False
        index = found.over(index)
    return operand


def _canonical(found: Code) -> str:
    """The text with one blank where there are several, and none inside of brackets or before commas."""
    made = ""
    for index, token in enumerate(found.tokens):
        before = found.tokens[index - 1] if index else token
        gap = index > 0 and token.start > before.end and token.text not in (")", "]", ",", ".", "::")
        if token.text in ("(", "["):
            gap = gap and (before.text in ("mut", "as") or (before.kind == "punct" and before.text not in (")", "]", "!", ">")))
        if before.text in ("(", "[", ".", "::"):
            gap = False
        made += (" " if gap or (index and before.text == ",") else "") + token.text
    return made


def probe(calls: Mapping[str, str], known: Mapping[str, str]) -> str:
    """A test file that makes each call (row id → call) and fails with what it saw, for `seen`."""
    parts = [_PROBE]
    for row, text in calls.items():
        parts.append(f"#[test]\nfn test_{row.lower()}_seen() {{\n{_imports(text, known)}    seen(|| (&Show({text})).told());\n}}\n")
    return "\n".join(parts)


def seen(message: str) -> str | None:
    """What a probe's failure tells, as the matrix writes an expected result; None when it is no value that text can hold."""
    kind, _, said = message.removeprefix("seen ").partition(" ")
    if not message.startswith("seen ") or kind not in ("value", "panic"):
        return None
    if kind == "value":
        return _literal(said)
    found = code(said)
    text = string_value(found.tokens[0]) if found and len(found.tokens) == 1 else None
    if text is None or _UNMADE.match(text):
        return None
    return "raises panic" if _MET.match(text) else f"raises panic {_quoted(text)}"


def test(row: str, text: str, expected: str, known: Mapping[str, str]) -> str | None:
    """A test for a call and its expected result; None when the result is not exact enough to be written by program."""
    head = f"#[test]\nfn test_{row.lower()}_{_word(text)}() {{\n{_imports(text, known)}"
    if panics := _PANICS.match(expected.strip()):
        found = code(panics[1]) if panics[1] else None
        said = string_value(found.tokens[0]) if found and len(found.tokens) == 1 else None
        check = f"    assert_eq!(text, {_quoted(said)});\n" if said is not None else '    assert!(!text.contains("not yet implemented"));\n'
        return (
            f"{head}    let caught = std::panic::catch_unwind(|| {{\n        let _ = {text};\n    }});\n"
            '    let error = caught.expect_err("it did not panic");\n'
            "    let own = error.downcast_ref::<String>().cloned();\n"
            "    let text = own.or_else(|| error.downcast_ref::<&str>().map(|t| t.to_string())).unwrap_or_default();\n"
            f"{check}}}\n"
        )
    value = _literal(expected)
    if value is None:
        return None
    return f'{head}    assert_eq!(format!("{{:?}}", {text}), {_quoted(value)});\n}}\n'


_SPELLINGS = (
    (re.compile(r"\bvec!\s*(?=\[)|\.(?:to_string|to_owned|into)\(\)"), ""),
    (re.compile(r"\bString::from\(\s*(\"(?:[^\"\\]|\\.)*\")\s*\)"), r"\1"),
)


def _literal(text: str) -> str | None:
    """A value written out, as `{:?}` shows it; None for anything that computes."""
    for pattern, instead in _SPELLINGS:
        text = pattern.sub(instead, text.strip())
    found = code(text)
    if found is None or not found.tokens:
        return None
    operand = False
    for index, token in enumerate(found.tokens):
        after = found.tokens[index + 1].text if index + 1 < len(found.tokens) else ""
        key = token.kind == "name" and after == ":"
        value = token.kind in ("number", "char") or string_value(token) is not None
        named = token.kind == "name" and (token.text in _WORDS or token.text[:1].isupper())
        negative = token.text == "-" and not operand and (after[:1].isdigit() or after == "inf")
        opens = token.text in ("(", "[", "{") and (not operand or found.tokens[index - 1].text[:1].isupper())
        if not (key or value or named or negative or opens or token.text in (",", ":", ")", "]", "}")):
            return None
        if operand and (key or value or named):
            return None
        operand = token.kind != "punct" or token.text in (")", "]", "}")
    return _debug(found) if operand and not _list(found) else None


def _list(found: Code) -> bool:
    index = 0
    while index < len(found.tokens):
        if found.tokens[index].text in (",", ":"):
            return True
        index = found.over(index)
    return False


def _debug(found: Code) -> str:
    made = ""
    for index, token in enumerate(found.tokens):
        if token.text in (",", ":"):
            closing = index + 1 < len(found.tokens) and found.tokens[index + 1].text in ("]", "}")
            made += "" if closing else token.text if found.at(index + 1, ")") else f"{token.text} "
        elif token.text == "{" and index and found.tokens[index - 1].kind == "name":
            made += " { "
        elif token.text == "}" and (opens := found.partner[index]) and found.tokens[opens - 1].kind == "name":
            made += " }"
        else:
            made += _shown(token)
    return re.sub(r"(?<=[A-Za-z0-9_]\()([^,()]*),(?=\))", r"\1", made)


def _shown(token: Token) -> str:
    value = string_value(token)
    if value is not None:
        return _quoted(value)
    return _SUFFIX.sub("", token.text).replace("_", "") if token.kind == "number" else token.text


def _imports(text: str, known: Mapping[str, str]) -> str:
    """Statements for the inside of a test, so that a name that is missing takes no other test along."""
    found = code(text)
    every = found.tokens if found else ()
    used = {t.text for i, t in enumerate(every) if t.kind == "name" and t.text in known and not (i and every[i - 1].text in (".", "::"))}
    return "".join(f"    use {known[name]};\n" for name in sorted(used) if known[name] != name)


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def _quoted(text: str) -> str:
    """A string literal as `{:?}` writes it."""
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text) + '"'


def _word(text: str) -> str:
    return re.sub(r"\W+", "_", text.partition("(")[0]).strip("_").lower()[:40] or "call"
