"""run.yaml as pydantic models. Unknown keys are refused with the nearest known one; comments survive our edits (ruamel)."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from nightmill.errors import ConfigError, machine_trouble
from nightmill.paths import expand

ROLES = ("architect", "tester", "planner", "implementer", "reviewer")
"""Who a model can be chosen for, besides `default`."""


SMALL_BILLIONS = 4.0
"""Parameters. Asked for a whole contract at once, a model of 1.5 B writes the same clause a hundred times (seen); where the limit lies
between 1.5 and 7 B is a choice of ours."""
_TIME = re.compile(r"([01]?[0-9]|2[0-3]):[0-5][0-9]")
_SIZE = re.compile(r"(?<![a-z0-9.])e?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch(cls, value: Any) -> Any:
        if isinstance(value, bool):  # else `calls: true` is a cap of one call
            raise PydanticCustomError("switch", "no setting is a yes or no")
        return value


class OpenAIProvider(_Section):
    """Any server with /v1/chat/completions: llama-server, vLLM, hosted."""

    kind: Literal["openai"] = "openai"
    url: str
    """Base URL, with or without /v1."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    api_key_file: str | None = None
    """File with the key (mode 0600), relative to the run directory or absolute."""
    idle_s: float | None = Field(default=None, gt=0)
    """Give up when no token came for this long; null: from measured speeds (calls/speeds)."""
    first_token_s: float | None = Field(default=None, gt=0)
    """The same for the first token, which waits for the whole prefill of this prompt."""
    remote: Literal["refuse", "allow"] = "refuse"
    """Whether a role with several models may move here when the address lies outside of the own network, or the model has a price."""


class ScriptedProvider(_Section):
    """Replies from files: no model at all. For the demo and for tests."""

    kind: Literal["scripted"]
    replies: str
    """Folder with the reply files, relative to the run directory or absolute."""


ProviderConfig = OpenAIProvider | ScriptedProvider
_KINDS: dict[str, type[_Section]] = {"openai": OpenAIProvider, "scripted": ScriptedProvider}


def _kind(value: Any) -> Any:
    return value.get("kind", "openai") if isinstance(value, Mapping) else getattr(value, "kind", "openai")


_OneProvider = Annotated[
    Annotated[OpenAIProvider, Tag("openai")] | Annotated[ScriptedProvider, Tag("scripted")],
    Discriminator(_kind, custom_error_type="kind", custom_error_message=f"its kind should be one of {', '.join(_KINDS)}"),
]


class Price(_Section):
    """Money per million tokens, in any currency, as long as it is the same one everywhere."""

    input: float = Field(default=0, ge=0)
    output: float = Field(default=0, ge=0)

    def of(self, prompt: int, completion: int) -> float:
        """What so many tokens cost."""
        return (prompt * self.input + completion * self.output) / 1e6


class ModelConfig(_Section):
    """Which model answers for a role, and how it is sampled."""

    provider: str
    model: str
    temperature: float = Field(default=0.2, ge=0, le=2)
    seed: int = 1
    max_tokens: int = Field(default=4096, gt=0)
    """Output reserve of one call, in tokens."""
    reasoning_tokens: int = Field(default=0, ge=0)
    """Reserve for what the model thinks before it answers, in tokens, beside `max_tokens`."""
    context: Annotated[int, Field(gt=0)] | Literal["probe"] | None = None
    """Context window of one slot, in tokens. Needed only when the server does not tell; `probe`: have it measured, once."""
    price: Price = Price()
    quality: float | None = Field(default=None, ge=0, le=1)
    """How good this model is for the role, compared with its alternatives; null: the measured share of replies that kept their format."""
    grain: Literal["auto", "whole", "item"] = "auto"
    """Ask for all at once, or once per function, clause and row. `auto`: item when the model's name says less than SMALL_BILLIONS."""

    @property
    def small(self) -> bool:
        """Whether this model is asked item by item. A name without a size counts as large."""
        sizes = [float(n) / (1000 if unit == "m" else 1) for n, unit in _SIZE.findall(self.model.lower())]  # 30b-a3b counts as 30
        return self.grain == "item" or (self.grain == "auto" and bool(sizes) and max(sizes) < SMALL_BILLIONS)

    @property
    def fact(self) -> str:
        """What a stamp records of the model: everything that shapes an answer, but not where the server stands."""
        fact = (
            f"{self.model} temperature={self.temperature:g} seed={self.seed} max_tokens={self.max_tokens} context={self.context or 'auto'}"
        )
        thinks = f" reasoning_tokens={self.reasoning_tokens}" if self.reasoning_tokens else ""
        return fact + thinks + (" grain=item" if self.small else "")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, Mapping | ModelConfig) else value


Models = Annotated[tuple[ModelConfig, ...], BeforeValidator(_listed), Field(min_length=1)]
"""One model, or several in the order in which they are preferred."""


def _time_of_day(value: Any) -> Any:
    if value is None or (isinstance(value, str) and _TIME.fullmatch(value)):
        return value
    raise PydanticCustomError("time_of_day", 'should be a local time of day such as "07:00"')


class Budgets(_Section):
    """Hard caps over the life of the run; null is no cap. At a cap the run stops clean with exit 76."""

    calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    minutes: float | None = Field(default=None, ge=0)
    attempts: int | None = Field(default=None, ge=0)
    """Candidates for milestones and repairs of the whole, all together."""
    money: float | None = Field(default=None, ge=0)
    """In the currency of the models' `price`."""
    until: Annotated[str | None, BeforeValidator(_time_of_day)] = None
    """Local time of day, "07:00": the next one after the run was started."""


class Contract(_Section):
    rounds: int = Field(default=2, ge=1, le=6)


class Build(_Section):
    max_iterations: int = Field(default=6, ge=1, le=100)
    """Attempts per milestone, and repairs of the whole."""
    review: Literal["each", "last"] = "each"
    """Security and maintenance review after each attempt, or only of the kept one."""
    strategy: Literal["auto", "repair", "samples"] = "auto"
    """How attempts follow each other: the best so far is mended, or each is a fresh candidate (build/strategies/)."""


class Gates(_Section):
    """Limits for the commands that judge model-written code."""

    python: str | None = None
    """Interpreter for Python targets (its packages are visible to the code); default: the one nightmill runs on."""
    wall_s: float = Field(default=120, gt=0)
    memory_mb: int = Field(default=2048, gt=0)
    disk_mb: int = Field(default=512, gt=0)
    mutants: int = Field(default=12, ge=0, le=1000)
    """Small faults put into the finished code, at most, to see whether the tests notice."""
    sandbox: Literal["bubblewrap", "unsandboxed-i-understand"] = "bubblewrap"


class RunConfig(_Section):
    pipeline: str = "rewrite"
    source: str = Field(min_length=1)
    tests: str | None = None
    """The person's own acceptance tests, a file or a directory: locked beside the written ones, and never set aside."""
    language: Literal["auto", "python", "javascript", "rust"] = "auto"
    providers: dict[str, _OneProvider]
    models: dict[str, Models]
    budgets: Budgets = Budgets()
    contract: Contract = Contract()
    build: Build = Build()
    gates: Gates = Gates()

    @model_validator(mode="before")
    @classmethod
    def _left_empty(cls, raw: Any) -> Any:
        """A section whose lines are all commented out is as good as none."""
        return {key: value for key, value in raw.items() if value is not None} if isinstance(raw, Mapping) else raw

    def candidates(self, role: str) -> tuple[ModelConfig, ...]:
        """Who may answer for a role, in the order in which the person prefers them."""
        return self.models.get(role) or self.models["default"]

    def fact(self, role: str) -> str:
        """What a stamp records of who answers for a role."""
        return " | ".join(model.fact for model in self.candidates(role))

    def small(self, role: str) -> bool:
        """Whether a role is asked item by item: as soon as one of its models needs it."""
        return any(model.small for model in self.candidates(role))

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
    return parse(read_yaml(path, such_as="source: ../my-project"), path.name)


def read_yaml(path: Path, such_as: str) -> Mapping[str, Any]:
    """A YAML file of `key: value` lines; `such_as` is one of them, for the message. Raises ConfigError: one line with place and cause."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        with machine_trouble():
            data = path.read_bytes()
        raw = YAML(typ="safe").load(data)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{path.name} line {line}: not valid YAML: {error.problem or error}") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name}: not valid YAML: {_one_line(error)}") from error
    except RecursionError as error:
        raise ConfigError(f"{path.name}: not valid YAML: brackets nested too deep") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path.name}: expected `key: value` lines such as `{such_as}`")
    return raw


def parse(raw: Mapping[str, Any], name: str = "run.yaml") -> RunConfig:
    try:
        config = RunConfig.model_validate(raw)
    except ValidationError as error:
        unknown_keys_first = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        problems = list(dict.fromkeys(_problem(e, name, raw) for e in unknown_keys_first))
        raise ConfigError("; ".join(problems[:3])) from error
    if "default" not in config.models:
        raise ConfigError(f"{name}: models: needs a `default` entry (provider and model)")
    for role, models in config.models.items():
        if role != "default" and role not in ROLES:
            raise ConfigError(f"{name}: models.{role}: unknown role{_near(role, ROLES)}; roles are default, {', '.join(ROLES)}")
        for n, model in enumerate(models):
            place = f"models.{role}" + (f"[{n}]" if len(models) > 1 else "")
            if model.provider not in config.providers:
                near = _near(model.provider, config.providers)
                raise ConfigError(f"{name}: {place}.provider: no provider `{model.provider}`{near}")
            if model in models[:n]:
                raise ConfigError(f"{name}: {place}: the same as [{models.index(model)}]: name each model once")
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
        path = expand(provider.api_key_file, root)
        try:
            key = path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) else "not a text file"
            raise ConfigError(f"cannot read the key file {path} (providers: api_key_file): {cause}") from error
        if not key.isascii() or not key.isprintable() or not key:
            raise ConfigError(f"the key file {path} (providers: api_key_file) should hold the key alone, on one line")
        return key
    return None


def _problem(error: Any, name: str, raw: Mapping[str, Any]) -> str:
    loc, kind = error["loc"], error["type"]
    place = _place(loc, raw)
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
    if kind == "extra_forbidden":
        return f"{name}: unknown key `{where}`{_near(str(place[-1]), _keys(loc))}"
    if kind == "missing":
        return f"{name}: `{where}` is missing"
    message = error["msg"].removeprefix("Input ")
    if place[0] == "models" and (kind == "tuple_type" or (kind == "model_type" and place[-1] != "price")):
        message = "should have the lines `provider:` and `model:`, or be a list of such entries"
    elif kind in ("dict_type", "model_type", "model_attributes_type"):
        message = "should hold `key: value` lines"
    elif kind == "too_short":
        message = "should not be empty"
    elif place[-1] == "context":
        message = "should be a number of tokens, above 0, or `probe`"
    return f"{name}: {where}: {message} (got {error['input']!r:.60})"


def _place(loc: tuple[Any, ...], raw: Mapping[str, Any]) -> list[Any]:
    """Keys and list positions as the person wrote them, counted from 0: without the kind of a provider and the members of a union."""
    parts = [str(part) if n < 2 else part for n, part in enumerate(loc)]
    if parts[0] == "providers":
        return parts[:2] + parts[3:]
    if parts[0] == "models" and "context" in parts:
        parts = parts[: parts.index("context") + 1]
    if parts[0] == "models" and len(parts) > 2 and not isinstance(raw["models"][loc[1]], list):
        del parts[2]
    return parts


def _keys(loc: tuple[Any, ...]) -> list[str]:
    """Known keys at the level of an unknown one. Below `providers` the third part of `loc` is the provider's kind."""
    if loc[0] == "providers":
        return list(_KINDS[loc[2]].model_fields)
    model: type[BaseModel] = RunConfig
    for part in loc[:-1]:
        field = model.model_fields.get(part)
        if field is not None:
            model = next(a for a in (field.annotation, *_flat(field.annotation)) if isinstance(a, type) and issubclass(a, BaseModel))
    return list(model.model_fields)


def _flat(annotation: Any) -> list[Any]:
    return [b for a in get_args(annotation) for b in (a, *_flat(a))]


def _near(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f": did you mean `{close[0]}`?" if close else ""


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:200]
