"""One answer as it arrives: thinking kept apart, loops stopped early, and the verdict whether it is an answer at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NoReturn

from nightmill.providers.base import NoVerdict, Reply, Request
from nightmill.providers.loops import LoopDetector
from nightmill.providers.reasoning import Splitter
from nightmill.providers.sse import Usage

CHARS_PER_TOKEN = 16
"""Far above any tokenizer's mean: an answer longer than `max_tokens` times this, plus FREE_CHARS, shows a server that ignores the limit."""
FREE_CHARS = 65_536


class Answer:
    """Raises NoVerdict from `add` on a loop or a flood, from `reply` when what came is no answer."""

    def __init__(self, request: Request, on_text: Callable[[str], None]) -> None:
        self._request = request
        self._on_text = on_text
        self._splitter = Splitter()
        self._loops = (LoopDetector(), LoopDetector())
        self._room = request.max_tokens * CHARS_PER_TOKEN + FREE_CHARS

    @property
    def text(self) -> str:
        """The visible text so far."""
        return self._splitter.text

    def add(self, text: str, reasoning: str = "") -> None:
        """The next piece; `reasoning` is what the server itself has set apart."""
        if reasoning:
            self._splitter.think(reasoning)
        visible, thoughts = self._splitter.feed(text)
        if visible:
            self._on_text(visible)
        self._room -= len(text) + len(reasoning)
        if self._room < 0:
            self._fail("length", f"the server does not keep to max_tokens = {self._request.max_tokens}")
        for detector, piece, what in zip(self._loops, (visible, reasoning + thoughts), ("the answer", "the reasoning"), strict=True):
            if found := detector.feed(piece):
                self._fail("loop", f"{what} repeats {found}")

    def reply(self, finish: str, model: str, usage: Usage | None, seconds: float, *, estimated: bool = False) -> Reply:
        """`finish` is the server's stop reason, "" when it gave none."""
        if held := self._splitter.finish():
            self._on_text(held)
        if not finish:
            self._fail("dropped", "the stream ended without a stop reason")
        if finish == "length":
            spent = "" if self.text.strip() else ", all of it spent on reasoning" if self._splitter.reasoning else ""
            self._fail("length", f"cut off at max_tokens = {self._request.max_tokens}{spent}")
        if not self.text.strip():
            what = "reasoning only" if self._splitter.reasoning else "nothing"
            self._fail("empty", f"the answer holds {what} (stop reason {finish!r})")
        usage = usage or Usage()
        return Reply(
            text=self.text,
            model=model or self._request.model,
            finish=finish,
            reasoning=self._splitter.reasoning,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            completion_tokens=usage.completion,
            seconds=seconds,
            estimated=estimated,
        )

    def _fail(self, kind: Literal["dropped", "empty", "length", "loop"], detail: str) -> NoReturn:
        raise NoVerdict(kind, detail, partial=self.text)
