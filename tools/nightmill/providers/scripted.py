"""Replies from files, with faults on demand: the whole pipeline runs without a model.

    <!-- scripted: stall=2 chunk=40 delay=0.01 cut=120 finish=length error=503 garbage=html reasoning=1 -->

may be a reply file's first line. It is not part of the reply. What a resumed call has written of it is not sent again.

    stall=SECONDS    before the first piece          cut=CHARS       the stream ends there, without a stop reason; resumed, it goes on
    chunk=CHARS      size of a piece                 finish=REASON   the stop reason (`stop`)
    delay=SECONDS    between two pieces              error=STATUS    an HTTP status, or the name of a failure (`rate_limited`)
    reasoning=1      all of it is reasoning          garbage=html    or `utf8`, `json`
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args

from nightmill.errors import Stopped, UsageError, machine_trouble
from nightmill.providers.answer import Answer
from nightmill.providers.base import USUAL, Kind, NoVerdict, Reply, Request, Terms
from nightmill.providers.exchange import POLL_S
from nightmill.providers.failures import Failures
from nightmill.providers.sse import Usage

WINDOW = 131_072
CHARS_PER_TOKEN = 4
"""The usual rule of thumb for English and code; every count of this provider is such an estimate."""

_DIRECTIVE = re.compile(r"\ufeff?<!--\s*scripted:(.*?)-->[ \t]*\r?(?:\n|\Z)")
_LABEL = re.compile(r"(?P<path>.+?)(?:#(?P<number>\d+))?")
_GARBAGE: Mapping[str, Callable[[Failures], NoVerdict]] = {
    "html": lambda failures: failures.html("an HTML page instead of an answer"),
    "utf8": lambda failures: failures.bad_utf8("invalid UTF-8"),
    "json": lambda failures: failures.garbage("JSON instead of an event stream"),
}


@dataclass(frozen=True)
class Directive:
    stall: float = 0.0
    chunk: int = 40
    delay: float = 0.0
    cut: int | None = None
    finish: str = "stop"
    error: str = ""
    garbage: str = ""
    reasoning: bool = False


class Scripted:
    """The reply to `STAGE#N` is `folder/STAGE.N.md`, to `STAGE/ROLE#N` it is `folder/STAGE/ROLE.N.md` (`:` in a label is `-` in a name);
    the same name without `.N` answers every try that has no file of its own.

    It keeps no state: the same request always gets the same reply. Raises NoVerdict (`no_model`) naming the file that is missing.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder

    def complete(self, request: Request, on_text: Callable[[str], None], stopping: Callable[[], bool], terms: Terms = USUAL) -> Reply:
        started = time.monotonic()
        path, text = self.find(request.label)
        directive, text = split_directive(text, path)
        _wait(directive.stall, stopping)
        self._fail_on_demand(directive)
        resume = terms.resume.rstrip()
        if not text.startswith(resume):
            raise NoVerdict("restarted", f"{path} does not begin as the answer that is to be continued")
        answer = Answer(request, on_text, terms)
        whole = directive.cut is None or bool(resume)
        sent = text[len(resume) :] if whole else text[: directive.cut]
        first = time.monotonic() - started
        for start in range(0, len(sent), directive.chunk):
            if start:
                _wait(directive.delay, stopping)
            piece = sent[start : start + directive.chunk]
            answer.add(*(("", piece) if directive.reasoning else (piece, "")))
        prompt = sum(estimate(message.content) for message in request.messages)
        usage = Usage(prompt, 0, estimate(sent), prompt)
        try:
            finish = directive.finish if whole else ""
            return answer.reply(finish, request.model, usage, time.monotonic() - started, first, estimated=True)
        except NoVerdict as error:
            error.spent = usage.spent(time.monotonic() - started, first)
            raise

    def window(self, model: str) -> int | None:
        return WINDOW

    def probe(self, model: str) -> int | None:
        return WINDOW

    def continues(self, model: str) -> bool:
        return True

    def count(self, text: str) -> int | None:
        """An estimate, see CHARS_PER_TOKEN."""
        return estimate(text)

    def close(self) -> None: ...

    def find(self, label: str) -> tuple[Path, str]:
        """The reply file of a label and its text, directive included. Raises NoVerdict (`no_model`) and UsageError."""
        match = _LABEL.fullmatch(label.replace(":", "-"))
        parts = match["path"].split("/") if match else []
        if match is None or not all(part.strip(".") and "\0" not in part for part in parts):
            raise NoVerdict("no_model", f"{self.name}: no file can be named after {label!r}")
        stem = self._folder.joinpath(*parts)
        exact = stem.with_name(f"{stem.name}.{match['number'] or 1}.md")
        for path in (exact, stem.with_name(f"{stem.name}.md")):
            try:
                with machine_trouble():
                    return path, path.read_text(encoding="utf-8")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (IsADirectoryError, UnicodeDecodeError) as error:
                raise UsageError(f"{path} is not a text file: put the reply there as UTF-8") from error
        raise NoVerdict("no_model", f"no scripted reply for {label}", remedy=f"write {exact}")

    def _fail_on_demand(self, directive: Directive) -> None:
        failures = Failures(self.name)
        if directive.garbage:
            raise _GARBAGE[directive.garbage](failures)
        if directive.error.isdigit():
            said = b'{"error": {"message": "Loading model"}}' if directive.error == "503" else b""
            raise failures.status(int(directive.error), {}, said)
        for kind in get_args(Kind):
            if kind == directive.error:
                raise NoVerdict(kind, f"{self.name}: on demand")


def estimate(text: str) -> int:
    """Tokens, estimated."""
    return -(-len(text) // CHARS_PER_TOKEN)


def split_directive(text: str, path: Path) -> tuple[Directive, str]:
    """The directive of the first line and the text below it. Raises UsageError for an unknown name or a value that does not fit."""
    match = _DIRECTIVE.match(text)
    if match is None:
        return Directive(), text
    values: dict[str, object] = {}
    for word in match[1].split():
        name, _, value = word.partition("=")
        if name not in _READERS:
            near = difflib.get_close_matches(name, _READERS, n=1)
            raise UsageError(f"{path}: unknown directive {name!r}: {f'did you mean {near[0]!r}' if near else 'use ' + ', '.join(_READERS)}")
        try:
            values[name] = _READERS[name](value)
        except ValueError as error:
            raise UsageError(f"{path}: {name}={value}: {error}") from error
    return Directive(**values), text[match.end() :]  # type: ignore[arg-type]  # each reader returns its field's type


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0 <= seconds <= 86_400:
        raise ValueError("give seconds between 0 and 86400")
    return seconds


def _chars(value: str) -> int:
    return _from(int(value), 0)


def _piece(value: str) -> int:
    return _from(int(value), 1)


def _from(number: int, least: int) -> int:
    if number < least:
        raise ValueError(f"give a number of characters from {least}")
    return number


def _failure(value: str) -> str:
    if value in get_args(Kind) or (value.isdigit() and 400 <= int(value) < 600):
        return value
    raise ValueError(f"give an HTTP status from 400 to 599, or one of {', '.join(get_args(Kind))}")


def _garbage(value: str) -> str:
    if value not in _GARBAGE:
        raise ValueError(f"give one of {', '.join(_GARBAGE)}")
    return value


def _flag(value: str) -> bool:
    if value not in ("0", "1"):
        raise ValueError("give 0 or 1")
    return value == "1"


_READERS: dict[str, Callable[[str], object]] = {
    "stall": _seconds,
    "chunk": _piece,
    "delay": _seconds,
    "cut": _chars,
    "finish": str,
    "error": _failure,
    "garbage": _garbage,
    "reasoning": _flag,
}
assert set(_READERS) == {field.name for field in fields(Directive)}


def _wait(seconds: float, stopping: Callable[[], bool]) -> None:
    """Raises Stopped. Looks at `stopping` even when there is nothing to wait for."""
    end = time.monotonic() + seconds
    while not stopping():
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(POLL_S, left))
    raise Stopped("stopped in the middle of a scripted reply; everything finished is kept, run doit again to go on")
