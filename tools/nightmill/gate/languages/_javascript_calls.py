"""Calls of a JavaScript program as text: which are usable, what running one showed, and the test that repeats it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from nightmill.gate.languages import _javascript_declared as declared
from nightmill.gate.languages._javascript_tokens import Code, Token, string_value
from nightmill.run.trees import Tree

_GLOBALS = frozenset({
    "Array", "BigInt", "Boolean", "Infinity", "JSON", "Map", "Math", "NaN", "Number", "Object", "Set", "String", "false", "isFinite",
    "isNaN", "null", "parseFloat", "parseInt", "true", "undefined", "new",
})  # fmt: skip
"""Names of the language whose result depends on the call alone; `Math.random` is refused by its last part."""
_UNSTEADY = frozenset({"random", "now", "constructor", "prototype", "__proto__"})
_CHANGES = frozenset({
    "=", "+=", "-=", "*=", "/=", "%=", "**=", "&&=", "||=", "??=", "<<=", ">>=", ">>>=", "&=", "|=", "^=", "++", "--", "=>", ";",
})  # fmt: skip
_SLIPS = frozenset({"TypeError", "ReferenceError", "AssertionError"})
"""Met rather than thrown, they tell how the code is written, not what it promises; of others only the class is a promise."""
_RAISES = re.compile(
    r"(?:raises|throws|rejects with):?\s+([\w$]+?)(?:\s*[:(,]?\s*(?:with\s+)?(?:the\s+)?(?:text\s+|message\s+)?(\".*\"|'.*')\)?)?\.?$", re.S
)
_PRINTS = re.compile(r"(.+?),? (?:and )?prints (\".*\"|'.*')$", re.S)
_LONGEST = 400
_WORDS = frozenset({"true", "false", "null", "undefined", "NaN", "Infinity"})

_PROBE = """import { test } from "node:test";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import assert from "node:assert/strict";

const root = fileURLToPath(new URL("../", import.meta.url));

function literal(value, depth = 0) {
  if (depth > 20) throw new Error("deep");
  if (value === null || value === undefined || typeof value === "boolean") return String(value);
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value !== "object" || Object.getOwnPropertySymbols(value).length) throw new Error("no literal");
  if (Array.isArray(value) && Object.getPrototypeOf(value) === Array.prototype && Object.keys(value).length === value.length)
    return `[${value.map((item) => literal(item, depth + 1)).join(", ")}]`;
  if (Object.getPrototypeOf(value) !== Object.prototype) throw new Error("no literal");
  const parts = Object.entries(Object.getOwnPropertyDescriptors(value)).map(([name, own]) => {
    if (!("value" in own) || !own.enumerable || name === "__proto__") throw new Error("no literal");
    return `${/^[A-Za-z_$][\\w$]*$/.test(name) ? name : JSON.stringify(name)}: ${literal(own.value, depth + 1)}`;
  });
  return parts.length ? `{ ${parts.join(", ")} }` : "{}";
}

function origin(error) {
  const frame = /(?:\\(|at (?:async )?)((?:file:\\/\\/)?\\/[^\\s()]+):(\\d+):\\d+\\)?$/m.exec(String(error.stack));
  const file = frame && (frame[1].startsWith("file:") ? fileURLToPath(frame[1]) : frame[1]);
  if (!file || !file.startsWith(root) || file === fileURLToPath(import.meta.url)) return "";
  return readFileSync(file, "utf8").split("\\n")[frame[2] - 1].includes("throw") ? "raised" : "met";
}

async function seen(load, call, waits) {
  const told = {};
  const write = process.stdout.write;
  let out = "";
  try {
    const names = await load();
    process.stdout.write = (text) => ((out += text), true);
    try {
      const value = call(names);
      told.value = waits === (typeof value?.then === "function") ? literal(await value) : "?";
    } finally {
      process.stdout.write = write;
    }
  } catch (error) {
    if (!(error instanceof Error)) told.value = "?";
    else Object.assign(told, { raises: error.constructor.name, text: error.message, origin: origin(error) });
  }
  assert.fail(JSON.stringify({ ...told, out }));
}
"""


@dataclass(frozen=True)
class Named:
    """Where a public name comes from. `key`: how the module exports it."""

    module: str
    key: str
    is_async: bool


def names(sources: Tree) -> dict[str, Named]:
    """Public name of the program → where it comes from. A name of two modules is left out."""
    found: dict[str, list[Named]] = {}
    for path, data in sources.items():
        read = declared.code(data.decode("utf-8", "replace")) if path.endswith((".js", ".mjs", ".cjs")) else None
        for piece in declared.pieces(read) if read else ():
            if "." not in piece.name and piece.exported and not piece.name.startswith("_"):
                default = read is not None and read.at(piece.first, "export", "default")
                found.setdefault(piece.name, []).append(Named(path, "default" if default else piece.name, piece.is_async))
    return {name: owners[0] for name, owners in found.items() if len(owners) == 1}


def call(text: str, known: Mapping[str, Named]) -> str | None:
    """One expression that calls the program, in canonical form; None when it is none, or names something that nobody declares."""
    text = text.strip().removesuffix(";").strip()
    text = text[6:].strip() if text.startswith("await ") else text
    found = declared.code(text)
    if found is None or not found.tokens or "\n" in text or len(text) > _LONGEST or not _one_expression(found):
        return None
    called = False
    for index, token in enumerate(found.tokens):
        if token.text in _CHANGES or token.kind == "regex" or (token.kind == "template" and string_value(token) is None):
            return None
        if token.kind != "name":
            continue
        member = found.at(index - 1, ".") or found.at(index - 1, "?.")
        key = found.at(index + 1, ":") and (found.at(index - 1, "{") or found.at(index - 1, ","))
        if token.text in _UNSTEADY or token.text.startswith("#"):
            return None
        if not (member or key) and token.text not in known and token.text not in _GLOBALS:
            return None
        static = found.at(index + 1, ".") and found.at(index + 3, "(")
        called = called or (not member and token.text in known and (static or found.at(index + 1, "(")))
    first = found.tokens[0].text
    alone = first in known and known[first].is_async and len(found.tokens) > 1 and found.over(1) == len(found.tokens)
    return ("await " if alone else "") + _canonical(found) if called else None


def probe(calls: Mapping[str, str], known: Mapping[str, Named]) -> str:
    """A test file that makes each call (row id → call) and fails with what it saw, for `seen`."""
    parts = [_PROBE]
    for row, text in calls.items():
        bare = text.removeprefix("await ")
        load = "".join(f" {line}" for line in _imports(bare, known))
        shown = ", ".join(_used(bare, known))
        waits = "true" if bare != text else "false"
        asked = f"async () => {{{load} return {{ {shown} }}; }}, ({{ {shown} }}) => {bare}, {waits}"
        parts.append(f'test("test_{row.lower()}_seen", () => seen({asked}));\n')
    return "\n".join(parts)


def seen(message: str) -> str | None:
    """What a probe's failure tells, as the matrix writes an expected result; None when it is no value that text can hold."""
    try:
        told = json.loads(message)
        out = f", prints {_quoted(told['out'])}" if told["out"] else ""
        if "raises" in told:
            if told["origin"] == "met":
                return None if out or told["raises"] in _SLIPS or "call stack" in told["text"] else f"raises {told['raises']}"
            said = _quoted(told["text"])
            return None if out or not told["origin"] else f"raises {told['raises']} {said}"
        value = _literal(told["value"])
    except (ValueError, TypeError, KeyError):
        return None
    return f"{value}{out}" if value is not None else None


def test(row: str, text: str, expected: str, known: Mapping[str, Named]) -> str | None:
    """A test for a call and its expected result; None when the result is not exact enough to be written by program."""
    bare = text.removeprefix("await ")
    head = f'test("test_{row.lower()}_{_word(bare)}", async () => {{\n' + "".join(f"  {line}\n" for line in _imports(bare, known))
    if raised := _RAISES.match(expected):
        said = string_value(quoted) if raised[2] and (quoted := _token(raised[2])) else None
        way = "await assert.rejects(async () =>" if bare != text else "assert.throws(() =>"
        check = f"    assert.equal(error.message, {_quoted(said)});\n" if said is not None else ""
        check = f"    assert.equal(error.constructor.name, {_quoted(raised[1])});\n{check}    return true;\n"
        body = f"  {way} {bare}, (error) => {{\n{check}  }});\n"
        return f"{head}{body}}});\n"
    printed = _PRINTS.match(expected)
    value = _literal(printed[1] if printed else expected)
    if value is None:
        return None
    if printed:
        out = string_value(quoted) if (quoted := _token(printed[2])) else None
        return f"{head}{_printing(text, value, out)}}});\n" if out is not None else None
    waits = bare != text
    promised = '  assert.equal(typeof made?.then, "function");\n' if waits else ""
    return f"{head}  const made = {bare};\n{promised}  assert.deepStrictEqual({'await made' if waits else 'made'}, {value});\n}});\n"


def _printing(text: str, value: str, out: str) -> str:
    """The body of a test that a call gives `value` and writes `out`."""
    return (
        '  const write = process.stdout.write;\n  let out = "";\n  let result;\n'
        "  process.stdout.write = (text) => ((out += text), true);\n"
        f"  try {{\n    result = {text};\n  }} finally {{\n    process.stdout.write = write;\n  }}\n"
        f"  assert.deepStrictEqual(result, {value});\n  assert.equal(out, {_quoted(out)});\n"
    )


def _one_expression(found: Code) -> bool:
    """Whether no operand follows another: `fee(1) is 5` is prose."""
    operand = False
    for index, token in enumerate(found.tokens):
        prefix = token.kind == "name" and token.text in ("new", "typeof", "void") and not found.at(index - 1, ".")
        begins = token.kind != "punct" or token.text == "{"
        if operand and begins and token.kind != "template":
            return False
        operand = (token.kind != "punct" and not prefix) or token.text in (")", "]", "}")
    index = 0
    while index < len(found.tokens):
        if found.tokens[index].text == ",":
            return False
        index = found.over(index)
    return operand


def _canonical(found: Code) -> str:
    """The tokens with one kind of spacing and of quotes."""
    made = ""
    operand = False
    for token in found.tokens:
        text = token.text
        value = string_value(token)
        if value is not None:
            text = _quoted(value)
        if token.kind != "punct":
            made += text + (" " if text in ("new", "typeof", "void") else "")
        elif text in ("(", ")", "[", "]", ".", "?.", "!", "~", "..."):
            made += text
        elif text in (",", ":"):
            made = made.rstrip() + text + " "
        elif text in ("{", "}"):
            made += "{ " if text == "{" else "}" if made.endswith("{ ") else " }"
        else:
            made += f" {text} " if operand else text
        operand = (token.kind != "punct" and text != "new") or text in (")", "]", "}")
    return made.replace("{ }", "{}").strip()


def _literal(text: str) -> str | None:
    """A value written out, in canonical form; None for anything that computes."""
    found = declared.code(text.strip())
    if found is None or not found.tokens or not _one_expression(found):
        return None
    for index, token in enumerate(found.tokens):
        key = token.kind == "name" and found.at(index + 1, ":")
        plain = token.kind in ("number", "string") or (token.kind == "template" and string_value(token) is not None)
        negative = token.text == "-" and index + 1 < len(found.tokens) and found.tokens[index + 1].kind == "number"
        negative = negative or (token.text == "-" and found.at(index + 1, "Infinity"))
        opens = token.text in ("{", "[") and not (index and found.tokens[index - 1].text not in ("[", "{", ",", ":"))
        if not (key or plain or negative or opens or token.text in _WORDS or token.text in (",", ":", "]", "}")):
            return None
    return _canonical(found)


def _token(text: str) -> Token | None:
    found = declared.code(text.strip())
    return found.tokens[0] if found and len(found.tokens) == 1 else None


def _used(text: str, known: Mapping[str, Named]) -> list[str]:
    found = declared.code(text)
    every = found.tokens if found else ()
    return sorted({t.text for i, t in enumerate(every) if t.kind == "name" and t.text in known and not (i and every[i - 1].text == ".")})


def _imports(text: str, known: Mapping[str, Named]) -> list[str]:
    """Statements for the inside of a test, so that a name that is missing takes no other test along."""
    made = []
    for name in _used(text, known):
        target = known[name]
        inside = f"default: {name}" if target.key == "default" else name
        made.append(f"const {{ {inside} }} = await import({json.dumps('../' + target.module)});")
    return made


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _word(text: str) -> str:
    return re.sub(r"\W+", "_", text.partition("(")[0]).strip("_").lower()[:40] or "call"
