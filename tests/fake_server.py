"""The fake server that nightmill ships, as tests use it, and a port where nobody is."""

from __future__ import annotations

import socket

from nightmill.fake.answers import (
    Answer,
    Gone,
    Http,
    Raw,
    Recorded,
    Say,
    error,
    event,
    flood,
    html,
    invalid_utf8,
    loading,
    loop,
    too_large,
)
from nightmill.fake.faults import Rule
from nightmill.fake.server import FakeServer, Scenario

__all__ = [
    "Answer",
    "FakeServer",
    "Gone",
    "Http",
    "Raw",
    "Recorded",
    "Rule",
    "Say",
    "Scenario",
    "closed_port",
    "error",
    "event",
    "flood",
    "html",
    "invalid_utf8",
    "loading",
    "loop",
    "too_large",
]


def closed_port() -> int:
    """A port of this machine where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
