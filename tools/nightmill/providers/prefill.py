"""Whether a server goes on behind the beginning of an answer, and in which form it must be asked to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nightmill.providers.base import NoVerdict
from nightmill.providers.continuation import Joint, StartedOver
from nightmill.providers.wire import Wire, at

Form = Mapping[str, bool]
"""Fields to send beside the trailing message of the assistant."""

BARE: Form = {}
"""llama-server: the trailing message is enough."""
NAMED: Form = {"continue_final_message": True, "add_generation_prompt": False}
"""vLLM, and llama-server since it takes either."""

_MARKER = "The zebrafish quorum adjourned near Kirkwall"
_WORDS = tuple(
    re.findall(r"\w+", "copper violin harbor meadow lantern saddle pepper orbit walnut chimney ribbon glacier tunnel mirror basket falcon")
)
_FEW = 6
"""Tokens: enough for the next word, too few to write the first half of the words again."""
_KNOWN = 3
"""Letters of the next word that must be there."""


def form(wire: Wire, model: str, first_token_s: float) -> Form | None:
    """The form in which this model continues, None when it does not. Raises NoVerdict when that cannot be learnt now.

    llama-server shows the prompt that it would make of the messages: nothing may follow the beginning of the answer there. Any other
    server is tried with a few tokens.
    """
    for tried in (BARE, NAMED):
        shown = wire.ask("/apply-template", {"model": model, "messages": _messages(_MARKER), **tried})
        if shown is None:
            return _tried(wire, model, first_token_s)
        prompt = at(shown, "prompt")
        if isinstance(prompt, str) and prompt.endswith(_MARKER):
            return tried
    return None


def _tried(wire: Wire, model: str, first_token_s: float) -> Form | None:
    for tried in (NAMED, BARE):
        try:
            return tried if _goes_on(wire, model, first_token_s, tried) else None
        except NoVerdict as refusal:
            if refusal.kind != "bad_request":
                raise
    return None


def _goes_on(wire: Wire, model: str, first_token_s: float, tried: Form) -> bool:
    half = len(_WORDS) // 2
    begun = " ".join(_WORDS[:half])
    body = {"model": model, "messages": _messages(begun), "temperature": 0, "seed": 0, "max_tokens": _FEW, "stream": True, **tried}
    answer = wire.short(body, first_token_s, "probe:continue")
    joint = Joint(begun)
    try:
        rest = joint.feed(answer.text) + joint.finish()
    except StartedOver:
        return False
    rest = rest.strip()
    return len(rest) >= _KNOWN and " ".join(_WORDS[half:]).startswith(rest[: len(_WORDS[half])].rstrip())


def _messages(begun: str) -> Sequence[Mapping[str, Any]]:
    task = "Repeat these words in this order, separated by single spaces, and write nothing else: " + " ".join(_WORDS)
    return [{"role": "user", "content": task}, {"role": "assistant", "content": begun}]
