"""The demo answered by fake servers over HTTP, and what must be the same in every run of it, whatever happened on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_server import FakeServer
from nightmill import demo
from nightmill.config import read_yaml
from nightmill.fake import scenario
from nightmill.run.events import CallFinished, Event
from nightmill.scaffold import Answering
from runs import DOIT, Ran, environment, events_of, product, run

HURRIED = [sys.executable, "-P", str(Path(__file__).with_name("hurried_doit.py"))]
MODEL = "fake-model"
Entry = Mapping[str, Any]
"""One of a scenario's `faults`."""


def serve(*faults: Entry, **given: Any) -> FakeServer:
    """A server with the demo's replies, as `nightmill fake-server` would start it."""
    rules = [scenario.rule(fault, "test") for fault in faults]
    return FakeServer(settings=scenario.DEFAULTS, rules=rules, replies=demo.EXAMPLE / "replies", **{"window": 32768} | given)


def laid_out(base: Path) -> Path:
    """The demo, not run yet; `point` it somewhere."""
    return demo.prepare(base, Answering(model=MODEL))


def point(root: Path, *servers: FakeServer, budgets: Mapping[str, Any] | None = None, **provider: Any) -> None:
    """run.yaml with these servers, in order of preference; `provider` are options of each."""
    raw = dict(read_yaml(root / "run.yaml", such_as="source: v1"))
    raw["providers"] = {f"p{n}": {"url": server.url, **provider} for n, server in enumerate(servers)}
    raw["models"] = {"default": [{"provider": name, "model": MODEL} for name in raw["providers"]]}
    raw["gates"] = {"mutants": 0}
    raw["budgets"] = dict(budgets or {})
    (root / "run.yaml").write_text(json.dumps(raw))


def made(root: Path) -> dict[str, bytes]:
    """Every artifact."""
    return {path: data for path, data in product(root).items() if path != "run.yaml"}


@dataclass(frozen=True)
class Judged:
    """What was asked and who was charged."""

    answered: tuple[str, ...]
    """Labels of the calls that came to an end; stages beside each other have no order."""
    attempts: tuple[tuple[str, int, str, bool], ...]
    """Stage, number, outcome, whether it was charged."""
    refused: tuple[str, ...]

    @classmethod
    def of(cls, events: Iterable[Event]) -> Judged:
        log = list(events)
        return cls(
            tuple(sorted(e.label for e in log if e.kind == "call_finished" and e.outcome == "ok" and not e.replayed)),
            tuple(sorted({(e.stage, e.attempt, e.outcome, e.charged) for e in log if e.kind == "attempt_finished"})),
            tuple(e.label for e in log if e.kind == "reply_refused"),
        )


def judged(root: Path) -> Judged:
    return Judged.of(events_of(root))


def failures(events: Iterable[Event]) -> list[CallFinished]:
    return [e for e in events if e.kind == "call_finished" and e.outcome != "ok"]


def charged(events: Iterable[Event]) -> list[Event]:
    """What counts against an agent."""
    return [e for e in events if e.kind in ("reply_refused", "edit_refused") or (e.kind == "attempt_finished" and e.charged)]


def ending(ran: Ran) -> str:
    """The only line that says how a run ended, as cron would mail it."""
    (line,) = [line for line in (ran.out + ran.err).splitlines() if "(exit " in line]
    return line


@dataclass(frozen=True)
class Row:
    """What a fault that never ends leads to, and whether a run outlives it when it comes once."""

    exit: int
    outcome: str
    """Of the last call; `ok` where it does no harm."""
    says: str
    """A part of the remedy."""
    passes: bool = True
    """Whether the same server is asked again."""
    given: tuple[tuple[str, Any], ...] = ()
    before: str = ""
    """A fault that makes room for this one."""
    provider: tuple[tuple[str, Any], ...] = ()


LOG = "look into the server's log"
URL = "see what answers at `url`"
SILENT = (("idle_s", 0.7), ("first_token_s", 0.7))
ROWS = {
    "loading": Row(75, "loading", "run doit again when the model is loaded"),
    "rate_limited": Row(77, "rate_limited", "wait for the limit to pass"),
    "no_quota": Row(77, "no_quota", "pay the account up", passes=False),
    "server_error": Row(77, "server_error", LOG),
    "stream_error": Row(77, "stream_error", LOG),
    "unauthorized": Row(77, "unauthorized", "`api_key_env`", passes=False),
    "no_model": Row(77, "no_model", "correct `model`", passes=False),
    "bad_request": Row(77, "bad_request", "correct `url` or `model`", passes=False),
    "too_large": Row(78, "too_large", "set `context` to its real size", passes=False),
    "truncated": Row(78, "truncated", "OLLAMA_CONTEXT_LENGTH", passes=False),
    "drop": Row(77, "dropped", LOG),
    "no_finish": Row(77, "dropped", LOG),
    "hang": Row(77, "idle", "raise `idle_s`", provider=SILENT),
    "stall": Row(77, "idle", "`first_token_s`", provider=SILENT),
    "length": Row(77, "length", "raise `max_tokens`"),
    "empty": Row(77, "empty", "name another `model`"),
    "reasoning_only": Row(77, "reasoning_only", "raise `reasoning_tokens`"),
    "refusal": Row(77, "refusal", "reword the mission"),
    "loop": Row(77, "loop", "raise `temperature`"),
    "flood": Row(77, "length", "raise `max_tokens`"),
    "html": Row(77, "html", URL),
    "bad_utf8": Row(77, "bad_utf8", "update the server"),
    "garbage": Row(77, "garbage", URL),
    "no_stream": Row(77, "garbage", URL),
    "wrong_model": Row(0, "ok", ""),
    "dead": Row(77, "unreachable", "start the server", given=(("s", 3600),)),
    "restart_continuation": Row(77, "restarted", "switch off continuing", before="drop"),
    "repeat_continuation": Row(77, "restarted", "switch off continuing", before="drop"),
    "refuse_continuation": Row(77, "dropped", LOG, before="drop"),
}
"""Name of a fault's builder → what it must lead to. The remedies are those of DESIGN's table, in its words."""


def always(fault: str, **more: Any) -> list[Entry]:
    row = ROWS[fault]
    entries = [{"fault": fault, "times": "always", **dict(row.given), **more}]
    return [*entries, {"fault": row.before, "times": "always", **more}] if row.before else entries


NIGHT: tuple[Entry, ...] = (
    {"at": "contract:1#1", "fault": "loading"},
    {"at": "contract_review:1#1", "fault": "rate_limited", "times": 3, "retry_after": 0.1},
    {"at": "contract:2#1", "fault": "empty", "times": 2},
    {"at": "contract_review:2#1", "fault": "refusal"},
    {"at": "analysis#1", "fault": "html"},
    {"at": "test_matrix#1", "fault": "length"},
    {"at": "schema#1", "fault": "stream_error"},
    {"at": "plan#1", "fault": "drop", "after": 500},
    {"at": "tests#1", "fault": "hang", "after": 6000},
    {"at": "implement:money#1", "fault": "reasoning_only"},
    {"at": "implement:money/*", "fault": "garbage"},
    {"at": "implement:money#2", "fault": "no_finish", "after": 300},
    {"at": "implement:money#2", "fault": "repeat_continuation"},
    {"at": "implement:slip#1", "fault": "dead", "s": 0.1},
    {"at": "implement:slip#1", "fault": "drop", "after": 3000},
    {"at": "implement:slip#1", "fault": "restart_continuation"},
    {"at": "implement:slip/*", "fault": "bad_utf8"},
    {"at": "implement:receipt#1", "fault": "loop"},
    {"at": "implement:receipt#1", "fault": "drop", "after": 2000},
    {"at": "implement:receipt#1", "fault": "refuse_continuation"},
    {"at": "implement:receipt/*", "fault": "flood"},
    {"at": "production_review#1", "fault": "server_error", "times": 3},
    {"at": "formal_review#1", "fault": "stall"},
    {"at": "ip_review#1", "fault": "no_stream"},
    {"at": "ip_review#1", "fault": "wrong_model"},
)
"""Every fault that passes by itself, once at least; several in the middle of one milestone."""
CONTINUED = {"schema#1", "plan#1", "tests#1", "implement:money#2", "implement:slip#1", "implement:receipt#1"}
WORSE: tuple[Entry, ...] = (
    {"at": "contract_review:1#1", "fault": "no_quota"},
    {"at": "schema#1", "fault": "unauthorized"},
    {"at": "implement:money#2", "fault": "too_large"},
    {"at": "implement:receipt#1", "fault": "no_model"},
    {"at": "implement:receipt/security_reviewer#1", "fault": "truncated"},
    {"at": "production_review#1", "fault": "bad_request"},
)
"""Those that a person must mend."""


@dataclass(frozen=True)
class Whole:
    made: dict[str, bytes]
    judged: Judged


def uninterrupted(base: Path) -> Whole:
    root = laid_out(base)
    with serve() as server:
        point(root, server)
        done = run(root)
    assert done.code == 0, done.out + done.err
    return Whole(made(root), judged(root))


def check_same(root: Path, whole: Whole) -> None:
    files = made(root)
    assert {path for path in {*files, *whole.made} if files.get(path) != whole.made.get(path)} == set()
    assert judged(root) == whole.judged


def killed(root: Path, *arguments: str, when: Callable[[], bool]) -> bool:
    """Starts doit and kills it as soon as `when`; False when it had ended before."""
    with subprocess.Popen(
        [*DOIT, *arguments], cwd=root, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as child:
        while child.poll() is None:
            if when():
                child.kill()
                return True
            time.sleep(0.01)
        assert child.returncode == 0, child.stdout and child.stdout.read().decode()
    return False


def in_a_while(root: Path, seconds: float) -> Callable[[], bool]:
    """Turns true so long after the next call has begun: before that nothing is at stake."""
    log, ends = root / ".nightmill" / "events.jsonl", [0.0]
    seen = log.stat().st_size if log.exists() else 0

    def passed() -> bool:
        if not ends[0] and log.exists() and b'"call_started"' in log.read_bytes()[seen:]:
            ends[0] = time.monotonic() + seconds
        return 0 < ends[0] < time.monotonic()

    return passed


def received(root: Path) -> int:
    """Bytes of the answer that is on its way."""
    return sum(path.stat().st_size for path in (root / ".nightmill" / "calls").glob("*.partial"))


def states(root: Path) -> str:
    """What `nightmill providers` says of the first and the second server."""
    lines = run(root, "providers", command=[str(Path(sys.executable).with_name("nightmill"))]).out.splitlines()
    return " ".join(next(line for line in lines if line.startswith(name)).split()[1] for name in ("p0", "p1"))
