"""Asking small: what a model of a few billion parameters is asked for, one item at a time. What can be computed is not asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from nightmill.calls import plain
from nightmill.calls.replies import ReplyFormat
from nightmill.errors import BadReply, NoUsableReply
from nightmill.run.trees import Tree

if TYPE_CHECKING:
    from nightmill.gate.languages.base import LanguagePack
    from nightmill.graph.context import Ctx

MOST_CALLS = 6
"""Calls taken from one reply. Small models go on and on; the first ones are the considered ones."""
_PROMPT = re.compile(r"^(?:>>>|\$|assert\b|print(?=\())\s*")
_ERRORS = re.compile(r"rais|error|exception|refus|reject|fail|invalid|not allowed|forbid", re.I)
_LABEL = re.compile(r"^[*_]*[A-Za-z][\w ,'-]{0,30}[*_]*:[*_]*\s+(?=\S)")
_RESULT = re.compile(r"\s+(?:==|->|=>|→|=|#|returns\b|raises\b|gives\b|is\b|\|)(?:\s|$)")


def asks_small(ctx: Ctx) -> bool:
    """Whether the model of this stage is asked item by item (`grain` in run.yaml)."""
    return ctx.config.small(ctx.stage.role)


@dataclass(frozen=True)
class Calls(ReplyFormat):
    """Calls of the program. facts["pack"], facts["sources"]: what can be called; facts["of"]: the function that each must call, or ""."""

    calls: tuple[str, ...]

    FORMAT: ClassVar[str] = """\
Five lines, each a label and one call with literal arguments. No argument is longer than 20 characters. No results, no comments, no other
text. Example for two functions, fee(minutes) and total(fees):

usual: fee(45)
other: total([150, 300])
edge: fee(0)
empty: total([])
wrong: fee(-5)
"""

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        pack: LanguagePack = facts["pack"]
        of = facts.get("of", "")
        read = ((pack.call(candidate, facts["sources"]) for candidate in _candidates(line)) for line in plain.lines(text))
        found = (next(filter(None, calls), None) for calls in read)
        calls = [call for call in found if call and (not of or re.search(rf"\b{re.escape(of)}\(", call))]
        if not calls:
            what = f"call of {of}" if of else "call"
            raise BadReply(f"Your reply has no {what} that can be run. Write one call on each line, every argument a literal value.")
        return cls(tuple(dict.fromkeys(calls))[:MOST_CALLS])


def calls_of(ctx: Ctx, sources: Tree, of: str, *, change: str = "", avoid: Sequence[str] = (), vary: int = 0) -> tuple[str, ...]:
    """Calls that the stage's model names for a function, or to show a change; from a list that never ended the lines before the cut.

    `avoid`: changes that must not touch their results. `vary`: for other calls than an earlier stage got; shown what is known already, a
    model of 1.5 B writes just that again, so neither the contract nor a list of them is in the prompt. Raises BadReply, NoUsableReply.
    """
    facts = {"pack": ctx.pack, "sources": sources, "of": of}
    try:
        reply: Calls = ctx.ask(
            Calls,
            template="calls_item.md.j2",
            sections={"contract": ""},
            facts=facts,
            vary=vary,
            function=of,
            change=change,
            avoid=tuple(avoid),
        )
    except NoUsableReply as error:
        whole_lines = str(getattr(error.__cause__, "partial", "")).rpartition("\n")[0]
        try:
            reply = Calls.parse(whole_lines, facts)
        except BadReply:
            raise error from None
    return reply.calls


def _candidates(line: str) -> list[str]:
    """The line without marks and label, shortest first up to where it tells a result: only the call is taken, the rest may say anything."""
    bare = _LABEL.sub("", re.sub(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+", "", line).strip(), count=1)
    ticked = re.match(r"`([^`]+)`", bare)
    bare = ticked[1] if ticked else bare.strip("|` ")
    bare = _PROMPT.sub("", bare).rstrip(";,").strip()
    return [*(bare[: m.start()] for m in _RESULT.finditer(bare)), bare] if "(" in bare else []


@dataclass(frozen=True)
class Result(ReplyFormat):
    """The result of one call. facts["pack"], facts["sources"], facts["call"], facts["before"] (its old result), facts["clause"]."""

    value: str

    FORMAT: ClassVar[str] = """\
One line: the value as a literal, or `raises`, the error's class and its text in quotes. Nothing else. Examples:

150
['a', 'b']
raises ValueError 'negative time: -5'
"""

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        pack: LanguagePack = facts["pack"]
        for line in plain.lines(text):
            value = plain.undecorated(re.sub(r"^.*?(?:==|->|=>|returns?:?)\s+", "", line.strip(), count=1))
            if not value or not pack.test_of("T1", facts["call"], value, facts["sources"]):
                continue
            if value.startswith("raises") and not facts["before"].startswith("raises") and not _ERRORS.search(facts["clause"]):
                raise BadReply(
                    "The old program gives a value here, and the clause speaks of no error. Write the value that the call gives now."
                )
            return cls(value)
        raise BadReply("Your reply has no exact result. Write one line: a literal such as 150 or 'text', or `raises ValueError 'text'`.")


@dataclass(frozen=True)
class Changes(ReplyFormat):
    """What the mission changes, in its own words. facts["mission"]."""

    sentences: tuple[str, ...]

    FORMAT: ClassVar[str] = """\
One bullet per sentence, copied word by word from the mission. If the mission changes nothing, the single word NONE. Example:

- A stay of less than five minutes is free.
"""

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        mission = _words(facts["mission"])
        items = [plain.undecorated(item) for item in plain.items(plain.lines(text))]
        if not items and not any(plain.undecorated(line).strip(".").upper() == "NONE" for line in plain.lines(text)):
            raise BadReply("Your reply has no sentence. Copy each sentence as a bullet `- ...`, or write the single word NONE.")
        if foreign := [item for item in items if _words(item) not in mission]:
            raise BadReply(f"The mission does not say: {foreign[0]} Copy its sentences word by word.")
        return cls(tuple(dict.fromkeys(items)))


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


@dataclass(frozen=True)
class OneFunction(ReplyFormat):
    """A file with one function written anew. facts["pack"], facts["text"]: the file; facts["name"]: the function."""

    text: str

    FORMAT: ClassVar[str] = """\
The whole function in one fenced block, from `def` to its last line, and nothing else. Example:

```python
def fee(minutes: int) -> int:
    return (minutes + 29) // 30 * 150
```
"""

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        pack: LanguagePack = facts["pack"]
        blocks = re.findall(r"^\s*```[\w+-]*[ \t]*\n(.*?)^\s*```", text + "\n", re.S | re.M)
        said = "your reply has no fenced block with the function"
        for code in blocks or [text]:
            try:
                return cls(pack.graft(facts["text"], facts["name"], code))
            except ValueError as error:
                said = str(error) if blocks else said
        raise BadReply(f"Write the function again: {said}.")
