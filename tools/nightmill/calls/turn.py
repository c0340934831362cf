"""One question as it is put to one model this time: what is sent, and how it is made to fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nightmill.calls.fit import Fitted, fit
from nightmill.calls.outcome import GROWTH
from nightmill.calls.prompts import Section, load_skill, messages, render
from nightmill.config import ModelConfig
from nightmill.providers.base import Request
from nightmill.run.trees import sha

if TYPE_CHECKING:
    from nightmill.calls.backends import Backend
    from nightmill.calls.replies import ReplyFormat
    from nightmill.graph.session import Session
    from nightmill.graph.stage import Stage

RETRY_TEMPERATURE = 0.3
"""Added per re-ask (capped at 1): the same prompt at the same temperature tends to break the same rule."""


@dataclass(frozen=True)
class Question:
    stage: Stage
    skill: str
    role: str
    template: str
    reply: type[ReplyFormat]
    facts: Mapping[str, Any]
    sections: Mapping[str, str]
    task: Mapping[str, Any] = field(default_factory=dict)
    vary: int = 0
    """Raises seed and temperature from the start: a later attempt must differ from an earlier one."""

    def label(self, number: int) -> str:
        """`contract:1#1`, or `implement:tax/security_reviewer#2` for an agent that is not the stage's own."""
        who = self.stage.name if self.skill == self.stage.skill else f"{self.stage.name}/{self.skill}"
        return f"{who}#{number}"


@dataclass(frozen=True)
class Put:
    """A question with everything that does not depend on the model: the sections of its prompt, and how often it was asked before."""

    label: str
    sections: tuple[Section, ...]
    step: int
    """Re-asks and variations so far: each raises seed and temperature."""
    take: int


def put(session: Session, question: Question, facts: Mapping[str, Any], feedback: str, attempt: int, label: str) -> Put:
    variables = {
        **question.sections,
        **question.task,
        "skill": facts.get("example") or load_skill(question.skill).text,
        "format": question.reply.format(facts),
        "feedback": feedback,
    }
    return Put(
        label,
        tuple(render(question.template, variables, session.run.redactor)),
        attempt + question.vary,
        session.run.take(question.stage.name),
    )


@dataclass(frozen=True)
class Turn:
    """A question as it is put to one model, before it is fitted to a window: the same turn has the same answer, whoever stands ready."""

    label: str
    sections: tuple[Section, ...]
    model: str
    temperature: float
    seed: int
    max_tokens: int
    reasoning_tokens: int
    take: int
    context: int | str | None

    @classmethod
    def of(cls, put: Put, model: ModelConfig, seeds: int, doublings: int) -> Turn:
        """`seeds` and `doublings`: how often a call without a verdict asked for another seed, for GROWTH times the output."""
        step = put.step + seeds
        return cls(
            label=put.label,
            sections=put.sections,
            model=model.model,
            temperature=round(min(max(model.temperature, 1.0), model.temperature + RETRY_TEMPERATURE * step), 3),
            seed=model.seed + step,
            max_tokens=model.max_tokens * GROWTH**doublings,
            reasoning_tokens=model.reasoning_tokens,
            take=put.take,
            context=model.context,
        )

    @property
    def key(self) -> str:
        """SHA-256, hex; the label is no part of it."""
        texts = [[s.name, s.text] for s in self.sections]
        sent = [texts, self.model, self.temperature, self.seed, self.max_tokens, self.reasoning_tokens, self.take, self.context]
        return sha(json.dumps(sent, ensure_ascii=False))

    def fitted(self, session: Session, backend: Backend) -> Fitted:
        """Raises ConfigError when it cannot be made to fit this backend's window, NoVerdict when the server does not answer."""
        window = session.backends.window(backend)
        return fit(list(self.sections), window, self.max_tokens, backend.provider.count, self.reasoning_tokens)

    def request(self, fitted: Fitted) -> Request:
        return Request(
            model=self.model,
            messages=messages(fitted.sections),
            temperature=self.temperature,
            seed=self.seed,
            max_tokens=fitted.max_tokens,
            label=self.label,
            take=self.take,
        )
