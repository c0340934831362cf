"""Every language pack on miniature programs: the same questions, the same answers. A new language is a folder in fixtures/packs."""

from __future__ import annotations

import functools
import json
import os
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightmill.build.oracle import observe
from nightmill.errors import ConfigError
from nightmill.gate import languages
from nightmill.gate.languages.base import LanguagePack
from nightmill.gate.manner import PLAIN, twice
from nightmill.gate.proof import prove, row
from nightmill.gate.quality import QualityGate
from nightmill.gate.records import GateRecord
from nightmill.gate.sandbox import Limits
from nightmill.run.trees import Tree, read_tree
from sandbox_help import sandbox

PACKS = Path(__file__).parent / "fixtures" / "packs"
LIMITS = Limits(wall_s=60, memory_mb=1024, output_kb=256, disk_mb=64, file_mb=32, processes=64)


@functools.cache
def facts(name: str) -> dict[str, Any]:
    return json.loads((PACKS / name / "pack.json").read_text())


SLOW = {"javascript", "rust"}
"""Languages whose tools take a second for the smallest program."""
NAMES = [pytest.param(p.name, marks=[pytest.mark.slow] if p.name in SLOW else []) for p in sorted(PACKS.iterdir())]


@pytest.fixture(params=NAMES, scope="module")
def pack(request: pytest.FixtureRequest) -> LanguagePack:
    return needed(request.param)


def needed(name: str) -> LanguagePack:
    """The pack; where its tools are missing the test is skipped on a desk and fails where everything must be there."""
    found = languages.pack(name)
    try:
        found.require()
    except ConfigError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    return found


def tree(pack: LanguagePack, case: str) -> Tree:
    """The good program with the files of a case over it."""
    return {p: d for p, d in {**read_tree(PACKS / pack.name / "good"), **case_files(pack, case)}.items() if not p.startswith("acceptance/")}


def case_files(pack: LanguagePack, case: str) -> Tree:
    return read_tree(PACKS / pack.name / case)


def judging(pack: LanguagePack, case: str = "") -> Tree:
    own = {p.removeprefix("acceptance/"): d for p, d in case_files(pack, case).items() if p.startswith("acceptance/")} if case else {}
    return own or read_tree(PACKS / pack.name / "acceptance")


def gate(pack: LanguagePack, **limits: float) -> QualityGate:
    return QualityGate(pack, sandbox(), replace(LIMITS, **limits))


@functools.cache
def _gated(name: str, case: str, wall_s: float) -> GateRecord:
    pack = languages.pack(name)
    return gate(pack, wall_s=wall_s).run(tree(pack, case), judging(pack, case))


def gated(pack: LanguagePack, case: str, wall_s: float = 60) -> GateRecord:
    return _gated(pack.name, case, wall_s)


def outcomes(record: GateRecord) -> dict[str, str]:
    return {row(t.id): t.outcome for t in record.tests if "::" in t.id}


def test_a_good_program_is_green_and_every_row_has_its_test(pack: LanguagePack) -> None:
    record = gated(pack, "good")
    assert record.verdict == "green", record
    assert outcomes(record) == dict.fromkeys(("T1", "T2", "T3", "T4"), "passed")
    assert {t.id.split("::")[0] for t in record.tests} == {facts(pack.name)["test"]}


def test_stubs_are_seen_in_the_text_and_in_what_tests_run_into(pack: LanguagePack) -> None:
    file, names = facts(pack.name)["file"], facts(pack.name)["names"]
    assert pack.stubs(tree(pack, "stub")) == {file: tuple(names)} and pack.stubs(tree(pack, "good")) == {}
    record = gated(pack, "stub")
    assert record.verdict == "red" and record.built
    red = {row(t.id): (t.exception, t.crash_file, t.crash_function) for t in record.tests}
    assert [red[f"T{n}"] for n in (1, 2, 3)] == [("NotImplementedError", file, name) for name in names]


def test_tests_are_proved_red_on_the_stubs_and_agree_with_the_old_program(pack: LanguagePack) -> None:
    proof = prove(gate(pack), tree(pack, "stub"), judging(pack), tree(pack, "good"))
    assert (proof.vacuous, proof.broken, proof.disputed, proof.trouble) == ((), (), (), ""), proof.reasons
    assert len(proof.proven) == 4 and set(proof.agrees) == set(proof.proven) and proof.v1_ran


@pytest.mark.slow
def test_a_test_that_the_old_program_fails_is_disputed(pack: LanguagePack) -> None:
    proof = prove(gate(pack), tree(pack, "stub"), judging(pack), tree(pack, "failing"))
    assert {row(t) for t in proof.disputed} == {"T1"}


@pytest.mark.slow
def test_a_name_that_the_old_program_lacks_is_no_dispute(pack: LanguagePack) -> None:
    old = {path: data.replace(b"label", b"called") for path, data in tree(pack, "good").items()}
    proof = prove(gate(pack), tree(pack, "stub"), judging(pack), old)
    assert not proof.disputed and not proof.agrees and len(proof.proven) == 4


def test_a_syntax_error_is_red_at_its_line(pack: LanguagePack) -> None:
    record = gated(pack, "syntax")
    assert record.verdict == "red"
    (found,) = record.diagnostics
    assert (found.file, found.line) == (facts(pack.name)["file"], facts(pack.name)["syntax_line"]) and found.column > 0
    assert not record.built and not record.tests


@pytest.mark.slow
def test_the_build_step_finds_a_syntax_error_by_itself(pack: LanguagePack) -> None:
    step = gate(pack)._on_bench(tree(pack, "syntax"), {}, "build", lambda bench: [pack.build(bench)], PLAIN)[0]
    assert (step.status, [d.line for d in step.diagnostics]) == ("failed", [facts(pack.name)["syntax_line"]])


def test_a_failing_test_is_red_and_says_where(pack: LanguagePack) -> None:
    record = gated(pack, "failing")
    assert (record.verdict, outcomes(record)) == ("red", {"T1": "failed", "T2": "passed", "T3": "passed", "T4": "passed"})
    (failed,) = [t for t in record.tests if t.outcome == "failed"]
    assert (failed.exception, failed.crash_file) == ("AssertionError", facts(pack.name)["test"])
    text = case_files(pack, "acceptance")[Path(facts(pack.name)["test"]).name].decode().split("\n")
    assert "119" in text[failed.crash_line - 1] and failed.traceback


def test_a_crash_is_red_and_names_the_test(pack: LanguagePack) -> None:
    record = gated(pack, "crash")
    assert record.verdict == "red"
    assert outcomes(record)["T1"] == "passed" and outcomes(record)["T2"] == "error"


def test_skipped_tests_do_not_count_as_passed(pack: LanguagePack) -> None:
    record = gated(pack, "skipped")
    assert (record.verdict, outcomes(record)) == ("red", {"T1": "skipped", "T2": "passed"})


def test_nothing_collected_proves_nothing(pack: LanguagePack) -> None:
    record = gated(pack, "nothing")
    assert record.verdict == "incomplete" and "no tests were collected" in record.reason


@pytest.mark.slow
def test_a_hanging_test_is_red_in_time(pack: LanguagePack) -> None:
    record = gated(pack, "hang", wall_s=12)
    (hung,) = [t for t in record.tests if t.exception == "TimedOut"]
    assert (record.verdict, row(hung.id), outcomes(record)["T1"]) == ("red", "T2", "passed")


@pytest.mark.parametrize("case", ["fake_summary", "exit_at_import"])
def test_what_only_looks_like_success_is_not_green(pack: LanguagePack, case: str) -> None:
    assert gated(pack, case).verdict in ("red", "incomplete")
    assert outcomes(gated(pack, case)).get("T1") != "passed"


def test_output_that_is_no_text_changes_nothing(pack: LanguagePack) -> None:
    assert gated(pack, "not_utf8").verdict == "green"


@pytest.mark.slow
def test_a_second_run_of_good_tests_agrees(pack: LanguagePack) -> None:
    step = gate(pack).test(tree(pack, "good"), judging(pack), twice(judging(pack)))
    assert (step.status, step.again is not None, [t.flaky for t in step.tests]) == ("passed", True, [""] * 4)


def test_a_program_is_taken_apart_and_put_together_again(pack: LanguagePack) -> None:
    file, names = facts(pack.name)["file"], facts(pack.name)["names"]
    good = tree(pack, "good")[file].decode()
    text = pack.skeleton(file, good)
    assert text is not None and pack.stubs({file: text.encode()}) == {file: tuple(names)}
    assert {s.name for s in pack.symbols(file, text)} == {s.name for s in pack.symbols(file, good)} >= set(names)
    for name in names:
        text = pack.graft(text, name, textwrap.dedent(pack.function(file, good, name)))
    assert pack.stubs({file: text.encode()}) == {}
    assert gate(pack).run({**tree(pack, "good"), file: text.encode()}, judging(pack)).verdict == "green"
    with pytest.raises(ValueError, match=r"no function|does not parse"):
        pack.graft(text, names[0], "?")
    with pytest.raises(ValueError, match="still"):
        pack.graft(text, names[0], pack.function(file, tree(pack, "stub")[file].decode(), names[0]))


def test_the_old_program_tells_results_and_tests_are_written_from_them(pack: LanguagePack) -> None:
    good, asked = tree(pack, "good"), facts(pack.name)["calls"]
    calls = {pack.call(text, good): result for text, result in asked.items()}
    assert None not in calls and all(pack.call(call, good) == call for call in calls)
    assert observe(gate(pack), good, tuple(calls)).results == calls
    written = [pack.test_of(f"T{n}", call, result, good) for n, (call, result) in enumerate(calls.items(), 1)]
    assert None not in written
    made = {f"test_rows{pack.test_suffix}": (pack.test_head + "\n\n".join(filter(None, written))).encode()}
    proof = prove(gate(pack), tree(pack, "stub"), made, good)
    assert len(proof.proven) == len(proof.agrees) == len(calls), proof.reasons
    assert pack.test_of("T1", next(iter(calls)), "about a hundred", good) is None


def test_what_is_no_call_of_the_program_is_refused(pack: LanguagePack) -> None:
    good = tree(pack, "good")
    assert [text for text in facts(pack.name)["no_calls"] if pack.call(text, good)] == []
    assert pack.seen("not a probe's message") is None


def test_tests_are_counted_and_taken_out_by_name(pack: LanguagePack) -> None:
    path = facts(pack.name)["test"]
    text = judging(pack)[Path(path).name].decode()
    ids = pack.tests_in(path, text)
    assert [row(i) for i in ids] == ["T1", "T2", "T3", "T4"] and pack.is_test_file(path) and not pack.is_test_file(facts(pack.name)["file"])
    left = pack.without(text, {ids[0].partition("::")[2], ids[3].partition("::")[2]})
    assert pack.tests_in(path, left) == ids[1:3]
    assert pack.count_tests({path: text.encode(), facts(pack.name)["file"]: b""}) == 4
    assert gate(pack).run(tree(pack, "failing"), {Path(path).name: left.encode()}).verdict == "green"


def test_paths_that_steer_tests_or_hold_no_sources_are_forbidden(pack: LanguagePack) -> None:
    assert [path for path in facts(pack.name)["forbidden"] if not pack.forbidden(path)] == []
    assert [path for path in facts(pack.name)["free"] if pack.forbidden(path)] == []


def test_the_pack_is_found_by_its_files_and_names_its_tool(pack: LanguagePack) -> None:
    assert [p.name for p in languages.detect(tree(pack, "good"))] == [pack.name]
    assert any(c.isdigit() for c in pack.toolchain)
    assert 3 <= len(pack.prompt_rules) <= 8 and pack.schema_rules and pack.test_rules and pack.stub in pack.skeleton("x", _source(pack))  # type: ignore[operator]


def _source(pack: LanguagePack) -> str:
    return tree(pack, "good")[facts(pack.name)["file"]].decode()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(text=st.text(max_size=80) | st.text(alphabet="def class()=>{}[]`$'\"/\\*.,;:#@!?&|+-\n constfuigx0123", max_size=80))
def test_no_text_makes_a_pack_raise(pack: LanguagePack, text: str) -> None:
    file, test = facts(pack.name)["file"], facts(pack.name)["test"]
    pack.symbols(file, text), pack.tests_in(test, text), pack.skeleton(file, text), pack.function(file, text, "f")
    pack.stubs({file: text.encode("utf-8", "surrogatepass")})
    pack.call(text, tree(pack, "good")), pack.seen(text)
    pack.test_of("T1", next(iter(facts(pack.name)["calls"])), text, tree(pack, "good"))


def test_bytes_that_are_no_text_are_located_before_any_command(pack: LanguagePack) -> None:
    file = facts(pack.name)["file"]
    (found,) = pack.precheck({file: b"\n\xff\n"})
    assert (found.file, found.severity) == (file, "error") and found.line in (1, 2)
