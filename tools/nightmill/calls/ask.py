"""One question to one agent: render, fit, replay or call, parse; ask again with the broken rule, at most twice."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from nightmill.calls.answer import answer
from nightmill.calls.policies import TABLE
from nightmill.calls.prompts import load_skill
from nightmill.calls.store import CallStore
from nightmill.calls.turn import Question, put
from nightmill.errors import BadReply
from nightmill.run.events import Note, ReplyRefused

if TYPE_CHECKING:
    from nightmill.graph.session import Session

TRIES = TABLE["unparseable"].tries
"""One answer and two more, each asked with something changed."""


def ask(session: Session, question: Question, asked: MutableMapping[str, int]) -> Any:
    """The parsed reply. `asked` counts the questions per skill in this execution of the stage.

    Raises BadReply after TRIES broken replies; OutOfBudget, NoProvider, Waiting, ConfigError, Stopped for what is not the model's fault.
    """
    skill = load_skill(question.skill)
    facts = {"verdicts": skill.verdicts, "example": skill.text, **question.facts}
    feedback = ""
    broken = BadReply("no reply")
    for attempt in range(TRIES):
        asked[question.skill] = number = asked.get(question.skill, 0) + 1
        this = put(session, question, facts, feedback, attempt, question.label(number))
        reply, request = answer(session, question, this)
        try:
            return question.reply.parse(reply.text, facts)
        except BadReply as error:
            broken = error
        if reply.resumed:  # the seam may be to blame, so the model is not, yet
            text = f"{request.label}: an answer that was interrupted and continued broke a rule: asked again whole"
            session.run.events.emit(Note(stage=question.stage.name, text=text))
            CallStore(session.run.calls).discard(request)
            reply, request = answer(session, question, this)
            try:
                return question.reply.parse(reply.text, facts)
            except BadReply as error:
                broken = error
        feedback = str(broken)
        session.run.events.emit(ReplyRefused(stage=question.stage.name, label=request.label, key=request.key, rule=feedback))
    raise broken
