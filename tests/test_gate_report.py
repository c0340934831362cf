"""Reading the report of the test runner: what it proves when whole, and that nothing done to it turns into green."""

from __future__ import annotations

import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.gate.languages._python_report import read_report, step_of_tests
from nightmill.gate.languages.base import head_tail, plain
from nightmill.gate.limits import Ran
from nightmill.gate.records import StepRecord

KEY = b"secret"
A, B = "acceptance/test_x.py::test_t1_a", "acceptance/test_x.py::test_t2_b[1]"
STARTED = {"event": "started"}
COLLECTED = {"event": "collected", "ids": [A, B]}
PASS_A = {"event": "result", "id": A, "outcome": "passed"}
PASS_B = {"event": "result", "id": B, "outcome": "passed"}
FINISHED = {"event": "finished", "exit": 0}
WHOLE = [STARTED, COLLECTED, {"event": "start", "id": A}, PASS_A, {"event": "start", "id": B}, PASS_B, FINISHED]


def written(events: list[Any], key: bytes = KEY) -> bytes:
    """As the plugin writes them."""
    mac, lines = hmac.new(key, digestmod="sha256"), b""
    for event in events:
        text = json.dumps(event).encode()
        mac.update(text + b"\n")
        lines += mac.hexdigest().encode() + b" " + text + b"\n"
    return lines


def judged(data: bytes | None, exit: int = 0) -> StepRecord:
    return step_of_tests(Ran(exit, None, None, b"", 1.0, False), read_report(data, KEY, [A, B.split("[")[0]]), ("pytest",))


def test_a_whole_report_of_passing_tests_passes() -> None:
    assert judged(written(WHOLE)).status == "passed"


@given(st.data())
def test_no_change_of_the_bytes_passes(data: st.DataObject) -> None:
    whole = written(WHOLE)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 200)))
    new = data.draw(st.binary(max_size=20) | st.sampled_from(whole.splitlines(keepends=True)))
    changed = whole[:start] + new + whole[end:]
    if changed != whole:
        assert judged(changed).status == "incomplete"


@given(st.lists(st.sampled_from([*WHOLE, COLLECTED, PASS_A, {"event": "result", "id": "other", "outcome": "passed"}]), max_size=9))
def test_even_signed_only_each_test_collected_once_with_one_result_passes(events: list[dict[str, Any]]) -> None:
    kinds = [e for e in events if e["event"] != "start"]
    honest = (
        STARTED in kinds
        and FINISHED in kinds
        and kinds.count(COLLECTED) == 1
        and sorted(e["id"] for e in kinds if e["event"] == "result") == [A, B]
    )
    assert (judged(written(events)).status == "passed") == honest


KEYS = st.sampled_from(["event", "id", "ids", "outcome", "exit", "line", "message"])
NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=8,
)


@given(NONSENSE)
def test_signed_nonsense_is_incomplete_and_raises_nothing(event: object) -> None:
    assert judged(written([STARTED, event])).status == "incomplete"
    for kind in ("collected", "result", "broken", "start", "finished"):
        more = {**event, "event": kind} if isinstance(event, dict) else {"event": kind, "id": event, "ids": event, "exit": event}
        assert judged(written([STARTED, more])).status in ("incomplete", "failed")


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "did not start"),
        (WHOLE[:-1], "ended before its summary"),
        (WHOLE[:5], f"ended before its summary, in {B}"),
        ([*WHOLE[:-1], PASS_A, FINISHED], f"{A} was reported twice"),
        ([*WHOLE[:-1], {**PASS_A, "id": "z"}, FINISHED], "z has a result but was never collected"),
        ([STARTED, COLLECTED, PASS_A, FINISHED], f"1 of 2 collected tests have no result, first {B}"),
        ([STARTED, {"event": "collected", "ids": [A]}, PASS_A, FINISHED], "test_t2_b stands in the locked tests and was not collected"),
        ([STARTED, COLLECTED, PASS_A, PASS_B, {"event": "finished", "exit": 3}], "said exit 3, the process ended with 0"),
    ],
)
def test_what_is_missing_is_said(events: list[dict[str, Any]], why: str) -> None:
    step = judged(written(events))
    assert step.status == "incomplete" and why in step.detail


def test_a_report_with_another_key_or_none_at_all_proves_nothing() -> None:
    assert "line 1 is not the test runner's" in judged(written(WHOLE, b"other")).detail
    assert judged(None).status == judged(b"").status == "incomplete"


def test_a_torn_last_line_is_a_missing_summary() -> None:
    assert "ended before its summary" in judged(written(WHOLE)[:-1]).detail


def test_passing_tests_with_a_failing_exit_are_incomplete() -> None:
    events = [*WHOLE[:-1], {"event": "finished", "exit": 1}]
    assert judged(written(events), exit=1).detail.startswith("every test passed, yet pytest ended with 1")


@pytest.mark.parametrize("killed", ["wall", "output", "memory", "disk", "stopped"])
@pytest.mark.parametrize("events", [[], [STARTED], WHOLE[:4], WHOLE], ids=len)
def test_a_killed_run_never_passes(killed: Any, events: list[dict[str, Any]]) -> None:
    step = step_of_tests(Ran(None, 9, killed, b"", 1.0, False), read_report(written(events), KEY), ("pytest",))
    assert step.status == ("failed" if events and killed != "stopped" else "incomplete")


@given(st.text())
def test_plain_text_can_be_stored_and_shown(text: str) -> None:
    shown = plain(text + "\x1b[31m\udcff\x1b]0;title\x07\x9b")
    assert shown.encode() and not set(shown) & {chr(c) for c in range(32) if chr(c) not in "\n\t"}


def test_the_head_and_tail_of_long_output_are_kept() -> None:
    text = head_tail(b"first\n" + b"\xff" * 100_000 + b"\nlast")
    assert text.startswith("first") and text.endswith("last") and len(text) < 2100
