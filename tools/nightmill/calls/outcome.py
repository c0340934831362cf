"""What happens after a call that gave no verdict on the model. Nobody is charged; each kind waits, asks differently, or gives up.

One table, pure functions: the caller does the waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nightmill.errors import ConfigError, NightmillError, NoProvider, NoUsableReply, Waiting
from nightmill.providers.base import Kind, NoVerdict

LOAD_DEADLINE_S = 600.0
"""A model of 180 GB from a hard disk takes about this long."""
LONGEST_WISH_S = 900.0
"""A server that asks us (Retry-After) to stay away longer than this is given up for now."""
GROWTH = 2
"""Factor on `max_tokens` when a reply was cut off."""

Change = Literal["nothing", "seed", "max_tokens"]


@dataclass(frozen=True)
class Policy:
    """`tries` counts calls, the first one included; waits are `first_wait_s`, then times `factor`, never above `cap_s`, in seconds."""

    tries: int
    then: type[NightmillError]
    remedy: str
    """Completes "X failed: "; names the setting to change."""
    first_wait_s: float = 0.0
    factor: float = 2.0
    cap_s: float = 64.0
    change: Change = "nothing"
    """What the next call must do differently: the same request would fail the same way."""
    charges: bool = False

    def wait_s(self, tries_so_far: int) -> float:
        """After this many calls, without a wish of the server."""
        return min(self.cap_s, self.first_wait_s * self.factor ** min(tries_so_far - 1, 64))

    def waited_s(self, tries_so_far: int) -> float:
        """All waits before the last of these calls."""
        return sum(self.wait_s(n) for n in range(1, tries_so_far))


UNLIMITED = 1_000_000

TABLE: Mapping[Kind, Policy] = {
    "unreachable": Policy(6, NoProvider, "start the server or correct `url`", first_wait_s=1),
    "unauthorized": Policy(1, NoProvider, "put a valid key into the variable named by `api_key_env`, or into `api_key_file`"),
    "no_model": Policy(1, NoProvider, "correct `model`, or `url` if the address is wrong"),
    "rate_limited": Policy(8, NoProvider, "wait for the limit to pass and run doit again, or name another provider", first_wait_s=2),
    "loading": Policy(UNLIMITED, Waiting, "run doit again when the model is loaded", first_wait_s=1, cap_s=10),
    "server_error": Policy(5, NoProvider, "look into the server's log, then run doit again", first_wait_s=2),
    "bad_request": Policy(1, NoProvider, "the server refuses what was sent: correct `url` or `model`, or use another server"),
    "too_large": Policy(1, ConfigError, "raise the server's context, or set `context` to its real size so that prompts are cut to fit"),
    "dropped": Policy(4, NoProvider, "look into the server's log, then run doit again", first_wait_s=1, factor=4),
    "idle": Policy(
        2, NoProvider, "see whether the server still works; raise `idle_s` or `first_token_s` if it is only slow", first_wait_s=5
    ),
    "length": Policy(2, NoUsableReply, "raise `max_tokens`, or name a model that comes to an end", change="max_tokens"),
    "empty": Policy(3, NoUsableReply, "raise `max_tokens` if the model only reasons, or name another `model`", change="seed"),
    "loop": Policy(3, NoUsableReply, "raise `temperature`, or name another `model`", change="seed"),
    "garbage": Policy(3, NoProvider, "see what answers at `url`: it is not a model server's event stream", first_wait_s=2),
}
"""Numbers of tries and waits are choices of ours: a server's restart (half a minute) is outlived, a wrong address is told within a minute.

`length`: asked once more with twice the budget; a second cut ends as NoUsableReply, because no provider could answer within what is allowed
and the remedy is a setting, not the work. `too_large` is a ConfigError: prompts are fitted to the window before they are sent, so the
window we were told is wrong.
"""


@dataclass(frozen=True)
class Wait:
    """Ask again after `seconds`. `change`: `seed` = another seed and a higher temperature; `max_tokens` = GROWTH times as many."""

    seconds: float
    change: Change = "nothing"


@dataclass(frozen=True)
class GiveUp:
    error: NightmillError


def next_step(
    kind: Kind,
    tries_so_far: int,
    retry_after: float | None = None,
    *,
    waited_s: float | None = None,
    load_deadline_s: float = LOAD_DEADLINE_S,
    provider: str = "",
    detail: str = "",
    remedy: str = "",
) -> Wait | GiveUp:
    """`tries_so_far` ≥ 1 counts the calls for one question that ended with `kind`; `retry_after` is the server's wish in seconds.

    `waited_s`: how long this call has waited for loading already; without it the waits of the table are added up.
    """
    policy = TABLE[kind]
    if waited_s is None:
        waited_s = policy.waited_s(tries_so_far)
    wait = policy.wait_s(tries_so_far) if retry_after is None else retry_after
    if kind == "loading":
        left = load_deadline_s - waited_s
        if left > 0:
            return Wait(min(max(wait, policy.first_wait_s), left))
    elif tries_so_far < policy.tries and wait <= LONGEST_WISH_S:
        return Wait(wait, policy.change)
    return GiveUp(policy.then(f"{_sentence(kind, tries_so_far, retry_after, provider, detail)}: {remedy or policy.remedy}"))


def after(error: NoVerdict, tries_so_far: int, *, provider: str, waited_s: float | None = None) -> Wait | GiveUp:
    """`next_step` of a failed call."""
    return next_step(
        error.kind, tries_so_far, error.retry_after, waited_s=waited_s, provider=provider, detail=error.detail, remedy=error.remedy
    )


def _sentence(kind: Kind, tries: int, retry_after: float | None, provider: str, detail: str) -> str:
    who = f"provider {provider}" if provider else "the provider"
    what = " ".join((detail or kind.replace("_", " ")).split()).rstrip(".")
    often = f" ({tries} tries)" if tries > 1 else ""
    wish = f" (it asks to wait {retry_after:.0f} s)" if retry_after is not None and retry_after > LONGEST_WISH_S else ""
    return f"{who}: {what}{often}{wish}"
