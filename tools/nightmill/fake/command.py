"""`nightmill fake-server`."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nightmill.errors import ConfigError, UsageError
from nightmill.fake import scenario
from nightmill.fake.faults import Rule
from nightmill.fake.server import FakeServer
from nightmill.fake.settings import Settings
from nightmill.fake.strict import MOST_SLOTS
from nightmill.graph.signals import SIGNALS


def add_fake_server(verbs: Any) -> None:
    """Adds the command to argparse's subparsers."""
    sub = verbs.add_parser(
        "fake-server",
        help="a model server without a model: replies from files, every fault on demand",
        description="Listens on this machine, prints its URL and answers until INT or TERM. It looks like a llama-server to its clients.",
        epilog=epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("--port", metavar="N", type=int, default=0, help="port to listen on (default: a free one)")
    sub.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine alone)")
    sub.add_argument("--scenario", metavar="FILE", type=Path, help="settings and faults, see below")
    sub.add_argument("--replies", metavar="DIR", type=Path, help="reply files, by the label of the call")
    sub.add_argument("--window", metavar="TOKENS", type=int, help="context window of a slot")
    sub.add_argument("--slots", metavar="N", type=int, help="requests answered at once")
    sub.add_argument("--model", metavar="ID", help="what the model is called")
    sub.add_argument("--quiet", action="store_true", help="no line per request on stderr")
    sub.set_defaults(action=fake_server)


def epilog() -> str:
    """The scenario format and the faults."""
    return f"{(scenario.__doc__ or '').strip()}\n\nFaults and their parameters:\n{scenario.described()}\n"


def fake_server(options: argparse.Namespace) -> int:
    """Serves until a signal; returns 0. Raises UsageError and ConfigError."""
    settings, rules = _chosen(options)
    if not options.host:
        raise UsageError("--host: give an address, such as 127.0.0.1; 0.0.0.0 is every one of this machine")
    if not 0 <= options.port <= 65_535:
        raise UsageError(f"--port {options.port}: give a port from 0 to 65535")
    stop = threading.Event()
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
            signal.signal(number, lambda *_: stop.set())  # `timeout` sends its signal twice: that is one wish
    with _server(options, settings, rules) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        stop.wait()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the second one may come while Python ends, and has no handler any more
    return 0


def _chosen(options: argparse.Namespace) -> tuple[Settings, Sequence[Rule]]:
    """The scenario file's settings, under what the command line says."""
    settings, rules = scenario.load(options.scenario) if options.scenario else (scenario.DEFAULTS, ())
    said: dict[str, Any] = {name: getattr(options, name) for name in ("window", "slots", "model") if getattr(options, name) is not None}
    for name, most in (("window", sys.maxsize), ("slots", MOST_SLOTS)):
        if not 1 <= said.get(name, 1) <= most:
            raise UsageError(f"--{name} {said[name]}: give a whole number from 1" + (f" to {most}" if name == "slots" else ""))
    if options.replies:
        said["replies"] = scenario.folder(options.replies)
    return replace(settings, **said), rules


def _server(options: argparse.Namespace, settings: Settings, rules: Sequence[Rule]) -> FakeServer:
    try:
        return FakeServer(settings=settings, rules=rules, address=(options.host, options.port), log=None if options.quiet else _log)
    except OSError as error:
        raise ConfigError(f"cannot listen at {options.host} port {options.port}: {error.strerror or error}; choose another") from error


def _log(line: str) -> None:
    sys.stderr.write("".join(c if c.isprintable() else "?" for c in line) + "\n")
    sys.stderr.flush()
