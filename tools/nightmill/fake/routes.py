"""The routes beside chat: what llama-server, vLLM and Ollama tell of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nightmill.fake.answers import Http, Recorded, as_json, error
from nightmill.fake.settings import Settings
from nightmill.fake.slots import Slots, render, tokens

Route = Callable[[Settings, Slots, Recorded], Http | None]
"""None: such a server does not have this route."""
N_CTX_TRAIN = 32_768


def _health(settings: Settings, slots: Slots, request: Recorded) -> Http | None:
    return as_json({"status": "ok"})


def _models(settings: Settings, slots: Slots, request: Recorded) -> Http | None:
    entry: dict[str, Any] = {"id": settings.model, "object": "model", "meta": {"n_ctx_train": N_CTX_TRAIN}}
    told = {"max_model_len": settings.max_model_len} if settings.max_model_len else {}
    return as_json({"object": "list", "data": [entry | told]})


def _props(settings: Settings, slots: Slots, request: Recorded) -> Http | None:
    if settings.window is None:
        return None
    caps = {"supports_system_role": True, "supports_tools": False, "supports_tool_calls": False, "supports_preserve_reasoning": False}
    return as_json(
        {
            "default_generation_settings": {"n_ctx": settings.window},
            "total_slots": settings.slots,
            "model_alias": settings.model,
            "chat_template_caps": caps,
        }
    )


def _slots(settings: Settings, slots: Slots, request: Recorded) -> Http | None:
    if settings.window is None:
        return None
    return as_json(
        [{"id": s.number, "id_task": s.used - 1, "n_ctx": settings.window, "is_processing": s.busy} for s in slots.all]  # -1: never used
    )


def _tokenize(settings: Settings, slots: Slots, request: Recorded) -> Http | None:
    """llama-server's body has `content`, vLLM's has `prompt` or `messages`."""
    if not settings.tokenize:
        return None
    body: Mapping[str, Any] = request.body if isinstance(request.body, dict) else {}
    if isinstance(content := body.get("content"), str):
        return as_json({"tokens": list(range(tokens(content)))})
    text = body.get("prompt", render(request.messages, continues=settings.continues) if request.messages else None)
    if not isinstance(text, str):
        return error(400, "give `content`, `prompt` or `messages`", "invalid_request_error")
    count = tokens(text)
    return as_json({"count": count, "max_model_len": settings.max_model_len or settings.window, "tokens": list(range(count))})


def _apply_template(settings: Settings, slots: Slots, request: Recorded) -> Http | None:
    if settings.window is None:
        return None
    if not request.messages:
        return error(400, "'messages' is required", "invalid_request_error")
    return as_json({"prompt": render(request.messages, continues=settings.continues)})


def _ps(settings: Settings, slots: Slots, request: Recorded) -> Http | None:
    if settings.truncate is None:
        return None
    return as_json({"models": [{"name": settings.model, "model": settings.model, "context_length": settings.truncate}]})


_ROUTES: Mapping[str, Route] = {
    "/health": _health,
    "/models": _models,
    "/props": _props,
    "/slots": _slots,
    "/tokenize": _tokenize,
    "/apply-template": _apply_template,
    "/api/ps": _ps,
}


def route(path: str, settings: Settings, slots: Slots, request: Recorded) -> Http:
    """`path` without `/v1`."""
    found = _ROUTES.get(path)
    return (found and found(settings, slots, request)) or error(404, "File Not Found", "not_found_error")
