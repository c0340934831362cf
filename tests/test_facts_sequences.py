"""Any sequence of hand edits and commands over a small pipeline: no text of a person is lost, and old work is never called fresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nightmill.errors import UsageError
from nightmill.graph import verbs
from nightmill.graph.context import Ctx
from nightmill.graph.facts import check
from nightmill.graph.session import Session
from nightmill.graph.stage import Stage
from nightmill.run.trees import sha
from small_runs import opened, scratch, small_run
from test_facts import STAGES, run_all

TARGETS = ("a.md", "b/one.py", "b/sub/two.py", "b/mine.py", "c.md")
OPS = st.one_of(
    st.tuples(st.just("input"), st.none()),
    st.tuples(st.just("edit"), st.sampled_from(TARGETS)),
    st.tuples(st.just("delete"), st.sampled_from(TARGETS)),
    st.tuples(st.just("run"), st.none()),
    st.tuples(st.sampled_from(["forget", "keep", "redo"]), st.sampled_from(["a", "b", "c"])),
)


class Person:
    """Somebody at work in a run directory, who remembers what they wrote. No two of their texts are equal or of equal length."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts: dict[str, bytes] = {}
        self.written = 0

    def write(self, rel: str) -> None:
        self.written += 1
        text = b"a person's text " + b"x" * self.written
        (self.root / rel).parent.mkdir(parents=True, exist_ok=True)
        (self.root / rel).write_bytes(text)
        if rel != "mission.md":
            self.texts[rel] = text

    def delete(self, rel: str) -> None:
        (self.root / rel).unlink(missing_ok=True)
        self.texts.pop(rel, None)

    def lost(self) -> list[str]:
        """Texts that lie neither where they were written nor among the objects."""
        objects = opened(self.root).run.objects
        return [rel for rel, text in self.texts.items() if not self.in_place(rel) and sha(text) not in objects]

    def in_place(self, rel: str) -> bool:
        return (self.root / rel).is_file() and (self.root / rel).read_bytes() == self.texts[rel]


def settle(session: Session, verb: str, name: str) -> None:
    if verb == "forget":
        session.run.stamps.forget(name)
        return
    try:
        {"keep": verbs.keep, "redo": verbs.redo}[verb](session, name)
    except UsageError as error:
        assert "nothing to keep" in str(error)


def truly_fresh(session: Session, stage: Stage) -> bool:
    """Whether what lies there is what the stage makes from its inputs as they stand."""
    ctx = Ctx(session, stage)
    stage.body(ctx)
    return {rel: sha(data) for rel, data in ctx.content.items()} == session.run.ledger.current(stage.makes)


@pytest.fixture(scope="module", autouse=True)
def _these_stages() -> Iterator[None]:
    """`keep` and `redo` look stages up in the pipeline: here it is ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verbs, "stages_of", lambda session: list(STAGES))
        yield


@settings(max_examples=60, deadline=None)
@given(ops=st.lists(OPS, max_size=14))
@example(ops=[("edit", "a.md"), ("redo", "a")])
@example(ops=[("run", None), ("edit", "b/mine.py"), ("input", None), ("run", None), ("redo", "b"), ("run", None)])
@example(ops=[("run", None), ("edit", "a.md"), ("input", None), ("keep", "a"), ("run", None), ("delete", "a.md")])
def test_no_sequence_of_edits_and_commands_loses_a_persons_text_or_calls_old_work_fresh(ops: list[tuple[str, str | None]]) -> None:
    with scratch() as folder:
        root = small_run(folder / "run")
        person = Person(root)
        for verb, what in [*ops, ("run", None)]:
            act(root, person, verb, what or "")
            assert person.lost() == []
            assert verb == "redo" or all(person.in_place(rel) for rel in person.texts)
            person.texts = {rel: text for rel, text in person.texts.items() if person.in_place(rel)}


def act(root: Path, person: Person, verb: str, what: str) -> None:
    if verb in ("input", "edit"):
        person.write(what or "mission.md")
    elif verb == "delete":
        person.delete(what)
    elif verb == "run":
        held = run_all(opened(root))
        session = opened(root)
        found = {stage.name: check(session, stage) for stage in STAGES}
        assert held or all(c.up_to_date for c in found.values()), found
        assert [s.name for s in STAGES if found[s.name].state == "fresh" and not held and not truly_fresh(session, s)] == []
    else:
        settle(opened(root), verb, what)
