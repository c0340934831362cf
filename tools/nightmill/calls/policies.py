"""The fixed table over every class of outcome: data only. `calls/outcome` reads it.

Three classes. *No verdict*: nothing was shown that says anything about an agent's work, so nobody is charged; the call waits, is asked
differently, goes to another backend, or the run parks. *Verdict*: the work of an agent was judged, and that agent is charged (a reviewer's
remark judges nobody). *Terminal*: the run stops at its best state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from nightmill.errors import (
    EXIT_BUG,
    ConfigError,
    MachineError,
    NightmillError,
    NoProvider,
    NoUsableReply,
    OutOfBudget,
    RunLocked,
    StageFailed,
    Stopped,
    UsageError,
    Waiting,
)

LOAD_DEADLINE_S = 600.0
"""A model of 180 GB from a hard disk takes about this long."""
LONGEST_WISH_S = 900.0
"""A server that asks us (Retry-After) to stay away longer than this is given up for now."""
LEAST_WISH_S = 1.0
"""A shorter wish, or a moment in the past, is none: its tries would be used up within a second. The header counts whole seconds."""
GROWTH = 2
"""Factor on `max_tokens` when a reply was cut off."""
UNLIMITED = 1_000_000

Class = Literal["no verdict", "verdict", "terminal"]
Change = Literal["nothing", "seed", "max_tokens", "start over", "rule shown"]
Rotate = Literal["no", "at once", "last"]


@dataclass(frozen=True)
class Policy:
    """One row. `tries` counts calls, the first one included; waits are `first_wait_s`, then times `factor`, never above `cap_s` (seconds).

    A Retry-After of the server stands in for the wait of any row, from LEAST_WISH_S up to LONGEST_WISH_S.
    """

    tries: int
    then: type[NightmillError] | None
    """What the run parks with; None where the work simply goes on, or for a bug of ours."""
    remedy: str
    """What the person can do. For a failed call it completes "X failed: " and names the setting to change."""
    first_wait_s: float = 0.0
    factor: float = 2.0
    cap_s: float = 64.0
    change: Change = "nothing"
    """What the next try must do differently: the same request would fail the same way."""
    rotate: Rotate = "at once"
    """When another backend of the role may be asked: instead of waiting here, only when this one is given up (`last`), or never."""
    of: Class = "no verdict"
    charges: bool = False
    """Whom: the agent that wrote what was judged, or nobody."""
    nobody: str = "no reply came that could be judged"
    """Why nobody is charged, where `charges` is false."""
    limit: str = ""
    """The option of run.yaml that holds the number of tries, where `tries` is only its default."""

    def wait_s(self, tries_so_far: int) -> float:
        """After this many calls, without a wish of the server."""
        return min(self.cap_s, self.first_wait_s * self.factor ** min(tries_so_far - 1, 64))

    def waited_s(self, tries_so_far: int) -> float:
        """All waits before the last of these calls."""
        return sum(self.wait_s(n) for n in range(1, tries_so_far))

    @property
    def exit_code(self) -> int | None:
        """Of a run that parks with this; None where the work goes on."""
        return self.then.exit_code if self.then else EXIT_BUG if self.of == "terminal" else None


ATTEMPTS_LIMIT = "build.max_iterations"
_LOG = "look into the server's log, then run doit again"
_EDIT = "a person's edit waits for that person"


def _parks(then: type[NightmillError], remedy: str, nobody: str) -> Policy:
    return Policy(1, then, remedy, rotate="no", nobody=nobody)


def _judged(then: type[NightmillError] | None, remedy: str) -> Policy:
    """As many tries as run.yaml says, each shown what was wrong with the last."""
    return Policy(6, then, remedy, change="rule shown", rotate="no", of="verdict", charges=True, limit=ATTEMPTS_LIMIT)


def _ends(then: type[NightmillError] | None, remedy: str, nobody: str) -> Policy:
    return Policy(1, then, remedy, rotate="no", of="terminal", nobody=nobody)


TABLE: Mapping[str, Policy] = {
    # no verdict: a call. One row for every providers.base.Kind.
    "unreachable": Policy(6, NoProvider, "start the server or correct `url`", first_wait_s=1),
    "unauthorized": Policy(1, NoProvider, "put a valid key into the variable named by `api_key_env`, or into `api_key_file`"),
    "no_quota": Policy(1, NoProvider, "pay the account up or wait for its quota, or name another `provider`; then run doit again"),
    "no_model": Policy(1, NoProvider, "correct `model`, or `url` if the address is wrong"),
    "rate_limited": Policy(8, NoProvider, "wait for the limit to pass and run doit again, or name another provider", first_wait_s=2),
    "loading": Policy(UNLIMITED, Waiting, "run doit again when the model is loaded", first_wait_s=1, cap_s=10),
    "server_error": Policy(5, NoProvider, _LOG, first_wait_s=2),
    "stream_error": Policy(5, NoProvider, _LOG, first_wait_s=2),
    "bad_request": Policy(1, NoProvider, "the server refuses what was sent: correct `url` or `model`, or use another server"),
    "too_large": Policy(1, ConfigError, "raise the server's context, or set `context` to its real size so that prompts are cut to fit"),
    "truncated": Policy(
        1,
        ConfigError,
        "raise the server's context (Ollama: `num_ctx` or OLLAMA_CONTEXT_LENGTH), or set `context:` to its real size so that prompts are"
        " cut to fit",
    ),
    "dropped": Policy(4, NoProvider, _LOG, first_wait_s=1, factor=4),
    "idle": Policy(
        2, NoProvider, "see whether the server still works; raise `idle_s` or `first_token_s` if it is only slow", first_wait_s=5
    ),
    "length": Policy(2, NoUsableReply, "raise `max_tokens`, or name a model that comes to an end", change="max_tokens", rotate="last"),
    "empty": Policy(3, NoUsableReply, "raise `max_tokens` if the model only reasons, or name another `model`", change="seed"),
    "reasoning_only": Policy(
        3, NoUsableReply, "raise `reasoning_tokens`, or name a `model` that thinks less", change="max_tokens", rotate="last"
    ),
    "refusal": Policy(3, NoUsableReply, "name another `model`, or reword the mission if it asks for what this one refuses", change="seed"),
    "loop": Policy(3, NoUsableReply, "raise `temperature`, or name another `model`", change="seed"),
    "html": Policy(4, NoProvider, "see what answers at `url`: a proxy or a web site, not a model server", first_wait_s=2),
    "bad_utf8": Policy(3, NoUsableReply, "update the server or name another `model`: it sends bytes that are no UTF-8", change="seed"),
    "garbage": Policy(3, NoProvider, "see what answers at `url`: it is not a model server's event stream", first_wait_s=2),
    "restarted": Policy(3, NoProvider, "switch off continuing on the server, or use another one", change="start over", rotate="no"),
    # no verdict: machine, person, process.
    "no_usable_reply": Policy(
        1, NoUsableReply, "follow the remedy of the call that failed, then run doit again", rotate="last", limit=ATTEMPTS_LIMIT
    ),
    "no_provider": _parks(NoProvider, "follow the remedy of the call that failed, then run doit again", "nobody answered"),
    "not_run": _parks(MachineError, "see which step could not run, and install what it needs", "no command ran, so none failed"),
    "trouble": _parks(MachineError, "mend the machine or the sandbox, then run doit again", "machine or sandbox failed, not the code"),
    "waiting": _parks(Waiting, "run doit again when what it waits for is there", "it only waits for a server, a file or a person"),
    "held": _parks(Waiting, "keep your text: nightmill keep STAGE; remake it: nightmill redo STAGE; both: nightmill merge STAGE", _EDIT),
    "locked": _parks(RunLocked, "wait for the other process to end", "another process works in this run"),
    "killed": _parks(Stopped, "run doit again: it goes on from there", "the process ended before the reply did"),
    "stopped": _parks(Stopped, "run doit again: it goes on from there", "a signal stopped the run"),
    # verdict: the agent that wrote it is charged.
    "unparseable": replace(_judged(StageFailed, "name a larger `model` for the role"), tries=3, limit=""),
    "edit_refused": _judged(None, "nothing: the next attempt is shown the reason"),
    "build_failed": _judged(OutOfBudget, "raise build.max_iterations, or name a larger `model`"),
    "incomplete": _judged(OutOfBudget, "see the gate's last step: it did not come to an end that proves something"),
    "tests_failed": _judged(OutOfBudget, f"raise {ATTEMPTS_LIMIT}, edit contract.md, acceptance/ or plan.md, or name a larger `model`"),
    "rejected": replace(
        _judged(None, "read deviations.md, and edit what the reviewer is right about"),
        tries=1, change="nothing", charges=False, limit="", nobody="a reviewer comments and decides nothing",
    ),
    # terminal: stop at the best state.
    "failed": _ends(StageFailed, "do what the reason says, then run doit again", "its attempts were charged one by one"),
    "out_of_budget": _ends(OutOfBudget, "raise the cap in run.yaml and run doit again: the best is kept", "a cap was reached"),
    "configuration": _ends(ConfigError, "correct run.yaml or the environment as the reason says", "a setting is wrong"),
    "usage": _ends(UsageError, "correct the file or the command as the reason says", "a person's file or command is wrong"),
    "bug": _ends(None, "report the traceback that the run printed", "nightmill itself failed"),
}  # fmt: skip
"""Numbers of tries and waits are choices of ours: a server's restart (half a minute) is outlived, a wrong address is told within a minute.

`length`: asked once more with GROWTH times the budget; a second cut ends as NoUsableReply, because no provider could answer within what is
allowed and the remedy is a setting, not the work. `too_large` and `truncated` are ConfigErrors: prompts are fitted to the window before
they are sent, so the window we were told is wrong. `html` waits as long as a proxy needs to see its server restarted.
"""
