"""All prompts of a run begin alike, as far as they show the same things, so that a server's prompt cache is reused."""

from __future__ import annotations

import itertools
import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill import demo
from nightmill.calls.fit import LIMIT
from nightmill.calls.prompts import ARTIFACTS, Section, load_skill, messages, render
from nightmill.calls.sections import from_needs
from nightmill.graph.context import Ctx
from nightmill.graph.execute import execute
from nightmill.graph.pipeline import expand
from nightmill.graph.stage import Stage
from nightmill.paths import load_dodo, templates_dir
from nightmill.providers.base import Message
from runs import events_of
from small_runs import opened, scratch
from test_prompts import TASK, asking, lay_out

STABLE = ("rules", *ARTIFACTS)
VOLATILE = ("role", "task", "format", "feedback")
SHARE = 0.68
"""Of all prompt characters of the demo, those that an earlier call of the run had sent in the same place; 70.5 % when this was written."""
SHARE_OF_LAST = 0.55
"""The same where a server remembers one prompt only, the last; 58.2 %."""


class Templates:
    """Every prompt that a stage of the real pipeline may send: the template, the persona, the artifacts that its stage needs."""

    def __init__(self) -> None:
        self.found: list[tuple[Stage, str, tuple[str, ...]]] = []
        with scratch() as folder:
            session = lay_out(demo.prepare(folder, None))
            for stage in asking(session):
                needed = tuple(name for name in ARTIFACTS if name in from_needs(Ctx(session, stage)))
                self.found += [(stage, template, needed) for template in stage.all_templates]

    def prompt(self, number: int, artifacts: Mapping[str, str], **more: str) -> list[Section]:
        stage, template, needed = self.found[number]
        texts = {"skill": load_skill(stage.skill).text, "format": f"FORMAT of {stage.name}", "feedback": "", **more}
        sections = render(template, TASK | texts | {name: artifacts[name] for name in needed})
        return [s for s in sections if s.name != LIMIT]


@cache
def templates() -> Templates:
    return Templates()


def sent(sections: Sequence[Section]) -> str:
    return as_text(messages(list(sections)))


def as_text(parts: Sequence[Message]) -> str:
    """One text for all that a chat template would put in front of the answer."""
    return "\x1f".join(f"{m.role}\n{m.content}" for m in parts)


def shared(a: Sequence[object], b: Sequence[object]) -> int:
    """How many characters, or members, two begin with alike."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low


ARTIFACT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")) | st.just("\n"), max_size=80)
CONTENTS = st.fixed_dictionaries(dict.fromkeys(ARTIFACTS, ARTIFACT))
PAIR = st.tuples(st.integers(0, 10_000), st.integers(0, 10_000))


@settings(max_examples=150, deadline=None)
@given(PAIR, CONTENTS)
def test_two_prompts_of_a_run_share_everything_up_to_the_first_section_that_one_of_them_lacks(
    pair: tuple[int, int], contents: dict[str, str]
) -> None:
    known = templates()
    a, b = (known.prompt(n % len(known.found), contents) for n in pair)
    names_a, names_b = ([s.name for s in prompt if s.name in STABLE] for prompt in (a, b))
    common = shared(names_a, names_b)
    assert [s.text for s in a[:common]] == [s.text for s in b[:common]], "the same artifact is the same text for everybody"
    assert shared(sent(a), sent(b)) >= len(sent(a[:common]))


@settings(max_examples=50, deadline=None)
@given(CONTENTS)
def test_stages_that_need_the_same_artifacts_share_them_all(contents: dict[str, str]) -> None:
    known = templates()
    groups: dict[tuple[str, ...], list[list[Section]]] = {}
    for n, (_, _, needed) in enumerate(known.found):
        groups.setdefault(needed, []).append(known.prompt(n, contents))
    assert max(map(len, groups.values())) >= 3
    for prompts in groups.values():
        for a, b in itertools.pairwise(prompts):
            assert shared(sent(a), sent(b)) >= len(sent([s for s in a if s.name in STABLE]))


@settings(max_examples=30, deadline=None)
@given(CONTENTS)
def test_role_task_format_and_feedback_come_after_everything_that_prompts_share(contents: dict[str, str]) -> None:
    known = templates()
    for n in range(len(known.found)):
        names = [s.name for s in known.prompt(n, contents, feedback="Write a verdict.")]
        assert names[0] == "rules" and names == [name for name in (*STABLE, *VOLATILE) if name in names]
        assert set(VOLATILE) <= set(names)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), CONTENTS, st.text(st.characters(codec="utf-8", categories=("L", "P", "Zs")), min_size=1, max_size=60))
def test_asking_again_after_a_broken_rule_shares_the_whole_prompt(number: int, contents: dict[str, str], rule: str) -> None:
    known = templates()
    number %= len(known.found)
    before, after = sent(known.prompt(number, contents)), sent(known.prompt(number, contents, feedback=f"x{rule}"))
    assert after.startswith(before) and after != before


@settings(max_examples=50, deadline=None)
@given(CONTENTS, st.sampled_from(ARTIFACTS), ARTIFACT)
def test_an_edited_artifact_leaves_what_stands_before_it_in_the_cache(contents: dict[str, str], name: str, text: str) -> None:
    known = templates()
    for n in range(len(known.found)):
        before, after = known.prompt(n, contents), known.prompt(n, contents | {name: text})
        kept = [s for s in before if s.name in STABLE[: STABLE.index(name)]]
        assert shared(sent(before), sent(after)) >= len(sent(kept))


# -- what a real run sent -----------------------------------------------------------------------------------------------------------


def prompts_of(root: Path) -> dict[str, tuple[Message, ...]]:
    """Label and key of every call, in the order in which they were answered → its messages."""
    found = {}
    for event in events_of(root):
        if event.kind == "call_finished" and event.outcome == "ok":
            request = json.loads((root / ".nightmill" / "calls" / f"{event.key}.json").read_text())["request"]
            found[f"{event.label} {event.key}"] = tuple(Message(m["role"], m["content"]) for m in request["messages"])
    return found


@pytest.fixture(scope="module")
def calls(finished: Path) -> dict[str, tuple[Message, ...]]:
    return prompts_of(finished)


def test_most_of_what_the_demo_sends_an_earlier_call_has_sent_in_the_same_place(calls: dict[str, tuple[Message, ...]]) -> None:
    texts = [as_text(parts) for parts in calls.values()]
    best = sum(max((shared(text, earlier) for earlier in texts[:n]), default=0) for n, text in enumerate(texts))
    last = sum(shared(text, before) for before, text in itertools.pairwise(texts))
    whole = sum(map(len, texts))
    assert len(texts) >= 20
    assert best / whole >= SHARE
    assert last / whole >= SHARE_OF_LAST


HEADINGS = dict(re.findall(r'section\("(\w+)"\).*?^# (.+?)$', (templates_dir() / "_base.md.j2").read_text(), re.S | re.M))


def parts_of(parts: Sequence[Message]) -> dict[str, str]:
    """Section → its text, read back from the headings of a prompt that was sent."""
    names = {f"# {heading}": name for name, heading in HEADINGS.items() if name != "rules"}
    found = {"rules": parts[0].content}
    name = ""
    for line in parts[1].content.split("\n"):
        name = names[line] if line in names and names[line] not in found else name
        found[name] = found.get(name, "") + f"\n{line}"
    return found


def reused(prompts: Sequence[Mapping[str, str]], order: Sequence[str]) -> int:
    """Characters that an earlier prompt had in the same place, were the sections in this order."""
    rows = [[(name, prompt[name]) for name in order if name in prompt] for prompt in prompts]
    return sum(max((_alike(row, earlier) for earlier in rows[:n]), default=0) for n, row in enumerate(rows))


def _alike(a: Sequence[tuple[str, str]], b: Sequence[tuple[str, str]]) -> int:
    total = 0
    for (name, text), (other, there) in zip(a, b, strict=False):
        if (name, text) != (other, there):
            return total + (_shared(text, there) if name == other else 0)
        total += len(text)
    return total


@cache
def _shared(a: str, b: str) -> int:
    return shared(a, b)


def test_no_other_order_of_the_artifacts_would_be_reused_noticeably_more(calls: dict[str, tuple[Message, ...]]) -> None:
    """All orders that begin with the source, the longest, and end with the code, which changes with every attempt."""
    prompts = [parts_of(parts) for parts in calls.values()]
    whole = sum(len(text) for prompt in prompts for text in prompt.values())
    best = max(
        reused(prompts, ("rules", "source", *middle, "code", *VOLATILE))
        for middle in itertools.permutations([name for name in ARTIFACTS if name not in ("source", "code")])
    )
    assert best - reused(prompts, (*STABLE, *VOLATILE)) < 0.01 * whole


def names_of_this_place(root: Path) -> Iterator[str]:
    """What would tell one place or one machine from another."""
    yield str(root)
    yield str(root.parent)
    yield str(Path(__file__).parent.parent)
    yield str(Path.home())
    yield socket.gethostname()


MOMENT = re.compile(r"\b20\d\d-[01]\d-[0-3]\d[T ][0-2]\d:\d\d|\b1[6-9]\d{8}(?:\.\d+)?\b|\b[0-2]\d:[0-5]\d:[0-5]\d\b")
ABSOLUTE = re.compile(r"(?<![\w.:/`<])/(?:tmp|home|root|usr|var|opt|dev|private|Users|build|work)/")


def test_no_prompt_tells_when_or_where_it_was_made(finished: Path, calls: dict[str, tuple[Message, ...]]) -> None:
    for name, parts in calls.items():
        text = "\n".join(m.content for m in parts)
        for local in names_of_this_place(finished):
            if len(local) > 1:
                assert not re.search(rf"(?<!\w){re.escape(local)}(?!\w)", text), (name, local)
        assert not MOMENT.search(text), name
        assert not ABSOLUTE.search(text), name


@pytest.mark.parametrize(
    "text", ["at 2026-11-30 07:15", "since 1796022482.85", "[07:15:09] asked", 'File "/tmp/x/a.py"', "see /build/a.py", "in /home/me/run"]
)
def test_the_test_for_moments_and_places_sees_them(text: str) -> None:
    assert MOMENT.search(text) or ABSOLUTE.search(text)


def test_the_same_run_in_two_places_asks_the_same_questions() -> None:
    asked = []
    for _ in range(2):
        with scratch() as folder:
            root = demo.prepare(folder / f"some{len(asked)}" / "where", None)
            session = opened(root)
            dodo = load_dodo()
            stages = expand(dodo.PIPELINES["rewrite"], session)
            for stage in stages[: [s.name for s in stages].index("test_matrix") + 1]:
                if stage.name != "baseline":
                    execute(session, stage)
            asked.append(set(prompts_of(root)))
    assert asked[0] == asked[1] and len(asked[0]) >= 5
