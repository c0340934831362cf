"""The configured providers, opened when first needed, and what is known of each: window, tokens of a text, which model answers."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path

from nightmill.config import ModelConfig, OpenAIProvider, ProviderConfig, ScriptedProvider, api_key
from nightmill.errors import ConfigError, Stopped
from nightmill.paths import expand
from nightmill.providers.base import Message, NoVerdict, Provider, Request
from nightmill.run.events import WindowProbed
from nightmill.run.rundir import RunDir

_FOLDERS = re.compile(r"^(?:[/~.]|[A-Za-z]:\\).*[/\\](?=.)")

ANY_MODEL = "default"
"""The model's name in a new run.yaml: whatever the server serves."""


@dataclass(frozen=True)
class Backend:
    provider: Provider
    model: ModelConfig
    config: ProviderConfig

    @property
    def known(self) -> tuple[str, str]:
        return self.model.provider, self.model.model


class Backends:
    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._open: dict[str, Provider] = {}
        self._windows: dict[tuple[str, str], int] = {}
        self._lock = threading.RLock()

    def check(self) -> None:
        """Opens every provider that a role uses. Raises ConfigError on a missing key or folder, before anything is asked."""
        for models in self.run.config.models.values():
            for model in models:
                self._provider(model.provider)

    def of(self, role: str) -> tuple[Backend, ...]:
        """Who may answer for a role, in the person's order."""
        return tuple(self.backend(model) for model in self.run.config.candidates(role))

    def backend(self, model: ModelConfig) -> Backend:
        return Backend(self._provider(model.provider), model, self.run.config.providers[model.provider])

    def window(self, backend: Backend) -> int:
        """Tokens of context of the slot that will answer: as the server tells, or configured, the smaller one, or measured. Never guessed.

        Raises ConfigError with the remedy when it is not known, NoVerdict when the server cannot be reached.
        """
        with self._lock:
            if backend.known not in self._windows:
                self._windows[backend.known] = self._window(backend)
            return self._windows[backend.known]

    def shrunk(self, backend: Backend) -> bool:
        """Asks the server again. True when its window is smaller than we had thought: it was started anew in the meantime."""
        with self._lock:
            before = self._windows.pop(backend.known, None)
            return before is not None and self.window(backend) < before

    def tokens(self, backend: Backend, text: str) -> int | None:
        """Prompt tokens that the server reports for a short text, by a call for one token; None when it reports none."""
        request = Request(backend.model.model, (Message("user", text),), 0.0, 1, 1, "count")
        try:
            return backend.provider.complete(request, lambda _: None, lambda: False).prompt_tokens
        except NoVerdict as error:
            return error.spent.prompt_tokens
        except Stopped:
            return None

    def _window(self, backend: Backend) -> int:
        provider, model = backend.provider, backend.model
        told = provider.window(model.model)
        configured = model.context if isinstance(model.context, int) else None
        if told or configured:
            return min(w for w in (told, configured) if w)
        if model.context == "probe" and (measured := self._probed(backend) or self._probe(backend)):
            return measured
        said = "the probe of its window showed nothing" if model.context == "probe" else "it does not tell its context window"
        raise ConfigError(
            f"{model.provider}, model {model.model}: {said}: set `context:` in run.yaml to its tokens"
            + ("" if model.context else ", or to `probe` to have it measured")
        )

    def _probed(self, backend: Backend) -> int | None:
        found = [e.window for e in self.run.events if e.kind == "window_probed" and (e.provider, e.model) == backend.known]
        return found[-1] if found else None

    def _probe(self, backend: Backend) -> int | None:
        measured = backend.provider.probe(backend.model.model)
        if measured:
            self.run.events.emit(WindowProbed(provider=backend.model.provider, model=backend.model.model, window=measured))
        return measured

    def _provider(self, name: str) -> Provider:
        with self._lock:
            if name not in self._open:
                self._open[name] = _OPEN[type(self.run.config.providers[name])](name, self.run.config.providers[name], self.run.root)
            return self._open[name]

    def close(self) -> None:
        for provider in self._open.values():
            provider.close()
        self._open.clear()


def another(named: str, answered: str) -> bool:
    """Whether a model answered that is not the one named. Paths, `.gguf`, an owner's name in front and capitals do not count."""
    ours, theirs = _bare(named), _bare(answered)
    return (
        bool(theirs) and named != ANY_MODEL and ours != theirs and not theirs.startswith(ours + "-") and not theirs.startswith(ours + ":")
    )


def title(model: str) -> str:
    """A model's name; of a file, as llama-server names it, without the folders, which say whose machine it is."""
    return _FOLDERS.sub("", model)


def _bare(model: str) -> str:
    return model.lower().rsplit("/", 1)[-1].removesuffix(".gguf")


def _open_openai(name: str, config: ProviderConfig, root: Path) -> Provider:
    from nightmill.providers.openai_compat import OpenAICompat

    assert isinstance(config, OpenAIProvider)
    return OpenAICompat(name, config.url, api_key=api_key(config, root), idle_s=config.idle_s, first_token_s=config.first_token_s)


def _open_scripted(name: str, config: ProviderConfig, root: Path) -> Provider:
    from nightmill.providers.scripted import Scripted

    assert isinstance(config, ScriptedProvider)
    folder = expand(config.replies, root)
    if not folder.is_dir():
        raise ConfigError(f"providers.{name}.replies: {folder} is not a directory: set it to the folder with the reply files")
    return Scripted(name, folder)


_OPEN = {OpenAIProvider: _open_openai, ScriptedProvider: _open_scripted}
