"""Scenario files of the fake server: YAML, read strictly. All settings, with what they are when left out:

    model: fake-model        # what it calls itself
    window: 8192             # tokens per slot; null: it does not tell (no /props, /slots, /apply-template)
    max_model_len: null      # the window as vLLM tells it
    slots: 1                 # requests answered at once; others wait
    load_s: 0                # seconds after the start in which every route says that the model loads
    truncate: null           # as Ollama: longer prompts lose their beginning in silence; makes /api/ps exist
    tokenize: on             # whether /tokenize exists
    api_key_env: null        # environment variable with the key that clients must send
    prefill_tps: null        # tokens per second; null: at once
    decode_tps: null
    batch: 2048              # tokens per batch of a prefill: how often progress is told, and what an abort keeps
    replies: null            # folder of reply files, as for the scripted provider; relative to this file
    reply: ok                # said when there is no such folder
    continues: on            # whether a last message of the assistant is gone on with
    echo: on                 # whether it is repeated first, as llama-server does
    counts: on               # tokens (of four characters) are counted; the window, max_tokens and a prompt cache are kept to
    faults:
      - {at: 3, fault: rate_limited, retry_after: 2}            # the third chat request
      - {at: [5, 7], fault: server_error, status: 502}          # the fifth to the seventh
      - {at: "implement:*", times: 2, fault: drop, after: 200}  # the first two whose label fits
      - {fault: restart_continuation, times: always}            # every one that it concerns

`at` is a number, two numbers, or a pattern for the label in the header X-Nightmill-Call; any request when left out. Chat requests are
counted from 1, without those labelled `probe:…`. `times` is how often at most: once, and all of them for two numbers, when left out. The
other keys are the fault's parameters. For one request the first fault counts that fits and is not used up.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nightmill.config import read_yaml
from nightmill.errors import ConfigError
from nightmill.fake.faults import FAULTS, Rule
from nightmill.fake.settings import Settings
from nightmill.fake.strict import Count, near, one, read, readers

DEFAULTS = Settings(counts=True)
_RULE_KEYS = ("at", "times", "fault")


def load(path: Path) -> tuple[Settings, tuple[Rule, ...]]:
    """Reads a scenario file. Raises ConfigError: one line with the place and the near miss."""
    try:
        raw = read_yaml(path, such_as="window: 4096")
    except OSError as error:
        raise ConfigError(f"cannot read the scenario {path}: {error.strerror}") from error
    settings = replace(DEFAULTS, **read(Settings, raw, path.name, "faults"))
    if settings.replies:
        settings = replace(settings, replies=folder(path.parent / settings.replies))
    listed = raw.get("faults") or []
    if not isinstance(listed, list):
        raise ConfigError(f"{path.name}: faults: expected a list such as `- {{at: 3, fault: drop}}`")
    return with_key(settings), tuple(rule(entry, f"{path.name}: faults[{n}]") for n, entry in enumerate(listed, 1))


def folder(path: Path) -> Path:
    """Raises ConfigError when there is no such directory."""
    if not path.is_dir():
        raise ConfigError(f"replies: {path} is not a directory: name the one with the reply files")
    return path


def with_key(settings: Settings) -> Settings:
    """The settings with the key that `api_key_env` names. Raises ConfigError when it is not set."""
    if settings.api_key_env is None:
        return settings
    if not os.environ.get(settings.api_key_env):
        raise ConfigError(f"the environment variable {settings.api_key_env} (api_key_env) is not set: export it")
    return replace(settings, api_key=os.environ[settings.api_key_env])


def rule(entry: object, where: str) -> Rule:
    """One entry of `faults`. Raises ConfigError."""
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected something like {{at: 3, fault: drop}} (got {entry!r:.60})")
    name = entry.get("fault")
    if name is None:
        raise ConfigError(f"{where}: `fault` is missing")
    if not isinstance(name, str) or name not in FAULTS:
        raise ConfigError(f"{where}: no fault `{name}`{near(name, list(FAULTS))}")
    given = read(FAULTS[name], entry, f"{where} ({name})", *_RULE_KEYS)
    first, last, label = _at(entry.get("at", 1), where)
    return Rule(name, given, first, last, label, _times(entry, first, last, where))


def _at(at: object, where: str) -> tuple[int, int | None, str]:
    """First and last number of a chat request, and the pattern of its label."""
    if isinstance(at, str):
        return 0, None, at
    if isinstance(at, int):
        return _number(at, f"{where}: at"), None, "*"
    if not isinstance(at, Sequence) or len(at) != 2:
        raise ConfigError(f"{where}: at: give a number, two numbers or the pattern of a label (got {at!r:.60})")
    first, last = (_number(n, f"{where}: at") for n in at)
    if last < first:
        raise ConfigError(f"{where}: at: {last} comes before {first}")
    return first, last, "*"


def _times(entry: Mapping[str, Any], first: int, last: int | None, where: str) -> int | None:
    times = entry.get("times", 1 if last is None else last - first + 1)
    return None if times == "always" else _number(times, f"{where}: times")


def _number(value: object, where: str) -> int:
    number = one(readers(_counted)["n"], value, where)
    assert isinstance(number, int)
    return number


def _counted(n: Count) -> None:
    """Carries the reader of a count."""


def described() -> str:
    """Every fault with its parameters, for the command's help."""
    lines = []
    for name, builder in FAULTS.items():
        text = (inspect.getdoc(builder) or "") if builder.__name__ == name else f"The same as {builder.__name__}."
        lines.append(f"    {' '.join([name, *(readers(builder) if builder.__name__ == name else ())]):<38}{text}")
    return "\n".join(lines)
