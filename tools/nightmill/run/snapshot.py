"""The person's source tree, read once: what counts as source, what is left out and why. Nothing is ever written there.

From here on the source is what is left when its secrets are redacted: hashes, stored texts and what V1 runs as all mean that text.
"""

from __future__ import annotations

import fnmatch
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from nightmill.errors import ConfigError, MachineError
from nightmill.paths import CONFIG_FILE, MISSION_FILE, RUN_FILE
from nightmill.redact import SHAPES_ONLY, Redactor, replaced
from nightmill.run.trees import SKIP_DIRS, sha

MAX_FILES = 5000
MAX_FILE_BYTES = 1_000_000
MAX_BYTES = 50_000_000
"""Of all files together: a source tree is held in memory."""
SECRET_FILES = (
    *(".env", ".env.*", ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.gpg"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials", "credentials.json", "secrets.*"),
)
SECRET_DIRS = frozenset({".ssh", ".aws", ".gnupg", ".azure", ".gcloud", ".kube", ".docker"})
NOT_SECRET = (".env.example", ".env.sample", ".env.template")


@dataclass(frozen=True)
class Snapshot:
    """`files`: relative path → hash of each text file, secrets redacted; `skipped`: reason → paths left out."""

    root: Path
    files: dict[str, str]
    skipped: dict[str, list[str]] = field(default_factory=dict)
    redacted: dict[str, int] = field(default_factory=dict)
    """Path → how many different secrets were replaced in it."""


def scan(
    root: Path, *, run: Path | None = None, redactor: Redactor = SHAPES_ONLY, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES
) -> Snapshot:
    """Looks at every file that git would not ignore. What lies in run directories, such as `run`, is not source.

    Raises ConfigError, in one line with the remedy, when the source is missing, not a directory, empty, too large, or the run itself.
    """
    if not root.exists():
        raise ConfigError(f"source: {root} does not exist: set `source:` in run.yaml")
    if not root.is_dir():
        raise ConfigError(f"source: {root} is a file: set `source:` in run.yaml to the directory that holds it")
    if run is not None and root.resolve() == run.resolve():
        raise ConfigError(f"source: {root} is the run directory itself: set `source:` in run.yaml to the directory of the old program")
    names = sorted(_listed(root))
    runs = tuple(name.removesuffix(RUN_FILE) for name in names if name.endswith(f"/{RUN_FILE}") and _is_run(root / name))
    names = [name for name in names if not name.startswith(runs)]
    if len(names) > max_files:
        many = f"source: {root} holds {len(names)} files, more than {max_files}"
        raise ConfigError(f"{many}: point `source:` at a part of it, or list the rest in a .gitignore")
    found = Snapshot(root, {}, {"a nightmill run": list(runs)} if runs else {})
    size = 0
    for rel in names:
        reason = _why_not(root, rel) or _why_not_named(rel, redactor)
        if reason:
            found.skipped.setdefault(reason, []).append(redactor(rel) if rel.isprintable() else redactor(ascii(rel)))
            continue
        size += _take(found, rel, redactor)
        if size > max_bytes:
            large = f"source: {root} holds more than {max_bytes // 1_000_000} MB of text"
            raise ConfigError(f"{large}: point `source:` at a part of it, or list the rest in a .gitignore")
    if not found.files:
        raise ConfigError(f"source: {root} has no text files that count as source: set `source:` in run.yaml to a source tree")
    return found


def _take(found: Snapshot, rel: str, redactor: Redactor) -> int:
    """Enters one file into the snapshot; returns its size in bytes."""
    try:
        data = (found.root / rel).read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"source: {found.root} is being changed while it is read: run doit again when it stands") from None
    redacted = redactor.file(data)
    found.files[rel] = sha(redacted)
    if redacted != data:
        found.redacted[rel] = replaced(redacted.decode("utf-8", "replace"))
    return len(data)


def _is_run(run_file: Path) -> bool:
    return run_file.with_name(CONFIG_FILE).is_file() and run_file.with_name(MISSION_FILE).is_file()


def is_secret(rel: str) -> bool:
    """Whether a path looks like a key, a credential or an environment file."""
    parts = PurePosixPath(rel).parts
    name = parts[-1].lower()
    if name in NOT_SECRET:
        return False
    return any(p in SECRET_DIRS for p in parts[:-1]) or any(fnmatch.fnmatch(name, pattern) for pattern in SECRET_FILES)


def _why_not_named(rel: str, redactor: Redactor) -> str:
    return "a name that holds a secret" if redactor(rel) != rel else ""


def _why_not(root: Path, rel: str) -> str:
    path = root / rel
    if not rel.isprintable():
        return "a name that cannot be printed"
    if is_secret(rel):
        return "secret"
    if any(part in SKIP_DIRS for part in PurePosixPath(rel).parts[:-1]):
        return "tool output"
    if path.is_symlink() or not path.is_file():
        return "not a regular file"
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return "larger than 1 MB"
        data = path.read_bytes()
    except OSError:
        return "not readable"
    if b"\0" in data:
        return "binary"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "binary"
    return ""


def _listed(root: Path) -> Iterator[str]:
    """Files that git does not ignore, by a git directory of our own: the tree's `.git` may name programs to run."""
    with tempfile.TemporaryDirectory(prefix="nightmill-git-") as scratch:
        git_dir = Path(scratch, "git")
        _git(["init", "--quiet", "--bare", str(git_dir)])
        pending = [""]
        while pending:
            base = pending.pop()
            for name in _git(
                [f"--git-dir={git_dir}", f"--work-tree={root / base}", "ls-files", "--others", "--exclude-standard", "-z"], root / base
            ):
                if name.endswith("/"):
                    pending.append(base + name)
                elif name:
                    yield base + name


def _git(arguments: list[str], cwd: Path | None = None) -> list[str]:
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    try:
        done = subprocess.run(["git", *arguments], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        raise MachineError("git is not installed (it tells which files of the source are ignored): apt-get install git") from None
    if done.returncode:
        raise ConfigError(f"source: git cannot list the files: {done.stderr.decode(errors='replace').strip()[:200]}")
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")
