"""What is looked at before any model is asked: the mission, the source, the sandbox, the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from nightmill.calls.remote import refuse_remote
from nightmill.errors import ConfigError, MachineError, machine_trouble
from nightmill.graph.session import Session
from nightmill.graph.stage import Stage
from nightmill.paths import MISSION_FILE


def preflight(session: Session, stages: Sequence[Stage]) -> None:
    """Raises ConfigError, SandboxMissing or MachineError: one line with the remedy."""
    require_mission(session)
    require_kinds(session, stages)
    session.source_hash()
    session.pack.require()  # an unknown language, or a missing compiler, is reported now
    session.sandbox  # noqa: B018 - probes; raises before any token is spent
    refuse_remote(session.run.config)
    require_prices(session)
    session.backends.check()
    session.budget, session.speeds, session.router  # noqa: B018 - counted once, before several stages share them


def require_prices(session: Session) -> None:
    """A cap on money that nothing is counted against would be none."""
    config = session.run.config
    unpriced = {f"models.{role}" for role, models in config.models.items() if not any(m.price.input or m.price.output for m in models)}
    if config.budgets.money is not None and unpriced == {f"models.{role}" for role in config.models}:
        raise ConfigError("budgets.money is set, but no model has a `price:`: write what a million tokens cost, or remove the cap")


def require_kinds(session: Session, stages: Sequence[Stage]) -> None:
    """Where a stage makes a directory there must be no file, nor the other way round."""
    targets = {target for stage in stages for target in stage.makes}
    folders = {PurePosixPath(target) for target in targets if target.endswith("/")}
    folders |= {parent for target in targets for parent in PurePosixPath(target).parents}
    for path in (session.run.root / folder for folder in sorted(folders)):
        if os.path.lexists(path) and not path.is_dir():
            raise MachineError(f"{path} should be a directory: move away what is there")
    for path in (session.run.root / target for target in sorted(targets) if not target.endswith("/")):
        if path.is_dir():
            raise MachineError(f"{path} should be a file: move away what is there")


def require_mission(session: Session) -> None:
    path = session.run.root / MISSION_FILE
    if not path.exists():
        raise ConfigError(f"{MISSION_FILE} is missing in {session.run.root}: write there what the new version must do")
    if not path.is_file():
        raise ConfigError(f"{path} is no file: move it away and write there what the new version must do")
    try:
        with machine_trouble():
            text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text: save it as UTF-8") from None
    if not written(text):
        raise ConfigError(
            f"{path} is not written yet: below its headings, say in a few sentences what the new version must do, keep and change"
        )


def written(text: str) -> bool:
    """Whether a mission holds anything beyond headings and the template's comments."""
    prose = re.sub(r"<!--.*?(?:-->|\Z)", "", text, flags=re.S)
    return any(line.strip() and not line.lstrip().startswith("#") for line in prose.splitlines())
