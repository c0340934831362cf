"""Whether a server could answer a call now, asked so that it neither loads nor moves anything: a person may look every other second."""

from __future__ import annotations

from dataclasses import dataclass

from nightmill.providers.sse import count
from nightmill.providers.wire import Wire, at


@dataclass(frozen=True)
class Alive:
    """`window`: tokens of one slot, None when the server does not tell. `known`: it has a route that a model server has."""

    window: int | None
    known: bool


def alive(wire: Wire) -> Alive:
    """Raises NoVerdict when no call could be answered.

    /health comes first: a llama-server that loads lists its models all the same. /models refuses a wrong key.
    """
    health = wire.ask("/health")
    props = wire.ask("/props")
    settings = at(props, "default_generation_settings")
    models = wire.ask("/models") if settings is None else None
    return Alive(count(at(settings, "n_ctx")), any(isinstance(said, dict) for said in (health, props, models)))
