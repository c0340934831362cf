"""The configured providers, opened when first needed, and which of them answers for a role."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from nightmill.config import ModelConfig, OpenAIProvider, ProviderConfig, ScriptedProvider, api_key
from nightmill.errors import ConfigError
from nightmill.paths import expand
from nightmill.providers.base import Provider
from nightmill.run.rundir import RunDir


@dataclass(frozen=True)
class Backend:
    provider: Provider
    model: ModelConfig


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

    def of(self, role: str) -> Backend:
        model = self.run.config.candidates(role)[0]
        return Backend(self._provider(model.provider), model)

    def window(self, backend: Backend) -> int:
        """Tokens of context of the slot that will answer: configured, or as the server tells. Never guessed.

        Raises ConfigError with the remedy when neither is known, NoVerdict when the server cannot be reached.
        """
        model = backend.model
        known = (model.provider, model.model)
        with self._lock:
            if known not in self._windows:
                told = backend.provider.window(model.model)
                window = min(w for w in (told, model.context) if w) if told or model.context else None
                if window is None:
                    raise ConfigError(
                        f"{model.provider} does not tell the context window of {model.model}: set `context:` (tokens) in run.yaml"
                    )
                self._windows[known] = window
            return self._windows[known]

    def _provider(self, name: str) -> Provider:
        with self._lock:
            if name not in self._open:
                self._open[name] = _OPEN[type(self.run.config.providers[name])](name, self.run.config.providers[name], self.run.root)
            return self._open[name]

    def close(self) -> None:
        for provider in self._open.values():
            provider.close()
        self._open.clear()


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
