"""What happens after something went wrong. One table (calls/policies), pure functions: the caller does the waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

from nightmill.calls.policies import GROWTH, LEAST_WISH_S, LOAD_DEADLINE_S, LONGEST_WISH_S, TABLE, Change, Class, Policy
from nightmill.errors import NightmillError, NoProvider
from nightmill.gate.records import GateRecord
from nightmill.providers.base import Kind, NoVerdict
from nightmill.run import events

__all__ = [
    "GROWTH",
    "LEAST_WISH_S",
    "LOAD_DEADLINE_S",
    "LONGEST_WISH_S",
    "TABLE",
    "Change",
    "Class",
    "GiveUp",
    "Outcome",
    "Policy",
    "Wait",
    "after",
    "charged",
    "classify",
    "next_step",
    "outcome",
]


@dataclass(frozen=True)
class Wait:
    """Ask again after `seconds`. `change`: `seed` = another seed and a higher temperature; `max_tokens` = GROWTH times as many;
    `start over` = the same question without the beginning of an earlier answer.

    `rotate`: another backend of the role may be asked at once instead.
    """

    seconds: float
    change: Change = "nothing"
    rotate: bool = False


@dataclass(frozen=True)
class GiveUp:
    """This backend is given up for this question. `rotate`: another one may still answer it; `error` is raised when there is none."""

    error: NightmillError
    rotate: bool = False


def next_step(
    kind: Kind,
    tries_so_far: int,
    retry_after: float | None = None,
    *,
    waited_s: float | None = None,
    load_deadline_s: float = LOAD_DEADLINE_S,
    provider: str = "",
    detail: str = "",
    remedy: str = "",
) -> Wait | GiveUp:
    """`tries_so_far` ≥ 1 counts the calls for one question that ended with `kind`; `retry_after` is the server's wish in seconds.

    `waited_s`: how long this call has waited for loading already; without it the waits of the table are added up.
    """
    policy = TABLE[kind]
    if waited_s is None:
        waited_s = policy.waited_s(tries_so_far)
    wait = policy.wait_s(tries_so_far)
    if retry_after is not None and retry_after >= LEAST_WISH_S:
        wait = retry_after if tries_so_far == 1 else max(wait, retry_after)  # it was kept once, and was too short
    at_once, at_last = policy.rotate == "at once", policy.rotate != "no"
    if kind == "loading":
        left = load_deadline_s - waited_s
        if left > 0:
            return Wait(min(max(wait, policy.first_wait_s), left), policy.change, at_once)
    elif tries_so_far < policy.tries and wait <= LONGEST_WISH_S:
        return Wait(wait, policy.change, at_once)
    error = (policy.then or NoProvider)(f"{_sentence(kind, tries_so_far, retry_after, provider, detail)}: {remedy or policy.remedy}")
    return GiveUp(error, at_last)


def after(error: NoVerdict, tries_so_far: int, *, provider: str, waited_s: float | None = None) -> Wait | GiveUp:
    """`next_step` of a failed call."""
    return next_step(
        error.kind, tries_so_far, error.retry_after, waited_s=waited_s, provider=provider, detail=error.detail, remedy=error.remedy
    )


def _sentence(kind: Kind, tries: int, retry_after: float | None, provider: str, detail: str) -> str:
    who = f"provider {provider}" if provider else "the provider"
    what = " ".join((detail or kind.replace("_", " ")).split()).rstrip(".")
    often = f" ({tries} tries)" if tries > 1 else ""
    wish = f" (it asks to wait {retry_after:.0f} s)" if retry_after is not None and retry_after > LONGEST_WISH_S else ""
    return f"{who}: {what}{often}{wish}"


ERRORS: Mapping[str, str] = {
    "StageFailed": "failed",
    "BadReply": "unparseable",
    "Stopped": "stopped",
    "Waiting": "waiting",
    "RunLocked": "locked",
    "OutOfBudget": "out_of_budget",
    "NoProvider": "no_provider",
    "NoUsableReply": "no_usable_reply",
    "ConfigError": "configuration",
    "SandboxMissing": "configuration",
    "MachineError": "trouble",
    "UsageError": "usage",
    "NightmillError": "failed",
}
"""Class of errors.py → row."""
EXITS: Mapping[int, str] = {
    1: "failed",
    2: "bug",
    3: "usage",
    75: "waiting",
    76: "out_of_budget",
    77: "no_provider",
    78: "configuration",
    130: "stopped",
}
"""Exit code of a run → row."""
_ATTEMPTS = {
    "red": "tests_failed",
    "incomplete": "incomplete",
    "not_run": "not_run",
    "refused": "edit_refused",
    "unparseable": "unparseable",
    "no verdict": "no_usable_reply",
}


@dataclass(frozen=True)
class Outcome:
    """The row an event belongs to."""

    name: str
    policy: Policy

    @property
    def nobody(self) -> str:
        """Why nobody is charged; "" where somebody is."""
        return "" if self.policy.charges else self.policy.nobody


def outcome(name: str) -> Outcome:
    """Raises KeyError on a name that has no row."""
    return Outcome(name, TABLE[name])


def charged(attempt: str) -> bool:
    """Whether an attempt that ended with this word (`red`, `refused`, `no verdict`, …) is charged to the agent that wrote it."""
    return attempt in _ATTEMPTS and TABLE[_ATTEMPTS[attempt]].charges


@singledispatch
def classify(event: object) -> Outcome | None:
    """The row that an event of a run belongs to; None where nothing went wrong."""
    return None


@classify.register
def _(event: events.CallFinished) -> Outcome | None:
    return None if event.outcome == "ok" else outcome(event.outcome if event.outcome in TABLE else "garbage")


@classify.register
def _(event: events.ReplyRefused) -> Outcome | None:
    return outcome("unparseable")


@classify.register
def _(event: events.EditRefused) -> Outcome | None:
    return outcome("edit_refused")


@classify.register
def _(event: events.GateRan) -> Outcome | None:
    return _gate(event.record)


def _gate(record: GateRecord) -> Outcome | None:
    red = "tests_failed" if record.built else "build_failed"
    name = {"green": "", "red": red, "incomplete": "incomplete", "not_run": "not_run"}[record.verdict]
    return outcome("trouble") if record.trouble and name else outcome(name) if name else None


@classify.register
def _(event: events.AttemptFinished) -> Outcome | None:
    name = _ATTEMPTS.get(event.outcome)
    return outcome("build_failed" if name == "tests_failed" and not event.owed else name) if name else None


@classify.register
def _(event: events.Finding) -> Outcome | None:
    return outcome("rejected") if event.verdict == "REJECTED" else None


@classify.register
def _(event: events.StageFinished) -> Outcome | None:
    failed = "bug" if event.reason.startswith("bug: ") else ERRORS.get(event.error, "failed")
    name = {"failed": failed, "waiting": "waiting", "held": "held", "stopped": "stopped"}.get(event.status)
    return outcome(name) if name else None


@classify.register
def _(event: events.RunEnded) -> Outcome | None:
    return outcome(EXITS.get(event.exit, "failed")) if event.exit else None
