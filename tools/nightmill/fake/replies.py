"""Replies from files over HTTP: the scripted provider's look-up and its directives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nightmill.errors import MachineError, UsageError
from nightmill.fake.answers import Answer, Http, Recorded, Say, error, html, invalid_utf8, loading
from nightmill.fake.faults import FAULTS, Turn
from nightmill.providers.base import NoVerdict
from nightmill.providers.scripted import Directive, Scripted, split_directive


def from_files(folder: Path) -> Callable[[Recorded], Answer]:
    """Answers by the label of the request."""
    files = Scripted("replies", folder)

    def answer(request: Recorded) -> Answer:
        try:
            path, text = files.find(request.label)
            directive, text = split_directive(text, path)
        except NoVerdict as missing:
            return error(404, f"model not found: {missing.detail}; {missing.remedy}", "not_found_error")
        except (UsageError, MachineError) as mistake:
            return error(500, str(mistake), "server_error")
        return _directed(directive, text, request)

    return answer


def _directed(directive: Directive, text: str, request: Recorded) -> Answer:
    if directive.garbage:
        return _GARBAGE[directive.garbage]()
    if directive.error.isdigit():
        return loading() if directive.error == "503" else error(int(directive.error), "on demand")
    cut, timing = directive.cut, {"stall": directive.stall, "delay": directive.delay}
    shown = text if cut is None else text[:cut]
    finish = directive.finish if cut is None else None
    told = {"think": shown} if directive.reasoning else {"text": shown}
    say = Say(**told, finish=finish, chunk=directive.chunk, **timing)  # type: ignore[arg-type]  # a mapping per type
    return (FAULTS[directive.error](Turn(request, 0, say, say)) or say) if directive.error else say


_GARBAGE: dict[str, Callable[[], Answer]] = {
    "html": html,
    "utf8": invalid_utf8,
    "json": lambda: Http(200, b'{"choices": []}', {"Content-Type": "application/json"}),
}
