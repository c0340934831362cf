"""What a reply must look like: each class holds the text of the prompt's format section and every rule a reply has to obey.

Parsing is wide about decoration (bold, bullets, fences, chatter around the blocks) and never guesses: what is missing or ambiguous
raises BadReply, whose text tells the model what to change. Reasoning tags are stripped before parsing. A class that only one stage uses
stands on top of that stage's file.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from nightmill.calls import plain
from nightmill.calls.speech import worded
from nightmill.edits import file_blocks
from nightmill.errors import BadReply

if TYPE_CHECKING:
    from nightmill.gate.languages.base import LanguagePack

APPROVED, REJECTED = "APPROVED", "REJECTED"
_VERDICT = r"(?:\w+ ){0,2}verdict"
_PLACE = re.compile(
    r"[*_`(\[]*((?:[CT]\d+(?:\s*(?:,|/|&|and)\s*[CT]\d+)*)|missing|[\w./\\-]+\.[A-Za-z]\w{0,7}(?::\d+(?:-\d+)?)?)[*_`)\]]*\s*(?::|—|–|-\s)[*_]*\s*(\S.*)",
    re.I | re.S,
)


@dataclass(frozen=True)
class ReplyFormat(ABC):
    """Base of all reply classes. `facts` carries what a rule needs to know, e.g. the clause ids that exist."""

    FORMAT: ClassVar[str] = ""
    """The exact shape and one short example, as the prompt shows it."""

    @classmethod
    def format(cls, facts: Mapping[str, Any]) -> str:
        """FORMAT with what `facts` decide filled in; facts["pack"]: the language whose example it shows."""
        pack: LanguagePack | None = facts.get("pack")
        return worded(pack.examples.get(cls.__name__, cls.FORMAT), pack) if pack else cls.FORMAT

    @classmethod
    @abstractmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        """Raises BadReply with the broken rule, addressed to the model."""

    @classmethod
    def own_words(cls, text: str, facts: Mapping[str, Any]) -> str:
        """`text` without the lines copied from the examples in the prompt: the format's, and the persona's in facts["example"]."""
        return plain.novel(text, cls.format(facts), str(facts.get("example", "")))


@dataclass(frozen=True)
class Finding:
    """One remark of a reviewer. `where` is a clause (`C3`), a row, `missing`, `file` or `file:line`; "" when it names no place."""

    text: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


@dataclass(frozen=True)
class Review(ReplyFormat):
    """A verdict and its findings. facts["verdicts"]: the allowed words, the approving one first (default APPROVED, REJECTED)."""

    verdict: str
    findings: tuple[Finding, ...] = ()
    approved: bool = False

    FORMAT: ClassVar[str] = """\
Your first line is exactly one of these two:

VERDICT: APPROVED
VERDICT: REJECTED

After APPROVED write nothing. After REJECTED write one bullet for each problem: the place, a colon, what is wrong and what would be right.
The place is a clause (C3), a file with its line (shop/price.py:12), or the word missing.

Example:

VERDICT: REJECTED
- C3: says "large orders" without a number; name the amount from which an order counts as large
- missing: nothing says what an order without lines costs
"""

    @classmethod
    def format(cls, facts: Mapping[str, Any]) -> str:
        good, bad = _words(facts)[0], _words(facts)[-1]
        return super().format(facts).replace(APPROVED, good).replace(REJECTED, bad)

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        words = _words(facts)
        verdict = _verdict(plain.lines(text), words)
        findings = _findings(cls.own_words(text, facts))
        if verdict != words[0] and not findings:
            raise BadReply(f"You wrote {verdict} but named no problem: add one bullet for each problem, such as `- C3: what is wrong`.")
        return cls(verdict, findings, verdict == words[0])

    @classmethod
    def read(cls, text: str) -> Self:
        """The review in a file that a person may have edited; verdict "" when it has none."""
        try:
            return cls.parse(text, {})
        except BadReply:
            return cls("", _findings(text))

    @property
    def text(self) -> str:
        """The review as it is kept in a file."""
        return "".join([f"VERDICT: {self.verdict}\n", *(f"- {finding}\n" for finding in self.findings)])


def _words(facts: Mapping[str, Any]) -> tuple[str, ...]:
    words = facts.get("verdicts") or (APPROVED, REJECTED)
    return tuple(str(word).upper() for word in words)


def _verdict(lines: Sequence[str], words: Sequence[str]) -> str:
    found = set()
    for number, line in enumerate(lines):
        label = plain.labelled(line, _VERDICT)
        title = plain.heading(line) or ""
        if label is None and not re.fullmatch(_VERDICT, title, re.I):
            continue
        value = (label and label[1]) or next((after for after in lines[number + 1 :] if after.strip()), "")
        named = {word for word in words if re.search(rf"\b{re.escape(word)}\b", value, re.I)}
        if len(named) == 1 and re.match(rf"[\W_]*{re.escape(word := named.pop())}\b", value, re.I):
            found.add(word)
    if not found:
        raise BadReply(f"Your reply has no verdict. Write one line that is exactly {_either(words)}.")
    if len(found) > 1:
        raise BadReply(f"Your reply has two different verdicts. Write one verdict line only: {_either(words)}.")
    return found.pop()


def _either(words: Sequence[str]) -> str:
    return " or ".join(f"`VERDICT: {word}`" for word in words)


def _findings(text: str) -> tuple[Finding, ...]:
    lines = plain.lines(text)
    found = [_finding(item) for item in plain.items(lines) if not plain.labelled(item, _VERDICT)]
    rows = [row for line in lines if line.lstrip().startswith("|") and (row := plain.cells(line))]
    found += [finding for row in rows if (finding := _finding(f"{row[0]}: {' – '.join(row[1:])}")).where]
    return tuple(found)


def _finding(item: str) -> Finding:
    match = _PLACE.match(item)
    if match is None:
        return Finding(plain.undecorated(item))
    return Finding(plain.undecorated(match[2]), match[1].replace("\\", "/").removeprefix("./"))


@dataclass(frozen=True)
class WholeFiles(ReplyFormat):
    """Complete files, path → text. facts["paths"]: when given, the only paths that may be written."""

    files: dict[str, str]

    FORMAT: ClassVar[str] = """\
Write each file completely: its path alone on a line, then its whole content in a fenced block. Leave nothing out: no "..." for parts
that did not change.

shop/price.py
```python
def net(cents: int) -> int:
    return cents
```
"""

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        files = file_blocks(text)
        if not files:
            raise BadReply("Your reply has no file: write the path alone on a line, then the whole file in a fenced block.")
        examples = cls.format(facts) + str(facts.get("example", ""))
        if copied := [path for path, content in files.items() if len(content) >= 40 and content.strip() in examples]:
            raise BadReply(f"{', '.join(copied)} is copied from the prompt's example. Write the files of this program.")
        allowed = facts.get("paths")
        if allowed is not None and (foreign := sorted(set(files) - set(allowed))):
            raise BadReply(f"You may not write {', '.join(foreign)}. Write only: {', '.join(sorted(allowed))}.")
        return cls(files)

    @property
    def tree(self) -> dict[str, bytes]:
        return {path: text.encode() for path, text in self.files.items()}
