"""A run told in events: killed once, resumed, one attempt charged, one milestone left red. For the tests of what reads events."""

from __future__ import annotations

from nightmill.gate.records import Diagnostic, GateRecord, StepRecord, TestOutcome
from nightmill.run.events import (
    AttemptFinished,
    CallFinished,
    CallStarted,
    EditRefused,
    Event,
    Finding,
    GateRan,
    ReplyRefused,
    RunEnded,
    RunStarted,
    StageFinished,
    StageStarted,
)

BEGAN = 1_700_000_000.0
CONTRACT = {"C1": "`total([])` is 0.", "C2": "Amounts round half up.", "C10": "Unknown currency: ValueError <naming it>."}
MATRIX = {"T1": "C1", "T2": "C2", "T3": "C2"}
PROOF = {
    "collected": 3,
    "v1_ran": True,
    "proven": {"T1": ["acceptance/test_total.py::test_t1_empty"], "T2": ["acceptance/test_total.py::test_t2_half_up"]},
    "unproven": {"T3": "it passes although nothing is implemented"},
}
V1 = {"ledger.py": b"def total(xs):\n    return sum(xs)\n", "logo.png": b"\x89PNG\0", "same.py": b"x = 1\n"}
V2 = {
    "ledger.py": b"def total(xs):\n    return round(sum(xs), 2)\n",
    "money.py": b"CENT = '</pre><script>alert(1)</script>'\n",
    "same.py": b"x = 1\n",
}


def outcome(name: str, word: str = "passed") -> TestOutcome:
    return TestOutcome.model_validate(
        {"id": f"acceptance/test_total.py::{name}", "outcome": word, "message": "" if word == "passed" else "assert 1.0 == 1.01"}
    )


def record(verdict: str = "green", *tests: TestOutcome, reason: str = "all steps passed", **more: object) -> GateRecord:
    passed = "passed" if verdict == "green" else "failed"
    steps = (
        StepRecord(name="build", status="passed", command=("python", "-m", "compileall", "."), exit=0, seconds=0.2),
        StepRecord(name="lint", status="not_run", detail="ruff is not installed", advisory=True),
        StepRecord.model_validate(
            {
                "name": "test",
                "status": passed,
                "command": ("python", "-m", "pytest", "acceptance"),
                "exit": 0 if verdict == "green" else 1,
                "seconds": 1.25,
                "tests": tests,
                "diagnostics": ()
                if verdict == "green"
                else (Diagnostic(file="ledger.py", line=2, message="1.0 is not 1.01", code="AssertionError"),),
            }
        ),
    )
    facts = {"verdict": verdict, "reason": reason, "steps": steps, "tree": "ab" * 32, "acceptance": "cd" * 32}
    return GateRecord.model_validate({**facts, "protections": ("bubblewrap", "seccomp", "no-network"), **more})


def call(at: float, stage: str, key: str, *, replayed: bool = False, result: str = "ok", left_out: tuple[str, ...] = ()) -> list[Event]:
    names = {"stage": stage, "label": f"{stage}#{key}", "key": key, "provider": "local", "model": "coder-7b"}
    cost = {"prompt_tokens": 1000, "cached_tokens": 600, "completion_tokens": 200, "seconds": 4.0}
    return [
        CallStarted.model_validate({"at": at, **names, "prompt_tokens": 1000, "left_out": left_out}),
        CallFinished.model_validate({"at": at + 4, **names, **cost, "outcome": result, "replayed": replayed}),
    ]


def attempt(at: float, stage: str, number: int, result: str, passed: int, *, charged: bool = False, best: bool = False) -> AttemptFinished:
    asked = "rewrite" if number == 1 else "patch"
    facts = {"asked": asked, "differs": "first try" if number == 1 else "located failures shown", "outcome": result, "charged": charged}
    facts["reason"] = "1 of 2 tests fails: test_t2_half_up" if result == "red" else ""
    return AttemptFinished.model_validate({"at": at, "stage": stage, "attempt": number, **facts, "passed": passed, "owed": 2, "best": best})


def story() -> list[Event]:
    t = BEGAN
    red = record("red", outcome("test_t1_empty"), outcome("test_t2_half_up", "failed"), reason="1 of 2 tests fails: test_t2_half_up")
    green = record("green", outcome("test_t1_empty"), outcome("test_t2_half_up"), outcome("test_t3_sum[a-b]"))
    remark = Finding(
        at=t + 7, stage="contract_review:1", source="contract_reviewer", verdict="REJECTED", where="C10", text="names no <currency>"
    )
    return [
        RunStarted(at=t, pid=1, version="0.1.0", command="doit"),
        StageStarted(at=t, stage="contract:1", why="never made"),
        *call(t, "contract:1", "a"),
        StageFinished(at=t + 5, stage="contract:1", status="made", seconds=5),
        StageStarted(at=t + 5, stage="contract_review:1", why="never made"),
        *call(t + 5, "contract_review:1", "b", left_out=("analysis",)),
        remark,
        call(t + 10, "contract_review:1", "killed")[0],
        # kill -9, resumed an hour later
        RunStarted(at=t + 3600, pid=2, version="0.1.0", command="doit -n 2"),
        StageStarted(at=t + 3600, stage="contract_review:1", why="never made"),
        *call(t + 3600, "contract_review:1", "b", replayed=True, left_out=("analysis",)),
        remark.model_copy(update={"at": t + 3601}),
        StageFinished(at=t + 3602, stage="contract_review:1", status="made", seconds=2),
        StageStarted(at=t + 3602, stage="implement:ledger", why="plan.md: slice ledger"),
        *call(t + 3602, "implement:ledger", "c", result="idle"),
        *call(t + 3610, "implement:ledger", "d"),
        ReplyRefused(at=t + 3615, stage="implement:ledger", label="implement:ledger#d", key="d", rule="The reply holds no file."),
        *call(t + 3616, "implement:ledger", "e"),
        GateRan(at=t + 3622, stage="implement:ledger", attempt=1, record=red),
        attempt(t + 3622, "implement:ledger", 1, "red", 1, charged=True, best=True),
        *call(t + 3623, "implement:ledger", "f"),
        EditRefused(at=t + 3628, stage="implement:ledger", attempt=2, reasons=("SEARCH block 1 matches two places in ledger.py",)),
        attempt(t + 3628, "implement:ledger", 2, "refused", 0, charged=True),
        StageFinished(at=t + 3630, stage="implement:ledger", status="made", seconds=28),
        StageStarted(at=t + 3630, stage="verify", why="v2/ changed"),
        GateRan(at=t + 3640, stage="verify", attempt=0, record=green),
        StageFinished(at=t + 3640, stage="verify", status="made", seconds=10),
        StageFinished(
            at=t + 3641,
            stage="ip_review",
            status="held",
            reason="reviews/ip.md was edited by hand and v2/ changed: nightmill keep ip_review",
        ),
        RunEnded(at=t + 3642, exit=75, word="waiting", reason="ip_review is held"),
    ]
