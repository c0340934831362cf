"""Rust trees that try, on purpose or by sloppiness, to look better than they are; tests of every kind; and what does not compile."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nightmill.errors import ConfigError
from nightmill.gate import languages
from nightmill.gate.languages.rust import RustPack
from nightmill.gate.manner import Manner, twice
from nightmill.gate.quality import QualityGate
from nightmill.gate.records import StepRecord
from sandbox_help import sandbox
from test_packs import LIMITS, judging, needed, tree

pytestmark = pytest.mark.slow
CARGO = {"Cargo.toml": b'[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n'}


@pytest.fixture(scope="module")
def gate() -> QualityGate:
    return QualityGate(needed("rust"), sandbox(), LIMITS)


def crate(modules: Mapping[str, str]) -> dict[str, bytes]:
    """A library with these modules."""
    files = {f"src/{name}.rs": text.encode() for name, text in modules.items()}
    return CARGO | files | {"src/lib.rs": "".join(f"pub mod {name};\n" for name in modules).encode()}


def of_all(gate: QualityGate, modules: Mapping[str, str], body: str, **more: str) -> dict[str, list[tuple[str, str]]]:
    """Name of a module → (outcome, exception) of what came of the file that tests it; every test has a process of its own."""
    tests = {f"acceptance/test_{n}.rs": f"use app::{n}::*;\n{more.get(n, body)}".encode() for n in modules}
    return by_file(gate.test(crate(modules), tests))


def by_file(step: StepRecord) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for test in step.tests:
        name = test.id.partition("::")[0].removeprefix("acceptance/test_").removesuffix(".rs")
        found.setdefault(name, []).append((test.outcome, test.exception))
    return found


SUMMARY = '"test test_t1_a ... ok\\n\\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s\\n\\n"'
TWO = "#[test]\nfn test_t1_a() { assert_eq!(f(1), 1); }\n#[test]\nfn test_t2_b() { assert_eq!(f(2), 2); }\n"
EVERY_PIPE = """
fn each(text: &str) {
    for n in 0..64 {
        if let Ok(mut file) = std::fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{n}")) {
            file.write_all(text.as_bytes()).ok();
        }
    }
}
"""
NOT_GREEN = {
    "exit_in_a_test": "pub fn f(_: i32) -> i32 { std::process::exit(0) }",
    "exit_from_a_thread": """
pub fn f(_: i32) -> i32 {
    std::thread::spawn(|| std::process::exit(0));
    loop { std::thread::sleep(std::time::Duration::from_millis(1)); }
}""",
    "printed_summary": f"pub fn f(_: i32) -> i32 {{ print!({SUMMARY}); std::process::exit(0) }}",
    "written_summary": f"""
use std::io::Write;
pub fn f(_: i32) -> i32 {{
    std::fs::OpenOptions::new().write(true).open("/proc/self/fd/1").unwrap().write_all({SUMMARY}.as_bytes()).unwrap();
    std::process::exit(0)
}}""",
    "guessed_word": f"""
use std::io::Write;
{EVERY_PIPE}
pub fn f(_: i32) -> i32 {{ each("0123456789abcdef0123456789abcdef 0 . 0\\n"); print!({SUMMARY}); std::process::exit(0) }}""",
    "stolen_word": f"""
use std::io::{{Read, Write}};
{EVERY_PIPE}
pub fn f(_: i32) -> i32 {{
    std::thread::spawn(|| loop {{ std::panic::catch_unwind(|| panic!("tell me")).unwrap_err(); }});
    for n in 3..64 {{
        if let Ok(mut file) = std::fs::File::open(format!("/proc/self/fd/{{n}}")) {{
            let mut data = [0; 32];
            if !file.metadata().unwrap().file_type().is_file() && file.read(&mut data).is_ok() {{
                each(&format!("{{}} 0 . 0\\n", String::from_utf8_lossy(&data)));
            }}
        }}
    }}
    print!({SUMMARY});
    std::process::exit(0)
}}""",
    "own_hook": "pub fn f(_: i32) -> i32 { std::panic::set_hook(Box::new(|_| std::process::exit(0))); 7 }",
    "late_exit": f"""
struct Late;
impl Drop for Late {{ fn drop(&mut self) {{ print!({SUMMARY}); std::process::exit(0) }} }}
thread_local! {{ static LATE: Late = const {{ Late }}; }}
pub fn f(_: i32) -> i32 {{ LATE.with(|_| 7) }}""",
    "other_panic": f"""
struct Late;
impl Drop for Late {{ fn drop(&mut self) {{ print!({SUMMARY}); std::process::exit(0) }} }}
thread_local! {{ static LATE: Late = const {{ Late }}; }}
pub fn f(_: i32) -> i32 {{ LATE.with(|_| ()); panic!("another") }}""",
    "killed": """
pub fn f(_: i32) -> i32 {
    std::process::Command::new("/bin/kill").args(["-9", &std::process::id().to_string()]).status().unwrap();
    loop {}
}""",
    "aborted": "pub fn f(_: i32) -> i32 { std::process::abort() }",
    "deep": "pub fn f(x: i32) -> i32 { if x == i32::MAX { x } else { f(x + 1) + f(x + 1) } }",
    "rewritten": """
pub fn f(x: i32) -> i32 {
    for folder in ["acceptance", ".nightmill/target/debug/deps"] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            std::fs::write(entry.path(), "#!/bin/sh\\necho test_t1_a: test\\n").ok();
            std::fs::remove_file(entry.path()).ok();
        }
    }
    -x
}""",
    "unfinished": "pub fn f(_: i32) -> i32 { todo!() }",
    "overflow": "pub fn f(x: i32) -> i32 { i32::MAX + x }",
}
OWN = {
    "other_panic": '#[test]\n#[should_panic(expected = "one \\"reason\\"")]\nfn test_t1_a() { f(1); }\n',
}


def test_no_way_of_not_passing_looks_like_passing(gate: QualityGate) -> None:
    found = of_all(gate, NOT_GREEN, TWO, **OWN)
    assert set(found) == set(NOT_GREEN)
    green = [name for name, outcomes in found.items() if any(outcome == "passed" for outcome, _ in outcomes)]
    assert green == [] and not {exception for outcomes in found.values() for _, exception in outcomes} & {"ImportError", "SyntaxError"}
    assert found["deep"] == [("error", "StackOverflow")] * 2 and found["unfinished"] == [("failed", "NotImplementedError")] * 2
    assert found["exit_in_a_test"] == found["guessed_word"] == [("error", "Ended")] * 2 and found["overflow"] == [("failed", "Panic")] * 2


@pytest.mark.parametrize(
    "deed",
    [
        'std::fs::write("/build/.nightmill/report.jsonl", "x\\n").unwrap();',
        'std::fs::remove_file("/build/.nightmill/report.jsonl").unwrap();',
        'std::process::Command::new("/bin/sh").args(["-c", "kill -9 $PPID; kill -9 $(ps -o ppid= $PPID)"]).status().ok();',
    ],
)
def test_who_touches_the_runner_proves_nothing(gate: QualityGate, deed: str) -> None:
    step = gate.test(crate({"a": f"pub fn f(x: i32) -> i32 {{ {deed} x }}"}), {"acceptance/test_a.rs": f"use app::a::*;\n{TWO}".encode()})
    assert step.status in ("incomplete", "failed"), step


FINE = {
    "left_child": 'pub fn f(x: i32) -> i32 { std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap(); x }',
    "left_thread": "pub fn f(x: i32) -> i32 { std::thread::spawn(|| loop { std::thread::yield_now() }); x }",
    "loud": 'pub fn f(x: i32) -> i32 { for _ in 0..2000 { println!("{}", "x".repeat(100)); eprint!("\\u{1b}[31m"); } x }',
    "caught": 'pub fn f(x: i32) -> i32 { std::panic::catch_unwind(|| panic!("inside")).unwrap_err(); x }',
    "slow": "pub fn f(x: i32) -> i32 { std::thread::sleep(std::time::Duration::from_millis(300)); x }",
    "reads": 'pub fn f(x: i32) -> i32 { let mut s = String::new(); std::io::stdin().read_line(&mut s).unwrap(); assert_eq!(s, ""); x }',
}


def test_sloppy_but_right_programs_are_green(gate: QualityGate) -> None:
    assert of_all(gate, FINE, TWO) == {name: [("passed", "")] * 2 for name in FINE}


GOOD = "pub fn f(x: i32) -> i32 { x }"
OUTCOMES = {
    "ignored": ('#[test]\n#[ignore = "later"]\nfn test_t1_a() {}\n', [("skipped", "")]),
    "should_panic": ('#[test]\n#[should_panic(expected = "two")]\nfn test_t1_a() { if f(2) == 2 { panic!("one two") } }', [("passed", "")]),
    "no_panic": ("#[test] #[should_panic] fn test_t1_a() { f(1); }", [("failed", "Failed")]),
    "wrong_panic": ('#[test] #[should_panic(expected = "three")] fn test_t1_a() { panic!("one two") }', [("failed", "AssertionError")]),
    "returned": ('#[test] fn test_t1_a() -> Result<(), String> { Err(format!("no {}", f(1))) }', [("failed", "Failed")]),
    "returned_well": ("#[test] fn test_t1_a() -> Result<(), String> { f(1); Ok(()) }", [("passed", "")]),
    "custom_text": ('#[test]\nfn test_t1_a() {\n    assert!(\n        f(1) == 2,\n  "it is {}", f(1));\n}', [("failed", "AssertionError")]),
    "unwrapped": ('#[test]\nfn test_t1_a() {\n    let x: Result<i32, i32> = Err(f(1));\n    x.unwrap();\n}', [("failed", "Failed")]),
    "in_modules": (
        "mod one { #[test] fn test_t1_a() {} } mod two { #[test] fn test_t1_a() { assert_eq!(super::f(1), 2) } }",
        [("passed", ""), ("failed", "AssertionError")]),
    "by_macro": (
        "macro_rules! t { ($n:ident, $e:expr) => { #[test] fn $n() { assert_eq!(f(1), $e) } } } t!(test_t1_a, 1); t!(test_t2_b, 2);",
        [("passed", ""), ("failed", "AssertionError")]),
    "inner_attribute": ("#[test] fn test_t1_a() { #![allow(unused)] let x = 1; f(1); }", [("passed", "")]),
    "braces_in_text": (
        "#[test] fn test_t1_a() { assert_eq!('{'.to_string(), r#\"{\"#); /* } /* { */ */ let _: &'static str = \"}\"; }",
        [("passed", "")]),
    "with_helper": ("fn helper() -> i32 { f(1) }\n// a test\n#[test]\nfn test_t1_a() { assert_eq!(helper(), 1); }", [("passed", "")]),
}  # fmt: skip


def test_every_kind_of_test_counts_for_what_it_is(gate: QualityGate) -> None:
    found = of_all(gate, dict.fromkeys(OUTCOMES, GOOD), "", **{name: body for name, (body, _) in OUTCOMES.items()})
    assert {n: o for n, o in found.items() if o != OUTCOMES[n][1]} == {}
    assert set(found) == set(OUTCOMES)


def test_what_does_not_compile_takes_no_other_test_along(gate: QualityGate) -> None:
    mixed = (
        TWO + "#[test]\nfn test_t3_c() {\n    use app::a::missing;\n    missing(1);\n}\n"
        '#[test]\nfn test_t4_d() {\n    let x: i32 = f("one");\n}\n'
    )
    tests = {
        "acceptance/test_a.rs": f"use app::a::*;\n{mixed}".encode(),
        "acceptance/test_b.rs": b"use app::b;\n#[test]\nfn test_t5_e() {}\n",
    }
    tests |= {
        "acceptance/test_c.rs": f"use app::a::*;\n{TWO}".encode(),
        "acceptance/test_d.rs": b"#[test]\nfn test_t6_f() { let x = 1 }\nfn {\n",
    }
    step = gate.test(crate({"a": GOOD}), tests)
    seen = {t.id.removeprefix("acceptance/"): (t.outcome, t.exception, t.crash_line) for t in step.tests}
    assert seen == {
        "test_a.rs::test_t1_a": ("passed", "", 0),
        "test_a.rs::test_t2_b": ("passed", "", 0),
        "test_a.rs::test_t3_c": ("error", "ImportError", 8),
        "test_a.rs::test_t4_d": ("error", "ImportError", 13),
        "test_b.rs": ("error", "ImportError", 1),
        "test_c.rs::test_t1_a": ("passed", "", 0),
        "test_c.rs::test_t2_b": ("passed", "", 0),
        "test_d.rs": ("error", "SyntaxError", 3),
    }, step.tests
    assert step.status == "failed"


def test_a_program_that_does_not_compile_has_no_tests_and_says_where(gate: QualityGate) -> None:
    step = gate.test(crate({"a": 'pub fn f(x: i32) -> i32 { "x" }'}), {"acceptance/test_a.rs": f"use app::a::*;\n{TWO}".encode()})
    assert step.status == "failed" and [(d.file, d.line, d.code) for d in step.diagnostics] == [("src/a.rs", 1, "E0308")]
    assert {t.outcome for t in step.tests} == {"error"}


BLOCKS = {
    "unused": "pub fn g() -> Result<i32, String> { Ok(1) }\npub fn f() {\n    g();\n}",
    "unreachable": "pub fn f() -> i32 {\n    return 1;\n    2\n}",
    "constant": "pub fn f(x: u8) -> bool {\n\n    x >= 0\n}",
    "endless": "pub fn f(x: u8) -> u8 {\n\n    f(x)\n}",
}


def test_warnings_that_tell_of_mistakes_are_errors_and_others_are_not(gate: QualityGate) -> None:
    step = gate.run(crate(BLOCKS)).steps[0]
    codes = {d.file: (d.code, d.severity) for d in step.diagnostics}
    assert step.status == "failed" and codes == {
        "src/unused.rs": ("unused_must_use", "error"),
        "src/unreachable.rs": ("unreachable_code", "error"),
        "src/constant.rs": ("unused_comparisons", "error"),
        "src/endless.rs": ("unconditional_recursion", "error"),
    }
    denied = "#![deny(warnings, missing_docs)]\n#![forbid(unsafe_code)]\npub fn f(x: i32) -> i32 { todo!() }\n"
    assert gate.run(CARGO | {"src/lib.rs": denied.encode()}).steps[0].status == "passed"
    always = "#![forbid(unsafe_code)]\npub fn f() -> u8 { [1][2] }\npub unsafe fn g() {}\npub const X: u8 = 256;\n"
    step = gate.run(CARGO | {"src/lib.rs": always.encode()}).steps[0]
    assert {(d.line, d.code, d.severity) for d in step.diagnostics} == {
        (2, "unconditional_panic", "error"),
        (3, "unsafe_code", "error"),
        (4, "overflowing_literals", "error"),
    }
    mild = gate.run(crate({"a": "use std::fmt;\npub fn f(x: i32) -> i32 { let mut y = 1; 2 }"})).steps[0]
    assert mild.status == "passed" and {d.severity for d in mild.diagnostics} == {"warning"} and len(mild.diagnostics) >= 3


def test_a_program_without_a_library_is_judged_by_its_public_names(gate: QualityGate) -> None:
    main = b'pub fn f(x: i32) -> i32 { x }\nfn main() { println!("{}", f(1)); }\n'
    tests = {"test_a.rs": f"use app::f;\n{TWO}".encode()}
    assert gate.run(CARGO | {"src/main.rs": main}, tests).verdict == "green"
    alone = {"tool.rs": b"pub fn f(x: i32) -> i32 { x }\n"}
    assert gate.run(alone, {"test_a.rs": f"use program::f;\n{TWO}".encode()}).verdict == "green"


CLI = """use std::process::Command;
#[test]
fn test_t1_cli() {
    let done = Command::new(env!("CARGO_BIN_EXE_app")).arg("x").output().unwrap();
    assert_eq!((done.status.code(), String::from_utf8(done.stdout).unwrap()), (Some(3), "x".to_string()));
}
"""


def test_a_program_can_be_tested_from_outside(gate: QualityGate) -> None:
    main = 'fn main() {\n    print!("{}", std::env::args().nth(1).unwrap());\n    std::process::exit(3);\n}\n'
    assert gate.run(CARGO | {"src/main.rs": main.encode()}, {"test_a.rs": CLI.encode()}).verdict == "green"
    assert gate.run(CARGO | {"src/main.rs": main.replace("3", "4").encode()}, {"test_a.rs": CLI.encode()}).verdict == "red"


def test_an_old_edition_is_judged_by_its_own_rules(gate: QualityGate) -> None:
    tests = b"extern crate my_app;\nmod m { #[test] fn test_t1_a() { assert_eq!(::my_app::f(1), 1); } }\n"
    tree = {"Cargo.toml": b'[package]\nname = "my-app"\nversion = "0.1.0"\n', "src/lib.rs": b"pub fn f(async: i32) -> i32 { async }\n"}
    assert gate.run(tree, {"test_a.rs": tests}).verdict == "green"


def test_a_program_that_ends_before_its_tests_are_known_proves_nothing(gate: QualityGate) -> None:
    early = 'extern "C" fn early() { std::process::exit(0) }\n'
    early += '#[used]\n#[link_section = ".init_array"]\nstatic EARLY: extern "C" fn() = early;\n'
    step = gate.test(crate({"a": GOOD + early}), {"acceptance/test_a.rs": f"use app::a::*;\n{TWO}".encode()})
    assert step.status == "incomplete" and not step.tests


def test_the_trees_own_ways_to_steer_cargo_have_no_effect(gate: QualityGate) -> None:
    hostile = {
        "Cargo.toml": CARGO["Cargo.toml"]
        + b'build = "make.rs"\n[lib]\nproc-macro = true\n[profile.dev]\npanic = "abort"\noverflow-checks = false\n',
        "build.rs": b"fn main() { panic!() }",
        "make.rs": b"fn main() { panic!() }",
        ".cargo/config.toml": b'[build]\nrustc-wrapper = "/bin/true"\n',
        "rust-toolchain.toml": b'[toolchain]\nchannel = "1.0"\n',
        "target/debug/libapp.rlib": b"stale",
        "Cargo.lock": b"nonsense",
        "tests/own.rs": b"compile_error!();",
    }
    sums = '#[test]\n#[should_panic(expected = "overflow")]\nfn test_t1_a() { app::a::f(i32::MAX); }\n'
    good = crate({"a": "pub fn f(x: i32) -> i32 { x + 1 }"}) | hostile
    assert gate.run(good, {"test_a.rs": sums.encode()}).verdict == "green"


def test_a_chosen_test_runs_alone_and_the_first_failure_can_end_the_run(gate: QualityGate) -> None:
    tests = {"acceptance/test_a.rs": f"use app::a::*;\n{TWO}".encode(), "acceptance/test_b.rs": f"use app::a::*;\n{TWO}".encode()}
    step = gate.test(crate({"a": "pub fn f(_: i32) -> i32 { 2 }"}), tests, Manner(only=("acceptance/test_b.rs::test_t2_b",)))
    assert (step.status, [t.id for t in step.tests]) == ("passed", ["acceptance/test_b.rs::test_t2_b"])
    first = gate.test(crate({"a": "pub fn f(_: i32) -> i32 { 2 }"}), tests, Manner(first=True))
    assert (first.status, [t.id for t in first.tests]) == ("failed", ["acceptance/test_a.rs::test_t1_a"])


def test_a_test_that_depends_on_its_surroundings_is_flaky(gate: QualityGate) -> None:
    code = 'pub fn f(x: i32) -> i32 { if std::env::var("TZ").as_deref() == Ok("UTC") { x } else { -x } }'
    tests = {"acceptance/test_a.rs": f"use app::a::*;\n{TWO}".encode()}
    step = gate.test(crate({"a": code}), tests, twice(tests))
    assert step.status == "failed" and all(t.flaky for t in step.tests) and step.again is not None


def test_the_compiler_is_stopped_by_the_limit_of_time_and_the_step_is_incomplete() -> None:
    pack = needed("rust")
    from dataclasses import replace

    step = QualityGate(pack, sandbox(), replace(LIMITS, wall_s=0.05)).run(tree(pack, "good"), judging(pack)).steps[0]
    assert (step.status, step.killed) == ("incomplete", "wall")


def test_without_cargo_nothing_is_green_and_every_step_says_what_to_install() -> None:
    pack = RustPack(lambda: None)
    record = QualityGate(pack, sandbox(), LIMITS).run(tree(pack, "good"), judging(pack))
    assert record.verdict == "not_run" and "install Rust" in record.reason
    assert [s.status for s in record.steps] == ["not_run"] * 3
    with pytest.raises(ConfigError, match="install Rust"):
        pack.require()
    assert languages.detect({"a.py": b""})[0].name == "python"
