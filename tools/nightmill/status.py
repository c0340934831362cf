"""The lines of `nightmill status`."""

from __future__ import annotations

from collections.abc import Sequence

from nightmill.lines import StageLine, count, listed, one_line
from nightmill.summary import Summary
from nightmill.timeline import share, substitutes

_WITH_WHY = ("stale", "held", "kept", "failed", "waiting", "blocked", "running")


def status_lines(summary: Summary, stages: Sequence[StageLine]) -> list[str]:
    """One line a stage, then how the last invocation ended, the verdict on V2, what it cost and what is open. No colours, safe to print."""
    name = max((len(s.name) for s in stages), default=0)
    ended = {s.stage: s.reason for run in summary.invocations for s in run.stages}
    lines = []
    for stage in stages:
        state = summary.stages.get(stage.name, stage.state) if stage.state == "stale" else stage.state
        why = ended.get(stage.name) if state != stage.state else stage.why
        text = one_line(why if stage.state in _WITH_WHY and why else stage.doc)
        lines.append(f"{stage.name:<{name}}  {state:<7}  {text}".rstrip())
    return [*lines, "", *_footer(summary)] if lines else _footer(summary)


def _reuse(summary: Summary) -> str:
    """`60% of 6,000 prompt tokens came from the cache`; where models differ, each with its share."""
    tokens = summary.calls.tokens
    if tokens.reuse is None:
        return "not told: no server said what its prompt cache held"
    whole = f"{share(tokens.reuse)} of {tokens.told:,} prompt tokens came from the cache, {tokens.evaluated:,} were evaluated"
    each = ", ".join(f"{one_line(m.provider)}/{one_line(m.model)} {share(m.reuse)}" for m in summary.models)
    return f"{whole} ({each})" if len(summary.models) > 1 else whole


def _counted(summary: Summary) -> str:
    """Against the budgets."""
    used = summary.counted
    money = [f"{used.money:g} in money"] if used.money else []
    parts = [count(used.calls, "call"), f"{used.tokens:,} tokens", count(used.attempts, "attempt"), f"{used.minutes:.1f} min", *money]
    return f"{listed(parts)}, against the budgets"


def _footer(summary: Summary) -> list[str]:
    if not summary.invocations:
        return ["no run yet: doit starts one"]
    code = "" if summary.exit is None else f" (exit {summary.exit})"
    reason = f": {one_line(summary.reason)}" if summary.reason else ""
    calls, tokens = summary.calls, summary.calls.tokens
    spent = listed(
        (
            count(calls.asked, "call") + (f" and {calls.replayed:,} replayed" if calls.replayed else ""),
            f"{tokens.prompt:,} prompt tokens",
            f"{tokens.completion:,} completion tokens",
        )
    )
    return [
        f"last run   {summary.word}{code}{reason}",
        f"v2         {summary.verdict.replace('_', ' ')}: {one_line(summary.verdict_why)}",
        f"spent      {spent}",
        f"counted    {_counted(summary)}",
        f"reuse      {_reuse(summary)}",
        *(f"answered   {one_line(text)}" for text in substitutes(summary.models)),
        f"open       {count(len(summary.findings), 'finding')}, {count(len(summary.unproven), 'thing')} not proven",
    ]
