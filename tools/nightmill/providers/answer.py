"""One answer as it arrives: thinking kept apart, loops stopped early, and the verdict whether it is an answer at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from nightmill.providers.base import USUAL, Kind, NoVerdict, Reply, Request, Terms
from nightmill.providers.continuation import Joint, StartedOver
from nightmill.providers.loops import LoopDetector
from nightmill.providers.reasoning import Splitter
from nightmill.providers.sse import Usage

CHARS_PER_TOKEN = 16
"""Far above any tokenizer's mean: an answer longer than `max_tokens` times this, plus FREE_CHARS, shows a server that ignores the limit."""
FREE_CHARS = 65_536
_QUOTE = 200


class Answer:
    """Raises NoVerdict from `add` on a loop or a flood, from `reply` when what came is no answer.

    `terms.resume` counts as the beginning of the answer, for thinking and loops as well; `on_text` does not get it again.
    """

    def __init__(self, request: Request, on_text: Callable[[str], None], terms: Terms = USUAL) -> None:
        self._request = request
        self._on_text = on_text
        self._on_thought = terms.on_thought or _ignore
        self._splitter = Splitter()
        self._loops = (LoopDetector(), LoopDetector())
        self._room = request.max_tokens * CHARS_PER_TOKEN + FREE_CHARS
        self._refusal = ""
        self._resume = terms.resume.rstrip()
        self._joint = Joint(self._resume)
        self._known = len(self._resume)
        """Characters to come that `on_text` must not get: a line that may become a tag is held back."""
        if self._resume:
            self._take(self._resume, "")

    @property
    def text(self) -> str:
        """The visible text so far, with what was resumed."""
        return self._splitter.text

    def add(self, text: str, reasoning: str = "") -> None:
        """The next piece; `reasoning` is what the server itself has set apart."""
        self._room -= len(text) + len(reasoning)
        if self._resume:
            if reasoning:
                self._fail("restarted", "the continuation began with thinking")
            text = self._new(self._joint.feed, text)
        self._take(text, reasoning)

    def refuse(self, text: str) -> None:
        """A piece of the protocol's own refusal."""
        self._refusal += text[:_QUOTE]

    def reply(
        self, finish: str, model: str, usage: Usage, seconds: float, first_token_s: float | None = None, *, estimated: bool = False
    ) -> Reply:
        """`finish` is the server's stop reason, "" when it gave none."""
        if self._resume:
            self._take(self._new(lambda _: self._joint.finish(), ""), "")
        self._show(self._splitter.finish())
        self._judge(finish)
        return Reply(
            text=self.text,
            model=model or self._request.model,
            finish=finish,
            reasoning=self._splitter.reasoning,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            evaluated_tokens=usage.evaluated,
            completion_tokens=usage.completion,
            seconds=seconds,
            first_token_s=first_token_s,
            estimated=estimated,
            resumed=len(self._resume) if self.text.startswith(self._resume) else 0,
        )

    def _judge(self, finish: str) -> None:
        """Raises NoVerdict when this is no answer."""
        nothing = not self.text.strip()
        if not finish:
            self._fail("dropped", "the stream ended without a stop reason")
        if self._refusal.strip() or finish == "content_filter":
            said = " ".join(self._refusal.split())[:_QUOTE]
            self._fail("refusal", f"the server refused to answer: {said or 'its content filter ended the answer'}")
        if finish == "length":
            spent = ", all of it spent on reasoning" if nothing and self._splitter.reasoning else ""
            self._fail("length", f"cut off at max_tokens = {self._request.max_tokens}{spent}")
        if nothing and self._splitter.reasoning:
            self._fail("reasoning_only", f"the answer holds reasoning only (stop reason {finish!r})")
        if nothing:
            self._fail("empty", f"the answer holds nothing (stop reason {finish!r})")

    def _take(self, text: str, reasoning: str) -> None:
        if reasoning:
            self._splitter.think(reasoning)
        visible, thoughts = self._splitter.feed(text)
        self._show(visible)
        if reasoning or thoughts:
            self._on_thought(reasoning + thoughts)
        if self._room < 0:
            self._fail("length", f"the server does not keep to max_tokens = {self._request.max_tokens}")
        for detector, piece, what in zip(self._loops, (visible, reasoning + thoughts), ("the answer", "the reasoning"), strict=True):
            if found := detector.feed(piece):
                self._fail("loop", f"{what} repeats {found}")

    def _show(self, visible: str) -> None:
        new = visible[self._known :]
        self._known = max(0, self._known - len(visible))
        if new:
            self._on_text(new)

    def _new(self, take: Callable[[str], str], text: str) -> str:
        try:
            return take(text)
        except StartedOver as error:
            self._fail("restarted", f"the continuation {error}")

    def _fail(self, kind: Kind, detail: str) -> NoReturn:
        raise NoVerdict(kind, detail, partial="" if kind == "restarted" else self.text)


def _ignore(_: str) -> None: ...
