"""How many tokens the slot that will answer can hold: as the server says, or measured. Never what the model was trained on."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nightmill.providers.base import NoVerdict
from nightmill.providers.sse import count
from nightmill.providers.wire import Wire, at

FIRST_PROBE = 1_024
"""Tokens of the first measuring prompt; each further one has twice as many."""
PROBE_CAP = 131_072
"""Tokens beyond which nothing is measured: the prompts of a run stay below, and reading them costs minutes."""
NARROW = 0.05
"""The measured window is at most this part below the true one."""
MOST_PROBES = 24
"""Eight doublings and five halvings of the gap are the rule; a server that contradicts itself gets no more than this."""
LAST_PROBE = 64
"""Tokens. A window below this is none."""
_WHOLE = 0.9
"""Of the tokens that a prompt should have, the part below which it was cut: templates and odd tokenizers stay above."""

_LISTED = ("max_model_len", "context_length", "context_window")
"""vLLM, and two hosted dialects, in the entries of /v1/models."""
_NAMED = re.compile(r"context (?:length|size|window)[^0-9]{0,40}([0-9][0-9,]{2,9})|> ([0-9][0-9,]{2,9}) (?:tokens? )?max", re.IGNORECASE)
_FILLER = tuple(re.findall(r"\w+", "time work life day part hand year case week fact home book eye job word side room head house line"))

NOT_LOADED = 0
"""The server knows this model and will have a window for it once it is loaded."""

Asker = Callable[[Wire, str], int | None]


def told(wire: Wire, model: str, wake: Callable[[], object]) -> int | None:
    """The first of ASKERS that says a number; `wake` loads the model where the server must have loaded it to know. Raises NoVerdict."""
    for asker in ASKERS:
        window = asker(wire, model)
        if window == NOT_LOADED:
            wake()
            window = asker(wire, model)
        if window:
            return window
    return None


def _props(wire: Wire, model: str) -> int | None:
    """llama-server: of one slot, after the division by parallel slots. Its router says 0, and more when asked for a model."""
    props = wire.ask("/props")
    if at(props, "default_generation_settings") is None:
        return None
    wire.llama = True
    return _n_ctx(props) or _n_ctx(wire.ask(f"/props?model={quote(model, safe='')}&autoload=true"))


def _models(wire: Wire, model: str) -> int | None:
    entries = _entries(at(wire.ask("/models"), "data"))
    entry = _named(entries, model, "id") or (entries[0] if len(entries) == 1 else {})
    return next(filter(None, [*(count(entry.get(key)) for key in _LISTED), count(at(entry, "meta", "n_ctx"))]), None)


def _ollama(wire: Wire, model: str) -> int | None:
    """Of one request: its parallel requests each have so many."""
    answer = wire.ask("/api/ps")
    if not isinstance(at(answer, "models"), list):
        return None
    entries = _entries(at(answer, "models"))
    entry = next(filter(None, (_named(entries, name, key) for name in (model, f"{model}:latest") for key in ("name", "model"))), None)
    return NOT_LOADED if entry is None else count(entry.get("context_length"))


def _lm_studio(wire: Wire, model: str) -> int | None:
    entry = _named(_entries(at(wire.ask("/api/v0/models"), "data")), model, "id")
    if not entry:
        return None
    return NOT_LOADED if entry.get("state") == "not-loaded" else count(entry.get("loaded_context_length"))


def _llama_swap(wire: Wire, model: str) -> int | None:
    return _n_ctx(wire.ask(f"/upstream/{quote(model, safe='')}/props"))


ASKERS: Sequence[Asker] = (_props, _models, _ollama, _lm_studio, _llama_swap)
"""In this order: the nearest to the slot first, then what is asked of fewer servers."""


def _n_ctx(props: object) -> int | None:
    return count(at(props, "default_generation_settings", "n_ctx"))


def _entries(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _named(entries: Sequence[Mapping[str, Any]], name: str, key: str) -> Mapping[str, Any]:
    return next((entry for entry in entries if entry.get(key) == name), {})


def measured(read: Callable[[str], int | None], cap: int = PROBE_CAP) -> int | None:
    """The largest prompt that was read whole, in tokens, at most NARROW below the largest possible, or about `cap`.

    `read` sends a prompt and returns how many tokens of it the server says that it has read, None when it does not say; its NoVerdict
    `too_large`, or `bad_request` after a smaller one went through, is a refusal. None when the answers show nothing. Raises NoVerdict.
    """
    best, limit, ratio, size = 0, math.inf, 1.0, FIRST_PROBE
    for _ in range(MOST_PROBES):
        if not LAST_PROBE <= size <= cap or best >= limit * (1 - NARROW):
            break
        aim = 0.0
        try:
            tokens = read(filler(size))
        except NoVerdict as refusal:
            if refusal.kind != "too_large" and not (best and refusal.kind == "bad_request"):
                raise
            limit = min(limit, size * ratio)
            named = named_window(refusal.detail)
            if named and best <= named <= limit * (1 + NARROW):
                return named
        else:
            if tokens is None:
                break
            if not best:
                ratio = max(1.0, tokens / size)
            if tokens >= size * ratio * _WHOLE:
                best, ratio = max(best, tokens), max(1.0, tokens / size)
            elif tokens >= best:  # it read as many as it holds
                limit, aim = tokens, tokens * (1 - NARROW / 2)
            else:
                limit = min(limit, size * ratio)
        size = 2 * size if limit == math.inf else int((aim or (best + limit) / 2) / ratio)
    return best or None


def filler(words: int) -> str:
    """About one token a word. Each size begins differently: a server that does not count what it had cached would seem to have cut it."""
    return " ".join([str(words), *(_FILLER[n % len(_FILLER)] for n in range(words - 1))])


def named_window(said: str) -> int | None:
    """The window that a refusal names."""
    match = _NAMED.search(said)
    return int((match[1] or match[2]).replace(",", "")) if match else None
