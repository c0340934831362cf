"""The fake server itself: which answer a request gets, and what happens when it dies.

with FakeServer([loading(), "VERDICT: APPROVED"]) as server:
    provider = OpenAICompat("fake", server.url, api_key=None, idle_s=1)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Self

from nightmill.fake.answers import Answer, Http, Recorded, Say, error, loading, too_large
from nightmill.fake.faults import Plan, Rule, Turn
from nightmill.fake.listener import Listener
from nightmill.fake.replies import from_files
from nightmill.fake.routes import route
from nightmill.fake.settings import Settings
from nightmill.fake.slots import Slots, render, tokens
from nightmill.fake.speech import Step, continued, speak

Scenario = Sequence["Answer | str"] | Callable[["Recorded"], "Answer | str"]
"""Answers to the chat requests, one each and the last one repeated; or a function of the request. A plain string is `Say(text)`."""
_POLL_S = 0.02


class FakeServer:
    """A context manager that listens from its creation to its end, on a free port of this machine unless `address` says where.

    Without a scenario the settings answer (files, or always the same text). `rules` are faults that come before any answer.
    `given` are fields of Settings. `log` gets one line per request. Raises OSError when the address cannot be had.
    """

    def __init__(
        self,
        scenario: Scenario | None = None,
        settings: Settings | None = None,
        *,
        rules: Sequence[Rule] = (),
        address: tuple[str, int] = ("127.0.0.1", 0),
        log: Callable[[str], None] | None = None,
        **given: Any,
    ) -> None:
        self.settings = replace(settings or Settings(), **given)
        self.slots = Slots(self.settings.slots)
        self.requests: list[Recorded] = []
        self.hung_up = threading.Event()
        """Set when a client left before its answer was complete."""
        self._scenario = scenario or self._default()
        self._plan = Plan(rules)
        self._log = log
        self._asked = 0
        self._counted = 0
        self._loads = self.settings.loading
        self._ready = time.monotonic() + self.settings.load_s
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._dying = threading.Event()
        self._down = threading.Event()
        self._dead_s = 0.0
        self._listener = Listener(address, self)
        self._address = (address[0], int(self._listener.server_address[1]))
        self._thread = threading.Thread(target=self._run, name="fake-server", daemon=True)

    @property
    def url(self) -> str:
        host = f"[{self._address[0]}]" if ":" in self._address[0] else self._address[0]
        return f"http://{host}:{self._address[1]}/v1"

    @property
    def calls(self) -> list[Recorded]:
        """The chat requests."""
        return [request for request in self.requests if request.path.endswith("/chat/completions")]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closing.set()
            listener = self._listener
        listener.shutdown()
        self._thread.join()
        listener.server_close()

    def answer(self, request: Recorded) -> tuple[Answer, str]:
        """Chooses the answer to one request, and names the fault that it is."""
        path = request.path.partition("?")[0].removeprefix("/v1")
        with self._lock:
            self.requests.append(request)
            counted = path != "/health" and self._loads > 0
            busy = self._loads > 0 or time.monotonic() < self._ready
            self._loads -= counted
        if busy:
            return loading(), "loading"
        key = self.settings.api_key
        if key and request.headers.get("authorization") != f"Bearer {key}":
            return error(401, f"Invalid API Key: {request.headers.get('authorization')}", "authentication_error"), "unauthorized"
        return self._chat(request) if path == "/chat/completions" else (route(path, self.settings, self.slots, request), "")

    def _chat(self, request: Recorded) -> tuple[Answer, str]:
        if not isinstance(request.body, dict) or not isinstance(request.body.get("messages"), list):
            return error(400, "'messages' is required", "invalid_request_error"), ""
        with self._lock:
            self._asked += 1
            self._counted += not request.probes
            asked, number = self._asked, 0 if request.probes else self._counted
        chosen = self._scenario(request) if callable(self._scenario) else self._scenario[min(asked, len(self._scenario)) - 1]
        planned = Say(chosen) if isinstance(chosen, str) else chosen
        goes_on = request.prefix if self.settings.continues else ""
        echo = goes_on if self.settings.echo else ""
        whole = planned if isinstance(planned, Say) else Say(self.settings.reply)
        turn = Turn(request, number, whole, continued(whole, goes_on, echo=self.settings.echo), echo)
        with self._lock:
            fault = self._plan.answer(turn)
            if fault and isinstance(fault[0], Http) and fault[0].loading_s:
                self._ready = time.monotonic() + fault[0].loading_s
        return fault or (self._refusal(request) or (turn.reply if isinstance(planned, Say) else planned), "")

    def _refusal(self, request: Recorded) -> Http | None:
        """What llama-server itself refuses."""
        if [m.get("role") for m in request.messages[-2:]] == ["assistant", "assistant"]:
            return error(400, "Cannot have 2 or more assistant messages at the end of the list.", "invalid_request_error")
        settings = self.settings
        prompt = tokens(render(request.messages, continues=settings.continues))
        fits = not settings.counts or settings.truncate or not settings.window or prompt < settings.window
        return None if fits else too_large(prompt, settings.window or 0)

    def speech(self, say: Say, request: Recorded) -> Generator[Step]:
        """The steps of a streamed answer."""
        return speak(say, request, self.slots, self.settings)

    def pause(self, seconds: float) -> bool:
        """False when the server is closing."""
        return not self._closing.wait(seconds) if seconds > 0 else not self._closing.is_set()

    def served(self, request: Recorded, result: str, *, left: bool = False) -> None:
        """One request is over."""
        if left and not (self._closing.is_set() or self._dying.is_set()):
            self.hung_up.set()
        if self._log:
            self._log(" ".join(filter(None, [time.strftime("%H:%M:%S"), request.method, request.path, request.label, "→", result])))

    def die(self, seconds: float) -> None:
        """Breaks all connections and closes the port; it opens again after so many seconds. Returns when nothing listens any more."""
        with self._lock:
            if self._dying.is_set() or self._closing.is_set():
                return
            self._dying.set()
            self._down.clear()
            self._dead_s = seconds
        self._listener.shutdown()
        self._down.wait()

    def _run(self) -> None:
        while True:
            self._listener.serve_forever(_POLL_S)
            self._listener.socket.close()
            self._listener.break_all()
            self.slots = Slots(self.settings.slots)
            self._down.set()
            if self._closing.wait(self._dead_s) or not self._rise():
                return

    def _rise(self) -> bool:
        """Listens at the same port again. False when the server is closing."""
        while True:
            with self._lock:
                if self._closing.is_set():
                    return False
                try:
                    self._listener = Listener(self._address, self)
                except OSError:  # somebody else took the port meanwhile
                    pass
                else:
                    self._dying.clear()
                    return True
            self._closing.wait(_POLL_S)

    def _default(self) -> Scenario:
        settings = self.settings
        others = from_files(settings.replies) if settings.replies else lambda request: Say(settings.reply)
        return lambda request: Say(repeated(request) or settings.reply) if request.probes or not request.label else others(request)


def repeated(request: Recorded) -> str:
    """What is behind the last colon of the last message of the user: enough for a client that tries whether the server obeys."""
    said = [str(m["content"]) for m in request.messages if m.get("role") == "user"][-1:]
    return said[0].rpartition(": ")[2] if said and request.probes and ": " in said[0] else ""
