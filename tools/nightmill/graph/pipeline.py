"""From a pipeline as dodo.py writes it to the stages of one run: rounds unrolled, milestones and waves read from the plan as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nightmill.graph.stage import Stage
from nightmill.run.events import Finding
from nightmill.run.evidence import latest

if TYPE_CHECKING:
    from nightmill.build.milestones import Plan
    from nightmill.graph.session import Session

DRAFTS = "drafts"


@dataclass(frozen=True)
class Rounds:
    """draft and review in turn, at most `contract.rounds` times; then the last draft becomes the artifact."""

    draft: Stage
    review: Stage
    then: Stage

    def stages(self, session: Session) -> list[Stage]:
        count = session.run.config.contract.rounds
        name = self.then.name
        made: list[Stage] = []
        before: tuple[str, ...] = ()
        for n in range(1, count + 1):
            draft, review = f"{DRAFTS}/{name}.{n}.md", f"{DRAFTS}/{self.review.name}.{n}.md"
            made.append(self.draft.bind(name=f"{name}:{n}", needs=(*self.draft.needs, *before), makes=(draft,), subject=str(n)))
            made.append(
                self.review.bind(
                    name=f"{self.review.name}:{n}", needs=(*self.review.needs, *before, draft), makes=(review,), subject=str(n)
                )
            )
            before = (draft, review)
        made.append(self.then.bind(needs=(*self.then.needs, *before)))
        return made


@dataclass(frozen=True)
class Waves:
    """One `implement:NAME` per milestone of the plan, one `merge:K` per wave; what follows needs the tree of the last wave."""

    implement: Stage
    merge: Stage
    seed: str = "schema/"

    def stages(self, plan: Plan) -> list[Stage]:
        from nightmill.build.milestones import waves

        made: list[Stage] = []
        seed = self.seed
        by_name = {m.name: m for m in plan.milestones}
        for k, names in enumerate(waves(plan), 1):
            trees = tuple(f"milestones/{name}/" for name in names)
            for name, tree in zip(names, trees, strict=True):
                others = _other_files(plan, name)
                made.append(
                    self.implement.bind(
                        name=f"implement:{name}",
                        needs=_with(self.implement, seed),
                        makes=(tree,),
                        slice=by_name[name].slice + others,
                        subject=name,
                    )
                )
            tree = f"waves/{k}/"
            made.append(
                self.merge.bind(
                    name=f"merge:{k}", needs=(*_with(self.merge, seed), *trees), makes=(tree,), slice=" ".join(names), subject=str(k)
                )
            )
            seed = tree
        return made


def _other_files(plan: Plan, name: str) -> str:
    """Who else has a milestone's files: a shared file is judged by the functions each task names, so that counts as its slice too."""
    mine = next(m for m in plan.milestones if m.name == name)
    shared = [f"{m.name}: {m.slice}" for m in plan.milestones if m.name != name and set(m.files) & set(mine.files)]
    return "".join(f"\n--- shares a file with {text}" for text in shared)


def _with(stage: Stage, seed: str) -> tuple[str, ...]:
    return (*stage.needs, seed) if seed not in stage.needs else stage.needs


Step = Stage | Rounds | Waves
Pipeline = Sequence[Step]

LAST_WAVE = "waves/last/"
"""In a stage's needs: the tree after the last wave, whatever its number."""


def expand(pipeline: Pipeline, session: Session) -> list[Stage]:
    """The stages of this run in order. While there is no plan, the stages that need its milestones depend on the plan alone."""
    plan = read_plan(session)
    made: list[Stage] = []
    for step in pipeline:
        if isinstance(step, Rounds):
            made += step.stages(session)
        elif isinstance(step, Waves):
            made += step.stages(plan) if plan else []
        else:
            made.append(_resolve(step, made))
    return made


def _resolve(stage: Stage, before: list[Stage]) -> Stage:
    if LAST_WAVE not in stage.needs:
        return stage
    trees = [target for s in before for target in s.makes if target.startswith("waves/")]
    last = trees[-1] if trees else "plan.md"
    return stage.bind(needs=tuple(last if need == LAST_WAVE else need for need in stage.needs))


def read_plan(session: Session) -> Plan | None:
    """plan.md as it stands; None when it is not there or has no milestone in it."""
    from nightmill.build.milestones import Plan

    path = session.run.root / "plan.md"
    if not path.is_file():
        return None
    plan = Plan.read(path.read_text(encoding="utf-8", errors="replace"))
    return plan if plan.milestones else None


def note_plan_problems(session: Session) -> None:
    """What is wrong with the plan as it stands becomes findings, each once: a person's plan is never seen by the planning stage."""
    from nightmill.build.milestones import problems

    plan = read_plan(session)
    told = {e.text for e in latest(session.run.events) if e.kind == "finding" and e.stage == "plan"}
    for text in problems(plan) if plan else ():
        if text not in told:
            session.run.events.emit(Finding(stage="plan", source="plan.md", text=text))


def steps_of(pipeline: Pipeline) -> list[Stage]:
    """Every declared stage of a pipeline, before any run is known: for checks of its structure."""
    flat: list[Stage] = []
    for step in pipeline:
        if isinstance(step, Rounds):
            flat += [step.draft, step.review, step.then]
        elif isinstance(step, Waves):
            flat += [step.implement, step.merge]
        else:
            flat.append(step)
    return flat
