"""The seam between an interrupted answer and what a server writes behind it."""

from __future__ import annotations

import re

LEAST = 32
"""Characters. Less is sooner written again than continued."""
AGAIN = 48
"""So many characters from the beginning, or from the end, of the resumed text are no coincidence. A choice of ours, like the next."""
LINES_AGAIN = 24
"""The same for two or more whole lines at its end."""
LOSS = 200
"""Characters, a second or two of decoding: further back than this, a line boundary is the better seam."""
_WATCHED = 8_192
"""Characters of the resumed text's end in which a repetition is looked for."""

_SEAM = re.compile(r"\S(?= \S)")


class StartedOver(Exception):
    """The text says how, in words that complete "the continuation "."""


def cut(text: str) -> str:
    """The longest beginning of an interrupted answer that can be continued as if it had never been interrupted; "" when there is none.

    It ends before a single space: every tokenizer in use splits there, so that the model sees the tokens that it wrote. Where there was
    none for LOSS characters, at the end of a line. It never ends in white space.
    """
    seam = max((match.end() for match in _SEAM.finditer(text)), default=0)
    line = text[: max(text.rfind("\n"), 0)].rstrip()
    kept = text[:seam] if seam and len(text) - seam <= LOSS else max(text[:seam], line, key=len)
    return kept if len(kept) >= LEAST else ""


class Joint:
    """Takes what the server sends for a resumed call and gives what is new in it, whatever the cuts between the pieces.

    Some servers repeat the resumed text first, with or without the white space at its beginning: that is taken away by comparison.
    `feed` and `finish` raise StartedOver when the rest begins like the resumed text, or repeats its end.
    """

    def __init__(self, resume: str) -> None:
        self._resume = resume
        self._echo: str | None = ""
        """What may yet become the repetition of the resumed text; None once that is decided."""
        self._new: str | None = ""
        """The beginning of what is new, as long as it may be a repetition."""
        self._again = ""
        """What the new text must not begin with, when the server repeats."""

    def feed(self, text: str) -> str:
        if self._echo is None:
            return self._watch(text)
        self._echo += text
        whole, got = self._resume.lstrip(), self._echo.lstrip()
        if got.startswith(whole):
            self._again = whole[:AGAIN]
            return self._decided(got[len(whole) :])
        if whole.startswith(got):
            return ""
        if got.startswith(whole[:AGAIN]):
            raise StartedOver("began the answer again")
        return self._decided(self._echo)

    def finish(self) -> str:
        """What was held back."""
        if self._echo is None:
            return ""
        if len(self._echo.strip()) >= AGAIN:
            raise StartedOver("began the answer again and ended")
        return self._decided(self._echo)

    def _decided(self, rest: str) -> str:
        self._echo = None
        return self._watch(rest)

    def _watch(self, text: str) -> str:
        if self._new is None:
            return text
        self._new += text
        head = self._new.lstrip()
        if self._again and head.startswith(self._again):
            raise StartedOver("began the answer again")
        if len(head) < LINES_AGAIN:
            return text
        repeats = [end for end in _ends(self._resume, head[:LINES_AGAIN]) if end.startswith(head[: len(end)])]
        if any(head.startswith(end) for end in repeats):
            raise StartedOver("repeated the end of what was there")
        if not repeats and (not self._again or len(head) >= AGAIN):
            self._new = None
        return text


def _ends(text: str, start: str) -> list[str]:
    """The ends of `text` that begin with `start` and are long enough to tell, without those that `text` itself had already repeated:
    rows of a table, zeros.
    """
    found, before, at = [], "", text.find(start, max(0, len(text) - _WATCHED))
    while at >= 0:
        before, end = text[:at], text[at:]
        lines = "\n" in end and not before.rpartition("\n")[2].strip()
        if lines or len(end) >= AGAIN:
            found.append(end)
        at = text.find(start, at + 1)
    shortest = text[len(before) :].rstrip()
    return [] if before.rstrip().endswith(shortest) else found
