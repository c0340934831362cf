"""Notices a model that writes the same lines again and again, early enough to save the rest of the budget."""

from __future__ import annotations

import re
from collections import deque

MAX_PERIOD = 120
"""Lines. Longer blocks are not looked for."""

WORDY_REPEATS = 12
"""A sentence or statement this often in a row; half a repeat less per line of a repeated block, down to LONG_REPEATS."""
LONG_REPEATS = 4
DATA_REPEATS = 40
"""Table rows, list items, literals, one-word lines: equal neighbours are normal there."""
WORDLESS_LINES = 1000
"""Numbers and punctuation (zeros of an array, rulers, blank lines): only a flood is a loop."""

UNBROKEN_WORDY = 4_000
"""Characters of one line that repeat a phrase of at most UNBROKEN_PERIOD characters; UNBROKEN_WORDLESS when it has no words."""
UNBROKEN_WORDLESS = 32_768
UNBROKEN_PERIOD = 200
_UNBROKEN_STEP = 512

_WORD = re.compile(r"[^\W\d_]{3,}")
_DATA = re.compile(r"""\s*(?:[|"'\[\](){}<\d]|0x|[bru]["'])|.*,\s*$""")


class LoopDetector:
    """`feed` returns "" or, once, one line that says what repeats. The thresholds above are choices of ours, in favour of silence."""

    def __init__(self) -> None:
        self._line = ""
        self._unchecked = 0
        self._blank = 0
        self._ids: dict[str, int] = {}
        self._recent: deque[int] = deque(maxlen=MAX_PERIOD)
        self._runs = [0] * (MAX_PERIOD + 1)
        self._texts: deque[str] = deque(maxlen=MAX_PERIOD)

    def feed(self, text: str) -> str:
        *ended, rest = text.split("\n")
        for line in ended:
            found = self._end_line(self._line + line)
            self._line, self._unchecked = "", 0
            if found:
                return found
        self._line = (self._line + rest)[-UNBROKEN_WORDLESS:]
        self._unchecked += len(rest)
        if self._unchecked >= _UNBROKEN_STEP and len(self._line) >= UNBROKEN_WORDY:
            self._unchecked = 0
            return _unbroken(self._line)
        return ""

    def _end_line(self, line: str) -> str:
        line = line.rstrip()
        if not line:
            self._blank += 1
            return f"{self._blank} blank lines in a row" if self._blank >= WORDLESS_LINES else ""
        self._blank = 0
        number = self._ids.setdefault(line, len(self._ids))
        suspect = 0
        for period, earlier in enumerate(reversed(self._recent), 1):
            self._runs[period] = self._runs[period] + 1 if earlier == number else 0
            if not suspect and self._runs[period] >= period * (LONG_REPEATS - 1):
                suspect = period
        self._recent.append(number)
        self._texts.append(line)
        return self._judge(suspect) if suspect else ""

    def _judge(self, period: int) -> str:
        """Only the shortest period is judged: its multiples repeat less often."""
        repeats = self._runs[period] // period + 1
        block = list(self._texts)[-period:]
        wordy = sum(_is_wordy(line) for line in block)
        if wordy * 2 > period:
            limit = max(LONG_REPEATS, WORDY_REPEATS - period // 2)
        elif any(_WORD.search(line) for line in block):
            limit = DATA_REPEATS
        else:
            limit = max(DATA_REPEATS, WORDLESS_LINES // period)
        if repeats < limit:
            return ""
        first = max(block, key=len).strip()
        what = f"the line {first[:60]!r}" if period == 1 else f"{period} lines with {first[:60]!r}"
        return f"{what} {repeats} times in a row"


def _is_wordy(line: str) -> bool:
    return not _DATA.match(line) and len(_WORD.findall(line)) >= 2


def _unbroken(line: str) -> str:
    """A phrase that fills the end of a line without a break."""
    tail = line[-UNBROKEN_WORDY:]
    period = _period(tail)
    if not period:
        return ""
    unit = tail[:period]
    if not _WORD.search(unit + unit):
        tail = line[-UNBROKEN_WORDLESS:]
        if len(tail) < UNBROKEN_WORDLESS or tail[period:] != tail[:-period]:
            return ""
    return f"{unit.strip()[:60]!r} over and over in one line"


def _period(text: str) -> int:
    """The shortest period of `text` up to UNBROKEN_PERIOD characters, or 0."""
    head, at = text[:-UNBROKEN_PERIOD], 0
    while (at := text.find(head, at + 1)) > 0:
        if text[at:] == text[:-at]:
            return at
    return 0
