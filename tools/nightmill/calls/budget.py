"""Hard caps over the life of a run, counted from its events alone, so that a restart agrees with itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from nightmill.calls.account import Account
from nightmill.config import Budgets
from nightmill.errors import OutOfBudget
from nightmill.run.events import AttemptFinished, Event, EventLog, RunEnded, RunStarted, StageFinished


@dataclass(frozen=True)
class Room:
    """`left` of a `measure` (calls, tokens, money, seconds) below the cap that `setting` names."""

    measure: str
    left: float
    setting: str


class Budget:
    """Calls that reached a model, their tokens and money, attempts, minutes at work, and the end of the night. Safe between threads.

    Made by the process that holds the run's lock. `now` is Unix time and may jump; `monotonic` is in seconds and may not.
    """

    def __init__(
        self,
        caps: Budgets,
        events: EventLog,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.caps = caps
        self._now = now
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._spent = Account()
        self._in_flight = 0
        self._reserved = 0
        self._reserved_money = 0.0
        self._attempting: set[str] = set()
        self._attempts_begun: set[str] = set()
        for event in events:
            self._spent.add(event)
        self._spent.bury()
        self._anchor()
        events.subscribe(self._count)

    @property
    def calls(self) -> int:
        return self._spent.calls

    @property
    def tokens(self) -> int:
        return self._spent.tokens

    @property
    def money(self) -> float:
        return self._spent.money

    @property
    def attempts(self) -> int:
        return self._spent.attempts

    @property
    def keys(self) -> set[str]:
        """Of the requests whose reply has been paid."""
        return self._spent.keys

    @property
    def minutes(self) -> float:
        return (self._before + self._mine) / 60

    @property
    def _mine(self) -> float:
        return self._monotonic() - self._since

    def _count(self, event: Event) -> None:
        with self._lock:
            self._spent.add(event)
            if isinstance(event, AttemptFinished | StageFinished):
                self._attempting.discard(event.stage)
                self._attempts_begun.discard(event.stage)
            elif isinstance(event, RunStarted | RunEnded):
                self._anchor()

    def _anchor(self) -> None:
        """From here on this process's own clock goes on where the events stop."""
        self._since = self._monotonic()
        self._before, self._before_tonight = self._spent.seconds, self._spent.seconds_tonight
        self._night = self._now() if self._spent.night is None else self._spent.night
        self._deadline = None if self.caps.until is None else next_time(self._night, self.caps.until)

    def attempt(self, stage: str) -> None:
        """An attempt of `stage` begins; its AttemptFinished ends it.

        Nothing is refused yet, because a restart finds its calls in the store: `reserve` raises at the first call beyond the cap.
        """
        with self._lock:
            self._attempting.add(stage)
            self._attempts_begun.discard(stage)

    def reserve(self, tokens: int, money: float = 0.0, stage: str = "") -> None:
        """Takes a place for one call of up to `tokens` tokens; `release` gives it back. Raises OutOfBudget naming the cap.

        `stage` is the one that asks: its call may be the first of an attempt.
        """
        with self._lock:
            if why := self._short(tokens, money, stage) or self.expired():
                raise OutOfBudget(why)
            self._in_flight += 1
            self._reserved += tokens
            self._reserved_money += money
            if stage in self._attempting:
                self._attempts_begun.add(stage)

    def release(self, tokens: int, money: float = 0.0) -> None:
        with self._lock:
            self._in_flight -= 1
            self._reserved -= tokens
            self._reserved_money = self._reserved_money - money if self._in_flight else 0.0  # no dust of sums is left over

    @property
    def reserved(self) -> int:
        """Tokens of all calls in flight: prompts, and the most that their answers may take."""
        with self._lock:
            return self._reserved

    def _short(self, tokens: int, money: float, stage: str) -> str:
        caps, spent = self.caps, self._spent
        if caps.calls is not None and spent.calls + self._in_flight >= caps.calls:
            return _used_up(f"{spent.calls} of {caps.calls} calls", "calls")
        if caps.tokens is not None and spent.tokens + self._reserved + tokens > caps.tokens:
            return _used_up(f"{spent.tokens} of {caps.tokens} tokens, and the next call may take {tokens}", "tokens")
        if caps.money is not None and spent.money + self._reserved_money + money > caps.money:
            return _used_up(f"{spent.money:.4g} of {caps.money:g} in money, and the next call may cost {money:.4g}", "money")
        first = stage in self._attempting - self._attempts_begun
        if first and caps.attempts is not None and spent.attempts + len(self._attempts_begun) >= caps.attempts:
            return _used_up(f"{spent.attempts} of {caps.attempts} attempts", "attempts")
        return ""

    def expired(self) -> str:
        """Why time is up, or "". Cheap: it may be asked several times a second while a reply streams."""
        caps = self.caps
        if caps.minutes is not None and self.minutes >= caps.minutes:
            return _used_up(f"{self.minutes:.1f} of {caps.minutes:g} minutes", "minutes")
        if self._deadline is not None and self._until_s(self._deadline) <= 0:
            return (
                f"budget used up: it is past {caps.until}, the end of this night; run doit again for another one, or change budgets.until"
            )
        return ""

    def left_s(self) -> float | None:
        """Seconds until `expired`, at least 0; None without a cap on time."""
        left = []
        if self.caps.minutes is not None:
            left.append(self.caps.minutes * 60 - self._before - self._mine)
        if self._deadline is not None:
            left.append(self._until_s(self._deadline))
        return max(0.0, min(left)) if left else None

    def room(self) -> tuple[Room, ...]:
        """What is left below each cap that is set, for a forecast."""
        caps, spent = self.caps, self._spent
        until = None if self._deadline is None else self._until_s(self._deadline)
        minutes = None if caps.minutes is None else caps.minutes * 60 - self._before - self._mine
        rooms = (
            ("calls", "calls", caps.calls, None if caps.calls is None else caps.calls - spent.calls),
            ("tokens", "tokens", caps.tokens, None if caps.tokens is None else caps.tokens - spent.tokens),
            ("money", "money", caps.money, None if caps.money is None else caps.money - spent.money),
            ("seconds", "minutes", caps.minutes, minutes),
            ("seconds", "until", caps.until, until),
        )
        return tuple(Room(measure, left, f"budgets.{name} = {cap}") for measure, name, cap, left in rooms if left is not None)

    def _until_s(self, deadline: float) -> float:
        """By the clock on the wall or by the time at work since the night began, whichever is there first: the one may be set back."""
        return min(deadline - self._now(), deadline - self._night - self._before_tonight - self._mine)


def _used_up(spent: str, setting: str) -> str:
    return f"budget used up: {spent}; raise budgets.{setting} in run.yaml"


def next_time(after: float, clock: str) -> float:
    """The first moment after `after` (both Unix time) at which it is `clock` ("07:00") where the machine stands.

    A time that the change to summer time leaves out comes an hour later; of one that comes twice the next is taken.
    """
    hour, minute = map(int, clock.split(":"))
    day = datetime.fromtimestamp(after).replace(hour=hour, minute=minute, second=0, microsecond=0)
    moments = (
        (day + timedelta(days=days)).replace(fold=fold).timestamp()  # by the local zone's rules for that very day
        for days in (0, 1, 2)
        for fold in (0, 1)
    )
    return next(moment for moment in moments if moment > after)
