"""What an invocation is about to take, told before it begins and once more when the plan has named its milestones."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from nightmill.calls.forecast import Ahead, Past, Work, forecast, history_of
from nightmill.graph.facts import check, template_closure
from nightmill.graph.pipeline import read_plan
from nightmill.graph.session import Session
from nightmill.graph.stage import SOURCE, Stage
from nightmill.paths import skills_dir

BYTES_PER_TOKEN = 3.5
"""For a first guess: source code and English measured 3 to 4 bytes a token on current vocabularies."""

GUESSED_ATTEMPTS = 2
"""First guess for a stage that works in attempts: most milestones need a second one."""

GUESSED_ITEMS = 8
"""First guess of the calls of a stage whose model is asked item by item."""


class Outlook:
    """Emits Forecast events: at the start, and again when there are other stages than it knew."""

    def __init__(self, session: Session, chosen: Sequence[str] = (), *, everything: bool = False, alone: bool = False) -> None:
        """`chosen` are names of stages, groups and targets, none for all; `alone`: without what they need;
        `everything`: also what is up to date."""
        self._session = session
        self._chosen = chosen
        self._everything = everything
        self._alone = alone
        self._told: frozenset[str] = frozenset()
        budget = session.budget
        self._before = budget.calls, budget.tokens, budget.minutes
        self._history = history_of(session.run.events)

    def tell(self, stages: Sequence[Stage]) -> None:
        names = frozenset(stage.name for stage in stages)
        if names == self._told:
            return
        session, budget = self._session, self._session.budget
        again, self._told = bool(self._told), names
        ahead = [self._ahead(stage) for stage in self._due(stages) if stage.roles]
        calls, tokens, minutes = self._before
        past = Past(budget.calls - calls, budget.tokens - tokens, (budget.minutes - minutes) * 60) if again else Past()
        speeds = {one.model: session.speeds.of(*one.model) for one in ahead}
        unplanned = read_plan(session) is None and not self._chosen
        planned = "with the milestones of the plan" if again else ""
        remark = "the milestones, which are not planned yet, come on top" if unplanned else planned
        told = forecast(ahead, self._history, speeds, budget.room(), past=past, remark=remark)
        if told:
            session.run.events.emit(told)

    def _due(self, stages: Sequence[Stage]) -> list[Stage]:
        """What is stale now and what stands behind it: much of that will change when its inputs do."""
        due: list[Stage] = []
        changed: set[str] = set()
        for stage in self._wanted(stages):
            if not self._everything and not changed & _sources(stage) and check(self._session, stage).state != "stale":
                continue
            due.append(stage)
            changed |= set(stage.makes)
        return due

    def _wanted(self, stages: Sequence[Stage]) -> list[Stage]:
        """The chosen stages and those that make what they need, in pipeline order."""
        if not self._chosen:
            return list(stages)
        wanted: list[Stage] = []
        needed: set[str] = set()
        for stage in reversed(stages):
            if (needed & set(stage.makes) and not self._alone) or any(_means(name, stage) for name in self._chosen):
                wanted.append(stage)
                needed |= _sources(stage)
        return wanted[::-1]

    def _ahead(self, stage: Stage) -> Ahead:
        config = self._session.run.config
        role = stage.roles[0]
        model = config.candidates(role)[0]
        attempts = GUESSED_ATTEMPTS if "build.max_iterations" in stage.config else 1
        answer = (model.max_tokens + model.reasoning_tokens) / 2
        prompt = self._prompt_bytes(stage) / BYTES_PER_TOKEN
        if isinstance(model.context, int):
            prompt = min(prompt, max(0, model.context - answer))
        questions = attempts * (1 + len(stage.reviewers))
        calls = questions * (GUESSED_ITEMS if config.small(role) else 1)
        guess = Work(calls, calls * prompt, calls * prompt, questions * answer)
        return Ahead(stage.name, (model.provider, model.model), guess, model.price)

    def _prompt_bytes(self, stage: Stage) -> int:
        """Of what a question of this stage shows, as far as it is there already."""
        session = self._session
        size = sum(len(template_closure(name)) for name in stage.all_templates[:1])
        paths = [skills_dir() / f"{stage.skill}.md"] if stage.skill else []
        for need in (*stage.needs, *stage.optional):
            if need == SOURCE:
                paths += [session.source_root / rel for rel in session.source_files]
            elif need.endswith("/"):
                paths += (session.run.root / need).rglob("*")
            else:
                paths.append(session.run.root / need)
        for path in paths:
            try:
                size += path.stat().st_size if path.is_file() else 0
            except OSError:
                continue
        return size


def _sources(stage: Stage) -> set[str]:
    return {"source.lock" if need == SOURCE else need for need in (*stage.needs, *stage.optional)}


def _means(name: str, stage: Stage) -> bool:
    """Whether a name on the command line chooses this stage: its own, its group's, a pattern, or what it makes."""
    names = (stage.name, stage.name.partition(":")[0], *(target.rstrip("/") for target in stage.makes))
    return name in names or ("*" in name and fnmatch.fnmatchcase(stage.name, name))
