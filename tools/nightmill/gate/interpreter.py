"""What of the host a Python interpreter needs in order to run elsewhere: directory trees, and the links that lead to them."""

from __future__ import annotations

import json
import subprocess
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from nightmill.errors import ConfigError

_ASK_S = 30.0
_MAX_LINKS = 40  # as the kernel allows in one path
_TOO_WIDE = {Path(p) for p in ("/", "/home", "/root", "/tmp", "/etc", "/var", "/opt", "/srv", "/mnt", "/run", "/proc", "/sys", "/dev")}
SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Directories, or links into /usr, that every sandbox has."""

_ASK = """
import json, os, site, sys
user = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
print(json.dumps([
    [sys.executable, getattr(sys, "_base_executable", "") or sys.executable],
    sorted({sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}),
    [user, site.getuserbase()] if user and user in sys.path else [],
]))
"""


@dataclass(frozen=True)
class Interpreter:
    path: str
    """Absolute, the same inside and outside."""
    trees: tuple[Path, ...]
    """Real paths of directories to bind read-only where they are; none lies in another or in /usr."""
    links: tuple[tuple[Path, str], ...]
    """(where, target) of symbolic links outside of `trees` to recreate."""
    env: tuple[tuple[str, str], ...]


def examine(interpreter: Path) -> Interpreter:
    """Ask an interpreter (of the system, of a version manager, of a virtual environment, a shim) where its files are.

    Nothing but its prefixes and its user's site-packages is included: a project installed in editable mode stays outside.
    Raises ConfigError when it does not start, or when its prefix is a directory that holds more than an interpreter.
    """
    executables, prefixes, user = _ask(interpreter)
    links: dict[Path, str] = {}
    trees = {follow(Path(path), links) for path in (*prefixes, *user[:1])}
    for tree in trees:
        _refuse_wide(tree, interpreter)
    for path in (*executables, *_homes(prefixes)):
        follow(Path(path), links)
    system = {Path("/usr"), *map(Path, SYSTEM_LINKS)}
    outer = {tree for tree in trees if tree.is_dir() and not _within(tree, (system | trees) - {tree})}
    outside = {where: target for where, target in links.items() if not _within(where, system | outer)}
    env = tuple(("PYTHONUSERBASE", base) for base in user[1:])
    return Interpreter(executables[0], tuple(sorted(outer)), tuple(sorted(outside.items())), env)


def _ask(interpreter: Path) -> list[list[str]]:
    """Executables (as started, of the base), prefixes, and the user's site-packages with their base or nothing."""
    command = [str(interpreter.absolute()), "-E", "-c", _ASK]
    try:
        asked = subprocess.run(command, capture_output=True, timeout=_ASK_S, check=True, cwd="/", text=True, encoding="utf-8")
        answer: list[list[str]] = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise ConfigError(f"{interpreter} does not work as a Python interpreter ({lines[-1]}): name another one") from error
    return answer


def _homes(prefixes: list[str]) -> list[str]:
    """The `home` of each virtual environment as its pyvenv.cfg spells it, which may differ from the base prefix by a link."""
    found = []
    for prefix in prefixes:
        cfg = Path(prefix, "pyvenv.cfg")
        for line in cfg.read_text(encoding="utf-8").splitlines() if cfg.is_file() else ():
            key, _, value = line.partition("=")
            if key.strip() == "home":
                found.append(value.strip())
    return found


def _refuse_wide(tree: Path, interpreter: Path) -> None:
    home = Path.home().resolve()
    if tree in _TOO_WIDE or tree == home or tree in home.parents:
        raise ConfigError(
            f"{interpreter} keeps its files in {tree}, which holds private files too: use a virtual environment in a directory of its own"
        )


def _within(path: Path, places: set[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def follow(path: Path, links: dict[Path, str]) -> Path:
    """The real path, noting in `links` every symbolic link on the way: where it lies (a real path) → its target."""
    at = Path("/")
    parts = deque(path.parts[1:])
    hops = 0
    while parts:
        part = parts.popleft()
        here = at.parent if part == ".." else at / part
        if not here.is_symlink():
            at = here
            continue
        hops += 1
        if hops > _MAX_LINKS:
            raise ConfigError(f"{path} leads through a circle of links: name another interpreter")
        target = here.readlink()
        links[here] = str(target)
        parts.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
        if target.is_absolute():
            at = Path("/")
    return at
