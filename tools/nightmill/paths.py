"""Where things are: the pipeline files (checkout or wheel) and the run directory around a working directory."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from nightmill.errors import ConfigError, UsageError

RUN_FILE = "run.yaml"
MISSION_FILE = "mission.md"
CONFIG_FILE = "doit.cfg"
STATE = ".nightmill"


@cache
def pipeline_root() -> Path:
    """The directory that holds dodo.py, stages/, skills/ and templates/.

    In a wheel they travel inside the package as `nightmill/pipeline/`; in a checkout they are at its top.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "pipeline", package.parent.parent):
        if (candidate / "dodo.py").is_file() and (candidate / "stages").is_dir():
            return candidate
    raise UsageError(f"the pipeline files (dodo.py, stages/) are missing beside {package}: reinstall nightmill")


def skills_dir() -> Path:
    return pipeline_root() / "skills"


def templates_dir() -> Path:
    return pipeline_root() / "templates"


def _load(name: str, path: Path, *, package: Path | None = None) -> ModuleType:
    locations = [str(package)] if package else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=locations)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_dodo() -> ModuleType:
    """dodo.py as a module. `stages` is registered by its path, so neither the run directory nor the checkout enters `sys.path`."""
    root = pipeline_root()
    loaded = sys.modules.get("stages")
    if loaded is None or str(root / "stages") not in (loaded.__path__ or []):
        _load("stages", root / "stages" / "__init__.py", package=root / "stages")
    if "nightmill_dodo" in sys.modules:
        return sys.modules["nightmill_dodo"]
    return _load("nightmill_dodo", root / "dodo.py")


def find_run(start: Path) -> Path:
    """The run directory that contains `start`: the nearest directory upwards with a run.yaml.

    Raises UsageError with the remedy when there is none.
    """
    here = start.resolve()
    for folder in (here, *here.parents):
        if (folder / RUN_FILE).is_file():
            return folder
    raise UsageError(f"no {RUN_FILE} in {here} or above. Start a run: nightmill new NAME --source PATH")


def working_directory() -> Path:
    """Raises UsageError when somebody removed it."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the working directory does not exist any more: cd into it again") from None


def expand(text: str, base: Path) -> Path:
    """A path as a person writes it in run.yaml: absolute, below `base`, or with `~`. Raises ConfigError for an unknown `~user`."""
    try:
        return base / Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(f"run.yaml: {text}: there is no such user: write the path without ~") from None
