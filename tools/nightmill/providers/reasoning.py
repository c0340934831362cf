"""Keeps a model's thinking apart from its answer while both arrive in pieces."""

from __future__ import annotations

import re

_NAMES = ("think", "thinking", "reasoning")
_ANY = "|".join(_NAMES)
_OPEN = re.compile(rf"\s*<({_ANY})>", re.IGNORECASE)
_LONE = re.compile(rf"\s*</({_ANY})>", re.IGNORECASE)
_LONE_AT_END = re.compile(rf"(?<!`)</({_ANY})>\s*$", re.IGNORECASE)
_TAGS = tuple(f"<{slash}{name}>" for name in _NAMES for slash in ("", "/"))
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)$")


class Splitter:
    """Tags count at the start of a line and outside code fences, so a file that speaks of `<think>` stays whole.

    A closing tag without an opening one (the template had put that into the prompt) makes everything before it reasoning: pieces
    already given out as visible are then taken back, so `text` is the answer, and the pieces only a preview of it.
    The result does not depend on how the text is cut into pieces.
    """

    def __init__(self) -> None:
        self._visible: list[str] = []
        self._fresh: list[str] = []
        self._thoughts: list[str] = []
        self._line = ""
        self._shown = 0
        self._fence = ""
        self._inside = ""
        self._held = ""
        self._thought = False

    @property
    def text(self) -> str:
        text = "".join(self._visible)
        return text.lstrip("\r\n") if self._thought else text

    @property
    def reasoning(self) -> str:
        return "".join(self._thoughts).strip()

    def think(self, text: str) -> None:
        """Reasoning that the server has already set apart."""
        self._thoughts.append(text)
        self._thought = self._thought or bool(text)

    def feed(self, text: str) -> tuple[str, str]:
        """Takes the next piece; returns what is known of it by now: (visible, reasoning). The start of a possible tag is held back."""
        thoughts = len(self._thoughts)
        self._fresh.clear()
        while text:
            text = self._inner(text) if self._inside else self._outer(text)
        return "".join(self._fresh), "".join(self._thoughts[thoughts:])

    def finish(self) -> str:
        """Ends the text; returns the visible piece that was held back. A block that was never closed is reasoning."""
        self._fresh.clear()
        if self._inside:
            self.think(self._held)
        elif not self._lone_at_end(self._line):
            self._show(self._line[self._shown :])
        self._held = self._line = ""
        return "".join(self._fresh)

    def _show(self, text: str) -> None:
        self._visible.append(text)
        self._fresh.append(text)

    def _outer(self, text: str) -> str:
        """Takes one line, or the piece of it that is there; returns what is left to read."""
        head, newline, rest = text.partition("\n")
        self._line += head
        if not self._fence:
            if opened := _OPEN.match(self._line):
                return self._enter(opened[1].lower(), self._line[opened.end() :] + newline + rest)
            if not self._thought and (lone := _LONE.match(self._line)):
                return self._take_back(self._line[lone.end() :] + newline + rest)
        if not newline:
            if not _may_become_tag(self._line):
                self._show(self._line[self._shown :])
                self._shown = len(self._line)
            return rest
        if not self._lone_at_end(self._line):
            self._show(self._line[self._shown :] + newline)
            self._fence = _fence_after(self._line, self._fence)
        self._line, self._shown = "", 0
        return rest

    def _enter(self, name: str, rest: str) -> str:
        self._inside, self._thought = name, True
        self._line, self._shown = "", 0
        return rest

    def _take_back(self, rest: str) -> str:
        self.think("".join(self._visible))
        self._visible.clear()
        self._fresh.clear()
        self._thought = True
        self._line, self._shown, self._fence = "", 0, ""
        return rest

    def _lone_at_end(self, line: str) -> bool:
        lone = None if self._thought or self._fence else _LONE_AT_END.search(line)
        if lone is None:
            return False
        self._show(line[self._shown :])
        before = "".join(self._visible)
        self._visible = [before[: len(before) - len(line) + lone.start()]]
        self._take_back("")
        return True

    def _inner(self, text: str) -> str:
        """Takes reasoning up to its closing tag; returns what follows it."""
        text, self._held = self._held + text, ""
        tag = f"</{self._inside}>"
        end = text.lower().find(tag)
        if end >= 0:
            self.think(text[:end])
            self._inside = ""
            return text[end + len(tag) :]
        keep = next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text[-n:].lower() == tag[:n]), 0)
        self.think(text[: len(text) - keep])
        self._held = text[len(text) - keep :]
        return ""


def _may_become_tag(line: str) -> bool:
    start = line.lstrip()[:16].lower()
    return any(tag.startswith(start) for tag in _TAGS)


def _fence_after(line: str, fence: str) -> str:
    """The marker of the code fence that is open after `line`; "" when none is."""
    marker = _FENCE.match(line)
    if marker is None:
        return fence
    mark, info = marker[1], marker[2]
    if not fence:
        return "" if mark[0] == "`" and "`" in info else mark
    closes = mark[0] == fence[0] and len(mark) >= len(fence) and not info.strip()
    return "" if closes else fence
