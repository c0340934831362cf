"""Cargo and rustc on this machine: the real programs behind rustup's shims, and how they get into the sandbox."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from nightmill.errors import ConfigError

_ASK_S = 30.0
_SYSTEM = Path("/usr")
"""What every sandbox has."""
_INSIDE = "/nightmill/rust"
_HOMES = ("~/.cargo/bin", "~/.rustup/toolchains/*/bin", "/usr/bin", "/usr/local/bin", "/opt/rust*/bin", "/snap/bin")
_OLDEST = (1, 63)
MISSING = "cargo and rustc are missing: install Rust 1.63 or newer (apt install cargo, or rustup), so that they are on the PATH"
LINKER = "a C linker is missing, without which rustc makes no programs: install one (apt install gcc libc6-dev)"
TARGET = "/build/.nightmill/target"


@dataclass(frozen=True)
class Rust:
    """One toolchain. Paths are absolute and free of links and shims."""

    sysroot: Path
    cargo: Path
    rustc: Path
    version: str
    cargo_version: str
    linker: bool = True

    def __str__(self) -> str:
        return f"rustc {self.version} ({self.rustc}), cargo {self.cargo_version} ({self.cargo})"

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])

    def inside(self, name: str) -> str:
        """The path in the sandbox of one of its programs."""
        host = self.cargo if name == "cargo" else self.sysroot / "bin" / name
        return str(host) if host.is_relative_to(_SYSTEM) else f"{_INSIDE}/bin/{name}"

    @property
    def clippy(self) -> bool:
        return all((self.sysroot / "bin" / name).is_file() for name in ("cargo-clippy", "clippy-driver"))

    @property
    def bind(self) -> Mapping[str, Path]:
        """What a run must bind: path inside → host. Of the sysroot its programs and libraries, no sources and no documentation."""
        names = ["cargo", "rustc", *(("cargo-clippy", "clippy-driver") if self.clippy else ())]
        hosts = {name: self.cargo if name == "cargo" else self.sysroot / "bin" / name for name in names}
        made = {self.inside(name): host for name, host in hosts.items() if not host.is_relative_to(_SYSTEM)}
        return made if self.sysroot.is_relative_to(_SYSTEM) else made | {f"{_INSIDE}/lib": self.sysroot / "lib"}

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "CARGO_HOME": "/build/.nightmill/cargo",
            "CARGO_TARGET_DIR": TARGET,
            "CARGO_NET_OFFLINE": "true",
            "CARGO_TERM_COLOR": "never",
            "CARGO": self.inside("cargo"),
            "RUSTFLAGS": "--cap-lints=warn",
            "RUSTC": self.inside("rustc"),
            "TZ": "UTC",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
        }

    def require(self) -> None:
        """Raises ConfigError."""
        if self.numbers < _OLDEST:
            raise ConfigError(f"rustc {self.version} at {self.rustc} is too old: install Rust 1.63 or newer")
        if not self.linker:
            raise ConfigError(LINKER)


def find() -> Rust | None:
    """The toolchain of the search path, else the newest of the usual places; None when there is none that works."""
    return _find(os.environ.get("PATH", os.defpath), str(Path.home()))


@lru_cache
def _find(path: str, home: str) -> Rust | None:
    on_path = shutil.which("rustc", path=path)
    if on_path and (found := _asked(Path(on_path), path)):
        return found
    every = [found for place in _places(home) if (found := _asked(place / "rustc", path))]
    return max(every, key=lambda rust: ("-" not in rust.version, rust.numbers), default=None)  # a nightly one comes last


def _places(home: str) -> Iterator[Path]:
    for pattern in _HOMES:
        whole = Path(pattern.replace("~", home, 1))
        yield from (p for p in sorted(Path("/").glob(str(whole.relative_to("/")))) if os.access(p / "rustc", os.X_OK))


def _asked(rustc: Path, path: str) -> Rust | None:
    sysroot, version = _line(rustc, "--print", "sysroot"), _line(rustc, "--version")
    if not sysroot or not version:
        return None
    root = Path(sysroot).resolve()
    real = root / "bin" / "rustc"
    cargos = [root / "bin" / "cargo", rustc.parent / "cargo", *map(Path, filter(None, [shutil.which("cargo", path=path)]))]
    cargo = next((c for c in cargos if c.is_file() and (c.parent == root / "bin" or "rustup" not in c.resolve().name)), None)
    told = _line(cargo, "--version") if cargo else ""
    if cargo is None or not told or not real.is_file():
        return None
    linker = shutil.which("cc", path="/usr/local/bin:/usr/bin:/bin") is not None
    return Rust(root, cargo.resolve(), real, version.split()[1], told.split()[1], linker)


def _line(program: Path, *words: str) -> str:
    """The first line that a program prints; "" when it fails."""
    try:
        asked = subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_ASK_S,
            check=True,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return asked.stdout.split("\n")[0].strip()
