"""The events that still count: for each stage those of its latest execution, in an order that does not depend on time."""

from __future__ import annotations

from collections.abc import Iterable

from nightmill.run.events import Event
from nightmill.run.trees import sha

COUNTED = frozenset({"gate_ran", "attempt_finished", "finding", "edit_refused", "note"})


def latest(events: Iterable[Event]) -> list[Event]:
    """Drops what an earlier or killed execution of the same stage left; stages come in the order of their names.

    An interrupted and resumed run thus yields the same evidence as an uninterrupted one.
    """
    kept: dict[str, list[Event]] = {}
    for event in events:
        if event.kind == "stage_started":
            kept[event.stage] = []
        elif event.kind in COUNTED:
            kept.setdefault(getattr(event, "stage", ""), []).append(event)
    return [event for stage in sorted(kept) for event in kept[stage]]


def evidence_hash(events: Iterable[Event]) -> str:
    """One hash over `latest`, blind to times and durations."""
    return sha("\n".join(_timeless(event) for event in latest(events)))


def _timeless(event: Event) -> str:
    if event.kind == "gate_ran":
        steps = "".join(f"{s.name}:{s.status}:{s.exit}:{s.detail}" for s in event.record.steps)
        tests = "".join(f"{t.id}:{t.outcome}" for t in event.record.tests)
        return f"{event.stage} {event.attempt} {event.record.verdict} {event.record.tree} {steps} {tests}"
    return event.model_dump_json(exclude={"at", "up"})
