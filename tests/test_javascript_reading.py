"""What the JavaScript pack reads from text: tokens, names, functions, tests, imports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.calls.replies import file_blocks
from nightmill.gate.languages import _javascript_links as links
from nightmill.gate.languages._javascript_tokens import Unreadable, read
from nightmill.gate.languages.javascript import JavaScriptPack
from nightmill.gate.proof import row

PACK = JavaScriptPack()

MODULE = """#!/usr/bin/env node
import { a } from "./a.js";

export const RATE = 25, NAMES = ["a", `b${`x${1}`}`];
const pattern = /[/"'`]+/g, half = RATE / 2 / 1
let later

/** The fee. */
export function fee(minutes, { cap = 10 } = {}) {
  return Math.min(minutes * RATE, cap);
}

export const net = (cents) => cents * 100 / 119
export const waits = async (x) => {
  throw new Error("not implemented");
};

export class Ledger extends mixin({ a: 1 }) {
  #sum = 0;
  static of(x) { return new Ledger(x); }
  constructor(path, today) {
    super();
    this.path = path;
  }
  get total() { throw new Error("not implemented"); }
  set total(value) { this.#sum = value }
  async *walk() { throw new Error('Not implemented yet') }
  #hidden() { return 1 }
  static { init(); }
  field = () => { return 3 };
}

class Open { constructor(a) { this.a = check(a); } }
async function inner() { function nested() {} return nested }
export { inner, Open as Other };
"""


def test_symbols_come_with_kind_place_signature_and_publicity() -> None:
    found = {s.name: s for s in PACK.symbols("lib/bank.js", MODULE)}
    assert found["fee"].signature == "export function fee(minutes, { cap = 10 } = {})" and found["fee"].line == 9
    assert found["Ledger"].signature == "export class Ledger extends mixin({ a: 1 }) { constructor(path, today) }"
    assert found["waits"].signature == "export const waits = async (x) =>"
    assert found["RATE"].kind == found["later"].kind == "constant" and found["Ledger.total"].signature == "get total()"
    assert [n for n, s in found.items() if s.kind in ("function", "method")] == [
        *("fee", "net", "waits", "Ledger.of", "Ledger.total", "Ledger.total=", "Ledger.walk", "Ledger.#hidden"),
        *("Open.constructor", "inner"),
    ]
    assert {n for n, s in found.items() if not s.public} == {"pattern", "half", "later", "Ledger.#hidden", "Open.constructor"}
    assert "nested" not in found and "Ledger.constructor" not in found


def test_stubs_are_functions_that_only_throw_that_they_are_none() -> None:
    assert PACK.stubs({"bank.js": MODULE.encode(), "x.py": MODULE.encode()}) == {"bank.js": ("waits", "Ledger.total", "Ledger.walk")}
    almost = b'export function f() { log(); throw new Error("not implemented"); }\nexport function g() { throw new Error("no"); }'
    assert PACK.stubs({"a.js": almost}) == {}


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a / b / c", "npnpn"),
        ("x = /a[/]b/.test(y)", "npr pnpnp"),
        ("return /re/g", "nr"),
        ("if (a) /re/.exec(b)", "npnpr pnpnp"),
        ("(a) / b / c", "pnppnpn"),
        ("a++ / b", "nppn"),
        ("[1] / 2", "pdppd"),
        ("`a${b + `c${/}/}`}d` + 1", "tpd"),
        ("'it\\'s' + \"a\\\nb\"", "sps"),
        ("a ?. b ?? .5 ? .5 : 1e3", "npnpdpdpd"),
        ("1_000n + 0xFFn", "dpd"),
        ("a // b\n/* c */ <!-- d\nb", "nn"),
        ("x.return / 2 / 1", "npnpdpd"),
        ("#priv in o", "nnn"),
        ("größe = λ", "npn"),
    ],
)
def test_tokens_keep_strings_templates_comments_and_regular_expressions_apart(text: str, kinds: str) -> None:
    letters = {"name": "n", "punct": "p", "number": "d", "string": "s", "template": "t", "regex": "r"}
    wanted = kinds.replace(" ", "")
    assert "".join(letters[t.kind] for t in read(text).tokens) == wanted


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("let a = 'x\n';", 1, "string"),
        ("f(\n]\n", 2, "unexpected token"),
        ("f(\n{", 2, "never closed"),
        ("`a${b", 1, "template"),
        ("a\n/* b", 2, "comment"),
        ("x = /a\n/", 1, "regular expression"),
        ("a = 1;\n\x00", 2, "unexpected character"),
        ("`${" * 100, 1, "nested"),
    ],
)
def test_what_cannot_be_read_is_located(text: str, line: int, word: str) -> None:
    (found,) = PACK.precheck({"bad.js": text.encode(), "good.js": b"x"})
    assert (found.file, found.line) == ("bad.js", line) and word in found.message and found.column > 0


@given(st.text(alphabet="ab/*`'\"${}()[]\\\n =+-;.#1", max_size=60))
def test_tokens_cover_the_text_in_order(text: str) -> None:
    try:
        code = read(text)
    except Unreadable as error:
        assert 0 <= error.at <= len(text)
        return
    ends = [0, *(t.end for t in code.tokens)]
    assert all(t.start >= before and text[t.start : t.end] == t.text for t, before in zip(code.tokens, ends, strict=False))


def test_a_function_is_taken_with_its_comment_and_grafted_with_what_it_needs() -> None:
    assert PACK.function("a.js", MODULE, "fee").startswith("/** The fee. */\nexport function fee(")
    code = 'import { z } from "./z.js";\n\nconst twice = (x) => 2 * x;\n\nexport const waits = async (x) => {\n  return twice(z(x));\n};\n'
    made = PACK.graft(MODULE, "waits", code)
    assert 'import { a } from "./a.js";\nimport { z } from "./z.js";\n' in made
    assert "const twice = (x) => 2 * x;\n\nexport const waits = async (x) => {\n  return twice(z(x));\n};" in made
    method = PACK.graft(MODULE, "Ledger.total", "get total() {\n  return this.#sum;\n}")
    assert "  get total() {\n    return this.#sum;\n  }\n  set total" in method
    short = PACK.graft(MODULE, "net", "export const net = (cents) => cents")
    assert "export const net = (cents) => {\n  return cents;\n}" in short


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("export const waits = async (y) => { return 1; };", "keep the parameters of waits"),
        ("export const waits = (x) => { return 1; };", "keep waits async"),
        ("export const other = async (x) => { return 1; };", "no function waits"),
        ("export const waits = async (x) => {", "does not parse"),
        ('export const waits = async (x) => { throw new Error("not implemented"); };', "still throws"),
    ],
)
def test_code_that_cannot_take_a_functions_place_is_refused_in_words(code: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        PACK.graft(MODULE, "waits", code)


SUITE = """import test, { describe, it } from "node:test";
test("test_t1_a", () => { check.test("no"); });
describe("g", () => {
  it('test_t2_b::c', async () => {});
  describe(`in`, () => { it.skip("test_t3_c", { x: 1 }, () => {}) });
});
for (const n of [1, 2]) test(`test_t4_case[${n}]`, () => {});
test(`test_t5_${word}`, () => {});
await test.todo("test_t6_d", (t) => t.test("part", () => {}));
// test("test_t7_remark", () => {});
const text = 'test("test_t8_text", () => {})';
"""


def test_tests_are_named_as_the_runner_names_them() -> None:
    names = ("test_t1_a", "g::test_t2_b:c", "g::in::test_t3_c", "test_t4_case", "test_t6_d")
    assert PACK.tests_in("acceptance/test_a.mjs", SUITE) == tuple(f"acceptance/test_a.mjs::{n}" for n in names)
    left = PACK.without(SUITE, {"g::test_t2_b:c", "test_t4_case", "test_t6_d"})
    assert PACK.tests_in("a", left) == ("a::test_t1_a", "a::g::in::test_t3_c") and "await" not in left
    assert PACK.function("a", SUITE, "g.test_t2_b:c") == "it('test_t2_b::c', async () => {});"


def test_what_a_test_asks_is_counted() -> None:
    text = """
      test("test_t1_a", () => { assert.equal(f(1), 2); assert(f(2)); assert.ok(true); assert.equal(1, 1); });
      test.skip("test_t2_b", () => { assert.throws(() => f(3)); });
      test("test_t3_c", { todo: true }, () => {});
      function help(x) { assert.ok(x); }
    """
    asked = PACK.census("a", text)
    assert {i: (a.assertions, a.skips, a.xfails) for i, a in asked.items()} == {
        "a::test_t1_a": (2, 0, 0), "a::test_t2_b": (1, 1, 0), "a::test_t3_c": (0, 0, 1), "a": (1, 0, 0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('import { nope } from "./b.js";', "does not export nope"),
        ('import b from "./b.js";', "does not export default"),
        ('export { nope as x } from "./b.js";', "does not export nope"),
        ('import "./c.js";', "cannot find module './c.js'"),
        ('import { one } from "./b";', "cannot find module './b'"),
        ('import { one, two as three, Four } from "./b.js";', ""),
        ('import * as b from "./b.js"; import fs, { readFileSync } from "node:fs"; import x from "left-pad";', ""),
        ('const { nope } = await import("./c.js");', ""),
        ('import { any } from "./open.js"; import { some } from "./old.cjs";', ""),
        ('// import { nope } from "./b.js";', ""),
    ],
)
def test_imports_that_lead_nowhere_are_located(line: str, word: str) -> None:
    tree = {
        "package.json": b'{"type": "module"}',
        "a.js": f"\n{line}\n".encode(),
        "b.js": b"export const one = 1;\nconst two = 2, Four = class {};\nexport { two, Four };\n",
        "open.js": b'export * from "./b.js";\n',
        "old.cjs": b"exports.some = 1;\n",
    }
    found = list(links.problems(tree, [p for p in tree if p != "package.json"]))
    assert [(d.file, d.line, word in d.message) for d in found] == ([("a.js", 2, True)] if word else [])


def test_tests_of_the_old_program_find_it_from_one_folder_deeper() -> None:
    tree = {"src/a.js": b"export const x = 1;", "package.json": b"{}"}
    test = b'import { x } from "../src/a.js";\nimport "./help.js";\nimport { test } from "node:test";\n'
    laid = PACK.prepare(tree, {"acceptance/test/a.test.js": test, "acceptance/test/help.js": b""})
    assert b'from "../../src/a.js";\nimport "./help.js"' in laid["acceptance/test/a.test.js"]


def test_js_files_are_modules_by_their_package_or_by_what_they_use() -> None:
    assert "package.json" in PACK.prepare({"a.js": b"export const x = 1;"}, {})
    assert "package.json" not in PACK.prepare({"a.js": b"module.exports = 1;"}, {})
    assert PACK.precheck({"a.js": b"with (x) y;"}) == () and PACK.precheck({"a.mjs": b"with (x) y;"})[0].line == 1
    assert PACK.precheck({"package.json": b'{"type": "module"}', "a.js": b"\nreturn 1"})[0].line == 2


def test_the_package_of_the_new_version_has_no_scripts() -> None:
    old = {"package.json": b'{"name": "x", "scripts": {"postinstall": "rm"}, "dependencies": {"y": "1"}, "main": "a.js"}'}
    made = PACK.scaffold(old)["package.json"]
    assert b"scripts" not in made and b"dependencies" not in made and b'"main": "a.js"' in made and b'"type": "module"' in made
    assert PACK.scaffold({"package.json": b"[1"}) == PACK.scaffold({})


def test_the_examples_that_prompts_show_are_what_the_formats_ask_for() -> None:
    for name in ("Schema", "schema_architect"):
        files = file_blocks(PACK.examples[name])
        tree = {path: text.encode() for path, text in files.items()}
        assert PACK.precheck({**tree, **PACK.scaffold({})}) == () and set(PACK.stubs(tree)) <= set(tree) and PACK.stubs(tree)
    for name in ("target_implementer", "merge_agent", "Edits", "MergedFile"):
        files = file_blocks(PACK.examples[name].partition("To change a part")[0])
        assert files and all(PACK.precheck({path: text.encode()}) == () for path, text in files.items())
    ((path, text),) = file_blocks(PACK.examples["AcceptanceTests"]).items()
    assert PACK.is_test_file(path) and [row(t) for t in PACK.tests_in(path, text)] == ["T1", "T3"]
    assert PACK.symbols("a.js", PACK.examples["OneFunction"].split("```js\n")[1].split("```")[0])[0].name == "fee"
    assert all("python" not in text and "def " not in text for text in PACK.examples.values())
