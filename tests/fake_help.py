"""The real client in front of the fake server."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import httpx
import pytest

from fake_server import FakeServer, Rule
from nightmill.fake import scenario
from nightmill.providers.base import Message, NoVerdict, Reply, Request, Terms
from nightmill.providers.openai_compat import OpenAICompat

TEXT = "".join(f"Clause {n} promises what no clause before it has promised, with {n * n} grains of salt.\n" for n in range(1, 16))
QUESTION = "Write fifteen clauses. " * 20
SECONDS = 0.8


def request(label: str = "contract:1#1", **given: Any) -> Request:
    fields = {"model": "fake-model", "messages": (Message("user", QUESTION),), "temperature": 0.0, "seed": 1, "max_tokens": 4000}
    return Request(**(fields | given), label=label)  # type: ignore[arg-type]


def client(server: FakeServer, **given: Any) -> OpenAICompat:
    return OpenAICompat("fake", server.url, **({"api_key": None, "idle_s": SECONDS, "first_token_s": SECONDS, "connect_s": 2} | given))


def ask(server: FakeServer, resume: str = "", asked: Request | None = None, **given: Any) -> Reply:
    return client(server, **given).complete(asked or request(), lambda _: None, lambda: False, Terms(resume=resume))


def failure(server: FakeServer, resume: str = "", asked: Request | None = None, **given: Any) -> NoVerdict:
    with pytest.raises(NoVerdict) as caught:
        ask(server, resume, asked, **given)
    return caught.value


def rules(*entries: dict[str, Any]) -> tuple[Rule, ...]:
    return tuple(scenario.rule(entry, "test") for entry in entries)


def post(server: FakeServer, route: str, body: object) -> Any:
    return httpx.post(server.url.removesuffix("/v1") + route, json=body, trust_env=False, verify=False).json()


def get(server: FakeServer, route: str) -> httpx.Response:
    return httpx.get(server.url.removesuffix("/v1") + route, trust_env=False, verify=False)


def wait_for(server: FakeServer) -> float:
    """Seconds until it is well."""
    began = time.monotonic()
    while time.monotonic() < began + 20:
        with suppress(httpx.ConnectError):
            if get(server, "/health").status_code == 200:
                break
        time.sleep(0.02)
    return time.monotonic() - began
