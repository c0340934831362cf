"""INT, TERM and HUP as one orderly stop; a second signal ends the process at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def orderly_stop(stop: Callable[[], None]) -> Iterator[None]:
    """While inside, the first signal calls `stop`; a second one exits 130 without further ado (everything finished is on disk)."""
    seen: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        if seen:
            os._exit(130)
        seen.append(number)
        stop()

    before = {s: signal.signal(s, on_signal) for s in SIGNALS if signal.getsignal(s) is not signal.SIG_IGN}  # nohup stays nohup
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
