"""Rust as text, without its compiler: tokens, items, tests and what they ask, Cargo's messages as they were recorded, manifests, calls."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.gate.authority import weakened
from nightmill.gate.languages import _rust_calls as calling
from nightmill.gate.languages import _rust_cargo as cargo
from nightmill.gate.languages import _rust_items as declared
from nightmill.gate.languages import _rust_pieces as pieces
from nightmill.gate.languages import _rust_suites as suites
from nightmill.gate.languages import _rust_toolchain as finding
from nightmill.gate.languages._rust_tokens import Unreadable, code, read, string_value
from nightmill.gate.languages._rust_toolchain import Rust
from nightmill.gate.languages.rust import RustPack

MESSAGES = Path(__file__).parent / "fixtures" / "rust_messages"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("'a' 'a b'\\'' '\\u{1F600}' '{'", "char lifetime char char char"),
        ("&'static str", "punct lifetime name"),
        ('r#"a "quoted" }"# br"x" b"y" c"z" "\\"}"', "string string string string string"),
        ("r#type r#match", "name name"),
        ("1..2 1.5 1.max t.0", "number punct number number number punct name name punct number"),
        ("0xFFu8 1_000i64 1e-9 2.", "number number number number"),
        ("/* a /* } */ b */ x // y {", "name"),
        ("#!/usr/bin/env x\nfn", "name"),
        ("#![allow(x)]", "punct punct punct name punct name punct punct"),
    ],
)  # fmt: skip
def test_tokens_are_told_apart(text: str, kinds: str) -> None:
    assert " ".join(t.kind for t in read(text).tokens) == kinds


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ('let x = "open;', "unterminated string", 8),
        ('r##"open"#', "unterminated raw string", 0),
        ("/* /* */", "unterminated block comment", 0),
        ("fn f() { (] }", "unexpected closing `]`", 10),
        ("fn f() {", "`{` is never closed", 7),
        ("a ' b", "unterminated character", 2),
        ("a \\ b", "unexpected character", 2),
    ],
)
def test_what_cannot_be_rust_is_located(text: str, message: str, at: int) -> None:
    with pytest.raises(Unreadable) as caught:
        read(text)
    assert str(caught.value).startswith(message) and caught.value.at == at


@given(st.text(alphabet="ab'\"r#/*{}()[]!\\\n ", max_size=60))
def test_tokens_lie_in_order_and_repeat_the_text(text: str) -> None:
    found = code(text)
    for before, after in zip(found.tokens, found.tokens[1:], strict=False) if found else ():
        assert before.end <= after.start and text[after.start : after.end] == after.text


def test_strings_say_what_they_mean() -> None:
    texts = ['"a\\n\\x41\\u{1f600}\\"\\\n   b"', 'r#"\\n"#', '"{{}}"']
    assert [string_value(read(t).tokens[0]) for t in texts] == ['a\nA\U0001f600"b', "\\n", "{{}}"]
    assert string_value(read('b"x"').tokens[0]) is None


SHOP = """//! A shop.
#![deny(missing_docs)]

use std::fmt;

/// Most of it.
pub const MOST: [u8; 2] = [1, { 2 }];

/// A price.
#[derive(Debug, Clone)]
pub struct Price<T> {
    cents: T,
}

impl<T: Copy + Into<i64>> Price<T> {
    /// Keeps its argument.
    pub fn new(cents: T) -> Self {
        Self { cents }
    }

    /// As a number.
    pub fn cents<F>(&self, round: F) -> i64
    where
        F: Fn(i64) -> i64,
    {
        round(self.cents.into())
    }

    const fn zero() -> i64 {
        0
    }
}

impl<T> fmt::Display for Price<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{")
    }
}

impl<T> fmt::LowerHex for Price<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("}")
    }
}

/// Shapes.
pub trait Shape {
    /// Only declared.
    fn area(&self) -> f64;
}

mod inner {
    pub fn deep(x: &'static str) -> char {
        match x.chars().next() {
            Some('{') => '}',
            _ => '\\'',
        }
    }
}

fn main() {}

#[cfg(test)]
mod tests {
    #[test]
    fn works() {
        assert!(super::MOST.len() == 2);
    }
}
"""
OWED = ["Price.cents", "Price.fmt", "Price.fmt~2", "inner.deep", "main"]


def test_items_are_named_and_those_that_owe_a_body_are_known() -> None:
    found = {s.name: (s.kind, s.line, s.public) for s in declared.symbols("src/lib.rs", SHOP)}
    assert found["MOST"] == ("constant", 7, True) and found["Price"] == ("class", 11, True) and found["Shape"][0] == "class"
    assert [n for n, (kind, *_) in found.items() if kind in ("function", "method")] == OWED
    assert found["inner.deep"][2] and not found["main"][2] and "tests.works" not in found
    cents = next(s for s in declared.symbols("", SHOP) if s.name == "Price.cents")
    assert cents.signature == "pub fn cents<F>(&self, round: F) -> i64 where F: Fn(i64) -> i64,"
    assert [declared.enclosing(SHOP, line) for line in (25, 36, 42, 55, 1)] == ["Price.cents", "Price.fmt", "Price.fmt~2", "inner.deep", ""]


def test_a_skeleton_keeps_all_but_the_bodies_and_takes_them_back() -> None:
    skeleton = pieces.skeleton(SHOP)
    assert skeleton is not None and list(declared.stubs(skeleton)) == OWED
    assert "Self { cents }" in skeleton and "#[derive(Debug, Clone)]" in skeleton and "const fn zero() -> i64 {\n        0" in skeleton
    for name in OWED[:-1]:
        skeleton = pieces.graft(skeleton, name, pieces.function(SHOP, name))
    assert skeleton == SHOP.replace("fn main() {}", "fn main() {\n    todo!()\n}")


@pytest.mark.parametrize(
    ("body", "stub"),
    [
        ("todo!()", True),
        ('todo!("later");', True),
        ("unimplemented!();", True),
        ('panic!("not implemented")', True),
        ('panic!("Not yet implemented: {}", x);', True),
        ("let _ = (x, y); todo!()", True),
        ("let _ = x; let _ = y; unimplemented!()", True),
        ('panic!("negative")', False),
        ("x", False),
        ("", False),
        ("if x { todo!() } else { 1 }", False),
        ("todo!(); 1", False),
        ("let y = x; todo!()", False),
    ],
)
def test_only_an_empty_body_is_a_stub(body: str, stub: bool) -> None:
    assert declared.stubs(f"fn f(x: i32) -> i32 {{ {body} }}") == (("f",) if stub else ())


def test_code_is_grafted_with_what_it_needs() -> None:
    text = (
        "//! Doc.\n#![allow(x)]\n\n/// One.\npub struct A;\n\nimpl A {\n    pub fn one(&self, x: i32) -> i32 {\n        todo!()\n    }\n}\n"
    )
    helper = "fn helper(x: i32) -> i32 {\n    max(x, LEAST)\n}\n"
    written = f"use std::cmp::max;\n\nconst LEAST: i32 = 1;\n\n{helper}\n"
    written += "pub fn one(&self, mut x: i32,) -> i32 {\n    x += 1;\n    helper(x)\n}\n"
    made = pieces.graft(text, "A.one", written)
    assert made.index("use std::cmp::max;") < made.index("struct A") < made.index("const LEAST") < made.index("impl A {")
    assert "        x += 1;\n        helper(x)\n    }" in made
    assert pieces.graft(text, "A.one", f"impl A {{\n{pieces.function(made, 'A.one')}\n}}").count("fn one") == 1


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("fn two() {}", "no function one"),
        ("fn one(x: i32) -> i32 { todo!() }", "still has no body"),
        ("fn one(x: i64) -> i32 { 1 }", "keep the signature"),
        ("fn one(y: i32) -> i32 { 1 }", "keep the signature"),
        ("fn one(x: i32) -> i32 { 1", "does not parse"),
        ("struct A(i32);\nfn one(x: i32) -> i32 { 1 }", "A stands in the file already"),
    ],
)
def test_code_that_does_not_fit_is_refused_in_words(written: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        pieces.graft("struct A;\nfn one(x: i32) -> i32 { todo!() }\n", "one", written)


TESTS = """use app::f;

mod group {
    #[test]
    #[should_panic(expected = "no")]
    fn test_t1_a() {
        super::f(1);
    }
}

// why
#[test]
fn test_t2_b() {
    assert_eq!(f(1), 1);
    assert!(f(2) == 2, "text");
    assert!(true);
    assert!(f(3).is_none() || matches!(f(3), None));
}

#[ignore]
#[test]
fn test_t3_c() -> Result<(), String> { Ok(()) }

#[tokio::test]
async fn test_t4_d() {}
"""


def test_tests_are_found_counted_and_taken_out() -> None:
    path = "acceptance/test_a.rs"
    assert suites.tests(path, TESTS) == tuple(f"{path}::{n}" for n in ("group::test_t1_a", "test_t2_b", "test_t3_c"))
    asked = suites.census(path, TESTS)
    assert {id.rpartition("::")[2]: (a.assertions, a.skips) for id, a in asked.items() if "::" in id} == {
        "test_t1_a": (1, 0),
        "test_t2_b": (3, 0),
        "test_t3_c": (0, 1),
    }
    left = suites.without(TESTS, {"test_t2_b", "group::test_t1_a"})
    assert suites.tests(path, left) == (f"{path}::test_t3_c",) and "// why" not in left
    weaker = TESTS.replace('assert!(f(2) == 2, "text");', "").replace("#[test]\nfn test_t2_b", "#[test]\n#[ignore]\nfn test_t2_b")
    assert weakened(asked, suites.census(path, weaker)) == {f"{path}::test_t2_b": "3 → 2 assertions, 0 → 1 skips"}


def test_a_judged_file_has_all_its_lines_where_they_were() -> None:
    made = suites.judged(TESTS, "app")
    assert made.count("nightmill_guard::begin") == 3 and 'begin(true, "no")' in made and made.count("begin(false") == 2
    for before, after in zip(TESTS.split("\n"), made.split("\n"), strict=False):
        assert after.startswith(before.rstrip(" })")[:20])
    assert suites.tests("a.rs", made) == suites.tests("a.rs", TESTS)


TREE = {"src/lib.rs": b"", "src/a.rs": b""}


def test_recorded_errors_are_located_and_normalised() -> None:
    found = cargo.diagnostics((MESSAGES / "errors.jsonl").read_bytes(), TREE)
    told = [(d.file, d.line, d.column, d.code, d.severity) for d in found if d.file == "src/a.rs"]
    assert told == [
        ("src/a.rs", 1, 30, "E0308", "error"),
        ("src/a.rs", 2, 14, "E0277", "error"),
        ("src/a.rs", 2, 58, "E0308", "error"),
        ("src/a.rs", 2, 64, "E0425", "error"),
    ]
    assert found[0].message.startswith("mismatched types: expected `String`, found `i64`")
    assert not any("\n" in d.message or "/rustc/" in d.message for d in found)


def test_recorded_warnings_block_or_not_and_colours_are_gone() -> None:
    data = (MESSAGES / "warnings.jsonl").read_bytes()
    assert b"\\u001b[" in data
    assert {(d.line, d.code, d.severity) for d in cargo.diagnostics(data, TREE)} == {
        (6, "unused_must_use", "error"),
        (8, "unreachable_code", "error"),
    }
    assert {d.severity for d in cargo.diagnostics(data, TREE, blocking=False)} == {"warning"}
    assert cargo.folded("\x1b[31m/build/src/a.rs\x1b[0m and /tmp/nightmill-gate-x1_y/src/b.rs\n now") == "src/a.rs and src/b.rs now"


KEYS = st.sampled_from(["level", "message", "spans", "code", "children", "is_primary", "file_name", "expansion", "span", "label"])
LEAF = st.none() | st.integers() | st.sampled_from(["error", "warning", "src/a.rs", ""])


@given(st.recursive(LEAF, lambda x: st.lists(x, max_size=3) | st.dictionaries(KEYS, x, max_size=5), max_leaves=12))
def test_no_message_makes_the_reader_raise(told: object) -> None:
    cargo.diagnostic(told, TREE)


def test_dependencies_are_refused_where_they_stand_and_optional_ones_are_left_out() -> None:
    text = (
        b'[package]\nname = "a"\n\n[dependencies]\nserde = "1"\nrand = { version = "0.8", optional = true }\n[dev-dependencies]\nx = "1"\n'
    )
    (found,) = cargo.problems({"Cargo.toml": text})
    assert (found.file, found.line) == ("Cargo.toml", 5) and "serde" in found.message and "network" in found.message
    (found,) = cargo.problems({"Cargo.toml": b'[workspace]\nmembers = ["a", "b"]\n'})
    assert "workspace" in found.message
    (found,) = cargo.problems({"Cargo.toml": b'[package]\nname = "a\n'})
    assert found.line == 2
    (found,) = cargo.problems({"Cargo.toml": b'[package]\nname = "a"\nedition = "2024"\n'}, (1, 63))
    assert (found.line, "1.85" in found.message) == (3, True)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('#[no_mangle]\npub extern "C" fn write() {}', (1, 3)),
        ('fn f() {}\n#[unsafe(link_section = ".init_array")]\nstatic A: fn() = f;', (2, 10)),
        ('#[cfg_attr(all(), export_name = "write")] fn f() {}', (1, 19)),
        ("m!(no_mangle);", (1, 4)),
        ('std::arch::global_asm!("nop");', (1, 12)),
        ('include!("data.txt");', (1, 1)),
        ('include!(concat!("a", ".rs"));', (1, 1)),
        ('include!("part.rs"); // no_mangle\nfn f() -> &\'static str { "link_section" }', None),
    ],
)
def test_what_changes_the_programs_it_is_linked_into_cannot_be_judged(text: str, place: tuple[int, int] | None) -> None:
    found = RustPack(lambda: None).precheck({"src/lib.rs": text.encode()})
    assert [(d.line, d.column, d.code) for d in found] == ([(*place, "linkage")] if place else [])


def test_the_manifest_is_written_by_program() -> None:
    old = b"""[package]\nname = "my-shop"\nversion = "2.1.0"\nedition = "2018"\nbuild = "x.rs"
[lib]\nproc-macro = true\n[dependencies]\na = "1"
[features]\ndefault = ["fast"]\nfast = []\nodd = ["dep:a"]\n[profile.dev]\npanic = "abort"\n"""
    tree = {"Cargo.toml": old, "src/lib.rs": b"", "src/main.rs": b""}
    made = tomllib.loads(cargo.written(tree, {"acceptance/test_a.rs": "t_a"}).decode())
    assert made["package"]["name"] == made["lib"]["name"] == "my_shop" and made["package"]["edition"] == "2018"
    assert made["package"]["build"] is False and made["package"]["autotests"] is False and "dependencies" not in made
    assert made["features"] == {"default": ["fast"], "fast": []} and made["test"] == [{"name": "t_a", "path": "acceptance/test_a.rs"}]
    assert "proc-macro" not in made["lib"] and "panic" not in made["profile"]["dev"]
    new = tomllib.loads(cargo.scaffold(tree).decode())
    assert new == {"package": {"name": "my-shop", "version": "2.1.0", "edition": "2018"}}
    assert cargo.crate({"Cargo.toml": cargo.scaffold({})}) == cargo.crate({}) == "program"
    assert [cargo.library(t) for t in ({"main.rs": b""}, {"src/x.rs": b"", "src/lib.rs": b""}, {"x.rs": b""}, {})] == [
        "main.rs",
        "src/lib.rs",
        "x.rs",
        "",
    ]


PROGRAM = {
    "Cargo.toml": b'[package]\nname = "shop"\n',
    "src/lib.rs": b"pub mod money; mod hidden; mod secret;\npub use hidden::{show, Slip}; pub use secret::*; pub fn top(x: i32) {}\n",
    "src/money.rs": b"pub mod small;\npub fn parse(t: &str) -> Option<i64> { None }\nfn own() {}\n",
    "src/money/small.rs": b"pub const UNIT: i64 = 1;\npub fn cut() {}\n",
    "src/hidden.rs": b"pub fn show() {}\npub struct Slip;\npub fn kept() {}\n",
    "src/secret.rs": b"pub fn all() {}\n",
}


def test_public_names_are_found_where_they_can_be_reached() -> None:
    known = calling.names(PROGRAM)
    assert known == {
        "shop": "shop", "money": "shop::money", "small": "shop::money::small", "parse": "shop::money::parse",
        "UNIT": "shop::money::small::UNIT",
        "cut": "shop::money::small::cut", "show": "shop::show", "Slip": "shop::Slip", "all": "shop::all", "top": "shop::top",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("top( 1 )", "top(1)"),
        ('money :: parse("1  5" ).unwrap( );', 'money::parse("1  5").unwrap()'),
        ("shop::top(-1)", "shop::top(-1)"),
        ("top(1) + top(2)", "top(1) + top(2)"),
        ("top(1 as i32)", "top(1 as i32)"),
        ('parse(&String::from("x"))', 'parse(&String::from("x"))'),
        ("all(vec![1,2 , 3], &mut [1])", "all(vec![1, 2, 3], &mut [1])"),
        ("Slip { a: 1 }.total()", None),
        ("top(1) is 5", None),
        ("top", None),
        ("top(|x| x)", None),
        ("top(y)", None),
        ("top(std::process::exit(1))", None),
        ('println!("{}", top(1))', None),
        ("let x = top(1)", None),
        ("top(1), top(2)", None),
        ("top(1)?", None),
        ("own()", None),
    ],
)
def test_calls_have_one_form_or_none(text: str, canonical: str | None) -> None:
    known = calling.names(PROGRAM)
    assert calling.call(text, known) == canonical
    assert canonical is None or calling.call(canonical, known) == canonical


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100", "100"), ("-1_000i64", "-1000"), ('"a\\"b"', '"a\\"b"'), ("vec![1,2]", "[1, 2]"), ('Ok("x".to_string())', 'Ok("x")'),
        ("Some( (1,2.5) )", "Some((1, 2.5))"), ("(1,)", "(1,)"), ("Slip{a:1,b:None}", "Slip { a: 1, b: None }"), ("()", "()"),
        ('{"a":1}', '{"a": 1}'), ('String::from("x")', '"x"'), ("'c'", "'c'"), ("Err(Bad)", "Err(Bad)"), ("true", "true"),
        ("about a hundred", None), ("1 + 1", None), ("f(1)", None), ("Ok 5", None), ("", None), ("1, 2", None), ("an error", None),
    ],
)  # fmt: skip
def test_values_are_written_as_debug_shows_them(text: str, value: str | None) -> None:
    written = calling.test("T1", "top(1)", text, calling.names(PROGRAM))
    assert (written is None) if value is None else (f", {calling._quoted(value)});" in (written or ""))


def test_what_a_probe_saw_becomes_an_expected_cell() -> None:
    assert calling.seen('seen value Err("no")') == 'Err("no")'
    assert calling.seen('seen panic "negative: -5"') == 'raises panic "negative: -5"'
    assert calling.seen('seen panic "attempt to add with overflow"') == "raises panic"
    assert calling.seen('seen panic "not yet implemented"') is None and calling.seen("seen nothing") is None
    assert calling.seen("seen value <opaque handle 0x7f>") is None
    test = calling.test("T2", "top(1)", 'panics with the text "no"', calling.names(PROGRAM)) or ""
    assert "use shop::top;" in test and 'assert_eq!(text, "no");' in test and "fn test_t2_top()" in test


def program(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)


def rust_at(root: Path, version: str) -> None:
    """A toolchain that only tells of itself."""
    program(root / "bin/rustc", f'if [ "$1" = --print ]; then echo {root}; else echo "rustc {version} (x 2024-01-01)"; fi')
    program(root / "bin/cargo", f"echo 'cargo {version} (x)'")


def test_a_shim_is_seen_through_and_a_stable_release_goes_before_a_nightly_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_HOMES", ("~/.cargo/bin", "~/.rustup/toolchains/*/bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/shims")
    homes = tmp_path / ".rustup/toolchains"
    for version in ("1.71.0", "1.9.0", "1.99.0-nightly"):
        rust_at(homes / version, version)
    for name in ("rustc", "cargo"):
        program(tmp_path / "shims" / name, f'exec {homes}/1.9.0/bin/{name} "$@"')
    found = finding.find()
    assert found is not None and (found.sysroot, found.cargo, found.version) == (homes / "1.9.0", homes / "1.9.0/bin/cargo", "1.9.0")
    program(tmp_path / "shims/rustc", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/none:{tmp_path}/shims")
    found = finding.find()
    assert found is not None and found.rustc == homes / "1.71.0/bin/rustc"
    (homes / "1.71.0/bin/cargo").unlink()
    monkeypatch.setenv("PATH", f"{tmp_path}/none")
    found = finding.find()
    assert found is not None and found.version == "1.9.0"


def test_a_toolchain_outside_of_usr_is_bound_and_one_inside_is_there() -> None:
    home = Path("/opt/rust")
    rust = Rust(home, home / "bin/cargo", home / "bin/rustc", "1.80.1", "1.80.0")
    assert (
        rust.inside("rustc") == "/nightmill/rust/bin/rustc" and rust.bind["/nightmill/rust/lib"] == home / "lib" and rust.numbers == (1, 80)
    )
    system = Rust(Path("/usr"), Path("/usr/bin/cargo"), Path("/usr/bin/rustc"), "1.63.0", "1.65.0")
    assert system.inside("cargo") == "/usr/bin/cargo" and system.bind == {}
    assert str(rust) == "rustc 1.80.1 (/opt/rust/bin/rustc), cargo 1.80.0 (/opt/rust/bin/cargo)"
    from nightmill.errors import ConfigError

    for rust, why in ((Rust(home, home, home, "1.56.1", "1"), "too old"), (Rust(home, home, home, "1.80.0", "1", linker=False), "linker")):
        with pytest.raises(ConfigError, match=why):
            RustPack(lambda rust=rust: rust).require()
