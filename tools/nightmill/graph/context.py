"""What a stage's body may see and do: its declared needs, one artifact to write, questions to its model, the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nightmill.errors import NightmillError, StageFailed, UsageError
from nightmill.gate.manner import PLAIN, Manner
from nightmill.graph.stage import SOURCE, Stage
from nightmill.run.events import Event, Finding, Note
from nightmill.run.trees import Tree, read_tree

if TYPE_CHECKING:
    from nightmill.calls.replies import ReplyFormat
    from nightmill.config import RunConfig
    from nightmill.gate.languages.base import LanguagePack
    from nightmill.gate.proof import Proof
    from nightmill.gate.quality import QualityGate
    from nightmill.gate.records import GateRecord
    from nightmill.graph.session import Session


class UndeclaredFile(Exception):
    """A stage read or wrote something that its header does not name: a bug in the stage."""


class Ctx:
    """One execution of one stage. Nothing is written to the run before the body has ended; `content` is what it made."""

    def __init__(self, session: Session, stage: Stage) -> None:
        self.session = session
        self.stage = stage
        self.content: dict[str, bytes] = {}
        self.asked: dict[str, int] = {}

    # -- inputs ---------------------------------------------------------------------------------

    def _declared(self, name: str) -> None:
        if name not in self.stage.needs and name not in self.stage.optional:
            raise UndeclaredFile(f"stage {self.stage.name} reads {name}: add it to `needs` in {self.stage.file.name}")

    def read(self, name: str) -> str:
        """A needed file's text, secrets redacted; "" for an optional one that is missing."""
        self._declared(name)
        path = self.session.run.root / name
        if name in self.stage.optional and not path.exists():
            return ""
        try:
            return self.session.run.redactor(path.read_bytes().decode("utf-8", errors="replace"))
        except FileNotFoundError:
            raise NightmillError(f"{name} is missing: run doit, or doit {self.stage.name}") from None

    def tree(self, name: str) -> dict[str, bytes]:
        """The files below a needed directory, relative to it; empty when an optional one is missing."""
        self._declared(name)
        return read_tree(self.session.run.root / name)

    def written(self, stage: str, target: str) -> dict[str, bytes]:
        """What another stage last wrote into a directory, relative to it, whatever a person did there since."""
        last: dict[str, str] = {}
        for entry in self.session.run.journal:
            if entry.stage == stage and entry.path.startswith(target):
                if entry.act == "made":
                    last[entry.path.removeprefix(target)] = entry.sha
                elif entry.act in ("removed", "set_aside"):
                    last.pop(entry.path.removeprefix(target), None)
        objects = self.session.run.objects
        return {rel: objects.get(digest) for rel, digest in last.items() if digest in objects}

    def own_tests(self) -> dict[str, bytes]:
        """The acceptance tests that the person brought along, as they are to lie among the locked ones."""
        from nightmill.build.own import own_tests

        return dict(own_tests(self.session.run))

    def source(self) -> dict[str, bytes]:
        """The snapshot of the person's tree: text files only, as they were when intake ran."""
        self._declared(SOURCE)
        locked = self.session.locked_source
        if not locked:
            raise StageFailed("source.lock names no text that the run still has: take the snapshot again with nightmill redo intake")
        return {rel: self.session.run.objects.get(digest) for rel, digest in locked.items()}

    @property
    def plan(self) -> str:
        """plan.md as it stands; a milestone answers only to its own slice of it, which its stamp holds."""
        return (self.session.run.root / "plan.md").read_text(encoding="utf-8", errors="replace")

    @property
    def seed(self) -> dict[str, bytes]:
        """The tree that earlier waves built: `waves/K/`, or `schema/` for the first wave.

        Raises UsageError when there are no waves because the plan has no milestone.
        """
        trees = [need for need in self.stage.needs if need.startswith("waves/")]
        if not trees and "schema/" not in self.stage.needs:
            raise UsageError("plan.md has no milestone: write `## MILESTONE: name` blocks, or ask for another plan: nightmill redo plan")
        return self.tree(trees[-1] if trees else "schema/")

    def option(self, name: str) -> Any:
        """The value of an option of run.yaml that the header names in `config=`."""
        if name not in self.stage.config:
            raise UndeclaredFile(f"stage {self.stage.name} reads option {name}: add it to `config` in {self.stage.file.name}")
        return self.config.option(name)

    @property
    def config(self) -> RunConfig:
        return self.session.run.config

    @property
    def subject(self) -> str:
        """The round, milestone or wave this execution is for."""
        return self.stage.subject

    def previous(self, kind: str) -> str:
        """The text of the latest needed draft whose file name starts with `kind` (`drafts/contract.1.md`); "" in the first round."""
        found = [need for need in self.stage.needs if need.startswith(f"drafts/{kind}.")]
        return self.read(found[-1]) if found else ""

    # -- output ---------------------------------------------------------------------------------

    def write(self, text: str, name: str = "") -> None:
        """Sets the artifact's text; `name` only where the stage makes several files."""
        name = name or self.stage.makes[0]
        if name not in self.stage.makes:
            raise UndeclaredFile(f"stage {self.stage.name} writes {name}: add it to `makes` in {self.stage.file.name}")
        self.content[name] = (text.rstrip("\n") + "\n").encode()

    def write_tree(self, tree: Tree, name: str = "") -> None:
        """Sets the artifact directory's files, given relative to it."""
        name = name or next(target for target in self.stage.makes if target.endswith("/"))
        if name not in self.stage.makes:
            raise UndeclaredFile(f"stage {self.stage.name} writes {name}: add it to `makes` in {self.stage.file.name}")
        self.content = {k: v for k, v in self.content.items() if not k.startswith(name)} | {name + rel: data for rel, data in tree.items()}

    def kept(self, unless: tuple[str, ...]) -> dict[str, bytes]:
        """What an earlier execution made into the stage's directory; empty when there is none, or one of these facts differs from then."""
        from nightmill.graph.facts import facts_of

        stamp = self.session.run.stamps.get(self.stage.name)
        now = facts_of(self.session, self.stage)
        makers = [n for n in now if n.startswith(("skill ", "template ", "model ", "code ", "take"))]
        if stamp is None or any(stamp.facts.get(name) != now.get(name) for name in (*unless, *makers)):
            return {}
        return read_tree(self.session.run.root / next(target for target in self.stage.makes if target.endswith("/")))

    # -- facts for the record -------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        self.session.run.events.emit(event)

    def note(self, text: str) -> None:
        self.emit(Note(stage=self.stage.name, text=text))

    def finding(self, source: str, text: str, where: str = "", verdict: str = "") -> None:
        """Something for deviations.md; it blocks nothing."""
        self.emit(Finding(stage=self.stage.name, source=source, verdict=verdict, where=where, text=text))

    # -- who answers and who decides ------------------------------------------------------------

    def ask(
        self,
        reply: type[ReplyFormat] | None = None,
        *,
        skill: str = "",
        template: str = "",
        facts: Mapping[str, Any] | None = None,
        sections: Mapping[str, str] | None = None,
        vary: int = 0,
        **task: Any,
    ) -> Any:
        """Asks the stage's model, or the reviewer's whose `skill` is named; returns an instance of the reply class.

        `facts` go to the reply class's rules, `sections` replace the text of prompt sections, `task` fills the template.
        `vary` changes seed and temperature, for a later attempt that must differ.
        Raises BadReply when three replies in a row broke a rule, OutOfBudget, NoProvider, Waiting, Stopped.
        """
        from nightmill.calls.ask import ask
        from nightmill.calls.speech import persona
        from nightmill.calls.turn import Question

        chosen = reply or self.stage.reply
        assert chosen is not None, f"stage {self.stage.name} declares no reply class"
        skill = skill or self.stage.skill
        question = Question(
            stage=self.stage,
            skill=skill,
            role=self.stage.role if skill == self.stage.skill else "reviewer",
            template=template or self.stage.template,
            reply=chosen,
            facts={"pack": self.pack, "example": persona(skill, self.pack), **dict(facts or {})},
            sections=self._sections() | dict(sections or {}),
            task={"stub": self.pack.stub, **task},
            vary=vary,
        )
        return ask(self.session, question, self.asked)

    def _sections(self) -> dict[str, str]:
        from nightmill.calls.sections import from_needs

        return from_needs(self)

    @property
    def pack(self) -> LanguagePack:
        return self.session.pack

    @property
    def quality_gate(self) -> QualityGate:
        return self.session.gate

    def gate(self, tree: Tree, acceptance: Tree | None = None, manner: Manner | None = None, *, fresh: bool = False) -> GateRecord:
        """Runs the quality gate on a tree, in the sandbox; the same tree and tests again give the record of the first time, unless `fresh`.

        What it proved is in the record; it never raises for what the code does.
        """
        record = self.session.gate_cache.run(tree, acceptance, manner or PLAIN, fresh=fresh)
        self.session.check_stop()
        return record

    def prove(self, acceptance: Tree, changed: frozenset[str] = frozenset()) -> Proof:
        """Whether tests may decide: collected, red on the stubs, and in agreement with V1 except for the `changed` rows."""
        from nightmill.gate.proof import prove

        v1 = self.source() if SOURCE in self.stage.needs else None
        proof = prove(self.session.gate, self.tree("schema/"), acceptance, v1, changed, self.session.gate_cache.test)
        self.session.check_stop()
        return proof
