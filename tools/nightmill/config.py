"""run.yaml as pydantic models. Unknown keys are refused with the nearest known one; comments survive our edits (ruamel)."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nightmill.errors import ConfigError

ROLES = ("architect", "tester", "planner", "implementer", "reviewer")
"""Who a model can be chosen for, besides `default`."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OpenAIProvider(_Section):
    """Any server with /v1/chat/completions: llama-server, vLLM, hosted."""

    kind: Literal["openai"] = "openai"
    url: str
    """Base URL, with or without /v1."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    api_key_file: str | None = None
    """File with the key (mode 0600), relative to the run directory or absolute."""
    idle_s: float = Field(default=120, gt=0)
    """Give up when no token came for this long."""
    first_token_s: float = Field(default=900, gt=0)
    """The same for the first token, which waits for the whole prefill."""


class ScriptedProvider(_Section):
    """Replies from files: no model at all. For the demo and for tests."""

    kind: Literal["scripted"]
    replies: str
    """Folder with the reply files, relative to the run directory or absolute."""


ProviderConfig = OpenAIProvider | ScriptedProvider


class ModelConfig(_Section):
    """Which model answers for a role, and how it is sampled."""

    provider: str
    model: str
    temperature: float = Field(default=0.2, ge=0, le=2)
    seed: int = 1
    max_tokens: int = Field(default=4096, gt=0)
    """Output reserve of one call, in tokens."""
    context: int | None = Field(default=None, gt=0)
    """Context window of one slot, in tokens. Needed only when the server does not tell."""

    @property
    def fact(self) -> str:
        """What a stamp records of the model: everything that shapes an answer, but not where the server stands."""
        return (
            f"{self.model} temperature={self.temperature:g} seed={self.seed} max_tokens={self.max_tokens} context={self.context or 'auto'}"
        )


class Budgets(_Section):
    """Hard caps over the life of the run; null is no cap. At a cap the run stops clean with exit 76."""

    calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    minutes: float | None = Field(default=None, ge=0)


class Contract(_Section):
    rounds: int = Field(default=2, ge=1, le=6)


class Build(_Section):
    max_iterations: int = Field(default=6, ge=1, le=100)
    """Attempts per milestone, and repairs of the whole."""
    review: Literal["each", "last"] = "each"
    """Security and maintenance review after each attempt, or only of the kept one."""


class Gates(_Section):
    """Limits for the commands that judge model-written code."""

    python: str | None = None
    """Interpreter for Python targets (its packages are visible to the code); default: the one nightmill runs on."""
    wall_s: float = Field(default=120, gt=0)
    memory_mb: int = Field(default=2048, gt=0)
    disk_mb: int = Field(default=512, gt=0)
    sandbox: Literal["bubblewrap", "unsandboxed-i-understand"] = "bubblewrap"


class RunConfig(_Section):
    pipeline: str = "rewrite"
    source: str
    language: Literal["auto", "python"] = "auto"
    providers: dict[str, ProviderConfig]
    models: dict[str, ModelConfig]
    budgets: Budgets = Budgets()
    contract: Contract = Contract()
    build: Build = Build()
    gates: Gates = Gates()

    def model(self, role: str) -> ModelConfig:
        return self.models.get(role) or self.models["default"]

    def option(self, dotted: str) -> Any:
        """The value at `build.max_iterations` and the like. Raises KeyError on a name that is not in the model."""
        value: Any = self
        for part in dotted.split("."):
            if part not in type(value).model_fields:
                raise KeyError(dotted)
            value = getattr(value, part)
        return value


def load(path: Path) -> RunConfig:
    """Reads and checks run.yaml. Raises ConfigError: one line with the place, the cause and the near miss."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        raw = YAML(typ="safe").load(path.read_bytes())
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{path.name} line {line}: not valid YAML: {error.problem or error}") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name}: not valid YAML: {_one_line(error)}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path.name}: expected `key: value` lines such as `source: ../my-project`")
    return parse(raw, path.name)


def parse(raw: Mapping[str, Any], name: str = "run.yaml") -> RunConfig:
    try:
        config = RunConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("; ".join(_problem(e, name) for e in error.errors()[:3])) from error
    if "default" not in config.models:
        raise ConfigError(f"{name}: models: needs a `default` entry (provider and model)")
    for role, model in config.models.items():
        if role != "default" and role not in ROLES:
            raise ConfigError(f"{name}: models.{role}: unknown role{_near(role, ROLES)}; roles are default, {', '.join(ROLES)}")
        if model.provider not in config.providers:
            raise ConfigError(f"{name}: models.{role}.provider: no provider `{model.provider}`{_near(model.provider, config.providers)}")
    return config


def api_key(provider: OpenAIProvider, root: Path) -> str | None:
    """The key from the environment or from a file. Raises ConfigError when the named one is missing."""
    if provider.api_key_env:
        if not os.environ.get(provider.api_key_env):
            raise ConfigError(
                f"the environment variable {provider.api_key_env} (providers: api_key_env) is not set: export it or use api_key_file"
            )
        return os.environ[provider.api_key_env]
    if provider.api_key_file:
        path = root / Path(provider.api_key_file).expanduser()
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"cannot read the key file {path} (providers: api_key_file): {error.strerror}") from error
    return None


def _problem(error: Any, name: str) -> str:
    place = [str(p) for p in error["loc"] if p not in ("openai", "scripted", "OpenAIProvider", "ScriptedProvider")]
    where = ".".join(place)
    if error["type"] == "extra_forbidden":
        return f"{name}: unknown key `{where}`{_near(place[-1], _keys(error['loc']))}"
    if error["type"] == "missing":
        return f"{name}: `{where}` is missing"
    return f"{name}: {where}: {error['msg'].removeprefix('Input ')} (got {error['input']!r:.60})"


def _keys(loc: tuple[Any, ...]) -> list[str]:
    """Known keys at the level of an unknown one; all keys of all sections serve when the level is a mapping of names."""
    model: Any = RunConfig
    for part in loc[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            break
        kinds = [a for a in (field.annotation, *_flat(field.annotation)) if isinstance(a, type) and issubclass(a, BaseModel)]
        if len(kinds) != 1:
            return sorted({k for a in kinds for k in a.model_fields})
        model = kinds[0]
    return list(model.model_fields)


def _flat(annotation: Any) -> list[Any]:
    return [b for a in get_args(annotation) for b in (a, *_flat(a))]


def _near(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f": did you mean `{close[0]}`?" if close else ""


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:200]
