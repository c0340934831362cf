"""JavaScript trees that try, on purpose or by sloppiness, to look better than they are: none comes out green."""

from __future__ import annotations

import pytest

from nightmill.gate.manner import Manner
from nightmill.gate.quality import QualityGate
from nightmill.gate.records import StepRecord
from sandbox_help import sandbox
from test_packs import LIMITS, needed

PACKAGE = {"package.json": b'{"type": "module"}'}
HEAD = 'import { describe, test } from "node:test";\nimport assert from "node:assert/strict";\n'


@pytest.fixture(scope="module")
def gate() -> QualityGate:
    return QualityGate(needed("javascript"), sandbox(), LIMITS)


def of_all(gate: QualityGate, modules: dict[str, str], body: str, **more: str) -> dict[str, list[tuple[str, str]]]:
    """Name of a module → (outcome, exception) of what came of the file that tests it; every file has a process of its own."""
    tree = PACKAGE | {f"{name}.js": text.encode() for name, text in modules.items()}
    tests = {f"acceptance/test_{n}.mjs": f'{HEAD}import * as app from "../{n}.js";\n{more.get(n, body)}'.encode() for n in modules}
    return by_file(gate.test(tree, tests))


def by_file(step: StepRecord) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for test in step.tests:
        name = test.id.partition("::")[0].removeprefix("acceptance/test_").removesuffix(".mjs")
        found.setdefault(name, []).append((test.outcome, test.exception))
    return found


TWO = 'test("test_t1_a", () => { assert.equal(app.f(1), 1); });\ntest("test_t2_b", () => { assert.equal(app.f(2), 2); });\n'
NOT_GREEN = {
    "exit_at_import": "process.exit(0); export const f = 1;",
    "exit_in_a_test": "export function f(x) { process.exit(0); }",
    "exit_after_a_failure": "export function f(x) { if (x === 2) process.exit(0); return -x; }",
    "exit_later": "setTimeout(() => process.exit(0), 1); export const f = (x) => new Promise(() => {});",
    "printed_summary": 'console.log("TAP version 13\\nok 1 - test_t1_a\\n# pass 2\\n# fail 0"); export const f = (x) => -x;',
    "replaced_assert": 'import assert from "node:assert"; assert.strict.equal = () => {}; export const f = (x) => -x;',
    "forged_line": 'import { writeSync } from "node:fs"; writeSync(3, "x {}\\n"); export const f = (x) => x;',
    "closed_files": """
      import { closeSync } from "node:fs";
      for (let i = 3; i < 40; i++) try { closeSync(i) } catch {}
      export const f = (x) => x;""",
    "own_reporter": """
      const { default: report } = await import("/nightmill/file.mjs");
      for await (const _ of report((async function* () { yield { type: "test:pass", data: { name: "test_t1_a", nesting: 0 } } })()));
      export const f = (x) => -x;""",
    "own_runner": 'import("/nightmill/run.mjs").catch(() => {}); export const f = (x) => -x;',
    "rewritten_test": """
      import { writeFileSync } from "node:fs";
      writeFileSync("acceptance/test_rewritten_test.mjs", "");
      export const f = (x) => -x;""",
    "other_tests": 'import { test } from "node:test"; test("test_t1_a", () => {}); export const f = (x) => -x;',
    "thrown_trap": "export function f() { throw { get name() { throw 1 }, get message() { process.exit(0) } } }",
    "late_rejection": 'Promise.reject(new Error("late")); export const f = (x) => x;',
    "killed": 'export function f() { process.kill(process.pid, "SIGKILL"); }',
    "never_settles": "export const f = async () => { await new Promise(() => {}) };",
    "debugger": "export function f(x) { debugger; return -x; }",
    "deep": "export function f(x) { return f(x) + 1; }",
}


def test_no_way_of_not_passing_looks_like_passing(gate: QualityGate) -> None:
    found = of_all(gate, NOT_GREEN, TWO)
    assert set(found) == set(NOT_GREEN)
    green = [name for name, outcomes in found.items() if all(outcome == "passed" for outcome, _ in outcomes)]
    assert green == []
    assert found["forged_line"] == [("error", "Forged")] and found["replaced_assert"][0][1] == "TypeError"
    assert found["exit_after_a_failure"] == [("failed", "AssertionError"), ("error", "Ended")]
    assert found["deep"] == [("failed", "RangeError")] * 2


GOOD = "export const f = (x) => x;"
FINE = {
    "left_open": "setInterval(() => {}, 1000); export const f = (x) => x;",
    "loud": 'export function f(x) { process.stdout.write("x".repeat(100000)); process.stderr.write(Buffer.from([255, 0, 27])); return x; }',
    "common": GOOD,
    "slow": "export const f = (x) => x; await new Promise((resolve) => setTimeout(resolve, 300));",
}


@pytest.mark.slow
def test_sloppy_but_right_programs_are_green(gate: QualityGate) -> None:
    found = of_all(gate, FINE, TWO)
    assert found == {name: [("passed", "")] * 2 for name in FINE}


def test_a_report_of_ones_own_proves_nothing(gate: QualityGate) -> None:
    code = 'import { writeFileSync } from "node:fs"; writeFileSync("/build/.nightmill/report.jsonl", "x\\n"); export const f = (x) => x;'
    step = gate.test(
        PACKAGE | {"app.js": code.encode()}, {"acceptance/test_a.mjs": f'{HEAD}import * as app from "../app.js";\n{TWO}'.encode()}
    )
    assert step.status == "incomplete" and "tampered" in step.detail


OUTCOMES = {
    "skip": ('test.skip("test_t1_a", () => {}); test("test_t2_b", (t) => t.skip("no"));', ["skipped", "skipped"]),
    "todo": ('test.todo("test_t1_a"); test("test_t2_b", { todo: true }, () => { assert.ok(false); });', ["xpassed", "xfailed"]),
    "suite": ('describe("g", () => { test("test_t1_a", () => {}); test("test_t2_b", () => { assert(0); }); });', ["passed", "failed"]),
    "skipped_suite": ('describe.skip("g", () => { test("test_t1_a", () => {}); });', ["skipped"]),
    "broken_suite": ('describe("g", () => { throw new Error("no"); });', ["failed"]),
    "parts": ('test("test_t1_a", async (t) => { await t.test("x", () => { assert.ok(false); }); });', ["failed"]),
    "skipped_part": ('test("test_t1_a", async (t) => { await t.test("x", { skip: true }, () => {}); });', ["skipped"]),
    "twice": ('for (const n of [1, 0]) test(`test_t1_a[${n}]`, () => { assert.equal(app.f(n), 1); });', ["passed", "failed"]),
    "same_name": ('test("test_t1_a", () => {}); test("test_t1_a", () => { assert.ok(false); });', ["passed", "failed"]),
    "hook": ('import { before } from "node:test"; before(() => { throw new Error("no"); }); test("test_t1_a", () => {});', ["error"]),
    "callback": ('test("test_t1_a", (t, done) => { setTimeout(() => done(new Error("x")), 1); });', ["failed"]),
    "strings": ('test("test_t1_a", () => { throw "x"; }); test("test_t2_b", () => Promise.reject(undefined));', ["failed", "failed"]),
}  # fmt: skip


def test_every_kind_of_test_counts_for_what_it_is(gate: QualityGate) -> None:
    found = of_all(gate, dict.fromkeys(OUTCOMES, GOOD), "", **{name: body for name, (body, _) in OUTCOMES.items()})
    seen = {name: [outcome for outcome, _ in found[name]] for name in OUTCOMES}
    wanted = {name: outcomes for name, (_, outcomes) in OUTCOMES.items()}
    assert {n: o for n, o in seen.items() if o != wanted[n]} == {}


def test_only_leaves_no_test_out_unseen(gate: QualityGate) -> None:
    body = 'test.only("test_t1_a", () => {}); test("test_t2_b", () => { assert.ok(false); });'
    step = gate.test(PACKAGE, {"acceptance/test_a.mjs": (HEAD + body).encode()})
    assert step.status in ("failed", "incomplete")


def test_a_test_that_depends_on_the_time_zone_is_flaky(gate: QualityGate) -> None:
    body = 'test("test_t1_a", () => { assert.equal(new Date(0).getHours(), 0); });'
    step = gate.test(PACKAGE, {"acceptance/test_a.mjs": (HEAD + body).encode()}, Manner(seed=1))
    assert step.status == "failed" and step.tests[0].flaky


def test_some_tests_can_be_run_without_the_others(gate: QualityGate) -> None:
    tests = {f"acceptance/test_{n}.mjs": f"{HEAD}{TWO}".replace("app.f(1)", "1").replace("app.f(2)", "3").encode() for n in "ab"}
    step = gate.test(PACKAGE, tests, Manner(only=("acceptance/test_b.mjs::test_t1_a",)))
    assert [t.id for t in step.tests] == ["acceptance/test_b.mjs::test_t1_a"]


def test_commonjs_programs_are_asked_through_their_exports(gate: QualityGate) -> None:
    tree = {"app.js": b"function f(x) { return x; }\nmodule.exports = { f };\n"}
    step = gate.test(tree, {"acceptance/test_a.mjs": f'{HEAD}import * as app from "../app.js";\n{TWO}'.encode()})
    assert step.status == "passed", step.detail
