"""The one door for writes to a run's artifacts, and the judge of whose text lies there.

Order of a publication: objects stored → journal lines → old text linked aside → rename → (by the caller) stamp. Whatever is killed in
between, the next run knows which text is ours: a text that neither the stamp nor the journal knows was written by a person.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nightmill.errors import machine_trouble
from nightmill.redact import SHAPES_ONLY, Redactor
from nightmill.run.atomic import write_atomic
from nightmill.run.journal import Act, Journal
from nightmill.run.record import Stamp
from nightmill.run.trees import file_hash, hashes, sha

Content = Mapping[str, bytes]
"""Paths relative to the run directory → text."""


@dataclass(frozen=True)
class Published:
    """`product`: path → hash of what the stage made. `proposed`: where it was put instead, when a person edited meanwhile."""

    product: dict[str, str]
    proposed: str = ""


class Objects:
    """Every text the run ever had, by hash (`.nightmill/objects/ab/cdef…`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest[2:]

    def put(self, data: bytes) -> str:
        digest = sha(data)
        if not self._path(digest).exists():
            write_atomic(self._path(digest), data, 0o600)
        return digest

    def get(self, digest: str) -> bytes:
        """Raises FileNotFoundError when the object is gone."""
        return self._path(digest).read_bytes()

    def __contains__(self, digest: str) -> bool:
        return self._path(digest).is_file()


class Ledger:
    """Targets are named as in a stage's `makes`: `contract.md`, or `schema/` for a directory."""

    def __init__(self, root: Path, journal: Journal, objects: Objects, redactor: Redactor = SHAPES_ONLY) -> None:
        self.root = root
        self.redactor = redactor
        self.journal = journal
        self.objects = objects

    def current(self, targets: Sequence[str]) -> dict[str, str]:
        """Path → hash of what lies at the targets now."""
        found: dict[str, str] = {}
        for target in targets:
            path = self.root / target
            if target.endswith("/"):
                found |= {target + rel: digest for rel, digest in hashes(path).items()}
            elif path.is_file():
                found[target] = file_hash(path)
        return found

    def present(self, targets: Sequence[str]) -> bool:
        return all((self.root / t).is_dir() if t.endswith("/") else (self.root / t).is_file() for t in targets)

    def edits(self, targets: Sequence[str], stamp: Stamp | None) -> list[str]:
        """Paths that a person wrote, changed, or deleted out of a directory that is still there."""
        known, removed = self._known(stamp)
        now = self.current(targets)
        edited = [path for path, digest in now.items() if digest not in known.get(path, ())]
        for path in stamp.product if stamp else ():
            folder = next((t for t in targets if t.endswith("/") and path.startswith(t)), None)
            if path not in now and path not in removed and folder and (self.root / folder).is_dir():
                edited.append(path)
        return sorted(edited)

    def _known(self, stamp: Stamp | None) -> tuple[dict[str, set[str]], set[str]]:
        known: dict[str, set[str]] = {}
        removed: set[str] = set()
        if stamp and stamp.by == "stage":
            known = {path: {digest} for path, digest in stamp.product.items()}
        for entry in self.journal.since(stamp.position if stamp else 0):
            if entry.act == "made":
                known.setdefault(entry.path, set()).add(entry.sha)
            elif entry.act in ("removed", "set_aside"):
                removed.add(entry.path)
        return known, removed

    def clean(self, content: Content) -> dict[str, bytes]:
        """Without known secrets; names also without what looks like one. Texts that a model wrote are not changed for their looks."""
        return {self.redactor(path): self.redactor.known_bytes(data) for path, data in content.items()}

    def publish(self, stage: str, targets: Sequence[str], content: Content, stamp: Stamp | None) -> Published:
        """Puts a stage's product in place, or beside it as `.proposed` when a person edited the target while the stage ran."""
        content = self.clean(content)
        product = {path: self.objects.put(data) for path, data in content.items()}
        if self.edits(targets, stamp):
            return Published(product, self.propose(stage, targets, content))
        stale = [path for path in self.current(targets) if path not in product]
        acts: list[tuple[Act, str, str, str]] = [("made", stage, path, digest) for path, digest in product.items()]
        self.journal.append(acts + [("removed", stage, path, "") for path in stale])
        with machine_trouble():
            for path in stale:
                self._remove(path)
            for target in targets:
                if target.endswith("/"):
                    (self.root / target).mkdir(parents=True, exist_ok=True)
            for path, data in content.items():
                self._replace(stage, path, data, product[path])
        return Published(product)

    def _replace(self, stage: str, path: str, data: bytes, digest: str) -> None:
        """Renames the new text over the old; a text that slipped in since the last look is kept as an object."""
        target = self.root / path
        if target.is_file() and file_hash(target) == digest:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        old = target.with_name(f".{target.name[:40]}.{secrets.token_hex(6)}.old.tmp")
        try:
            os.link(target, old)
        except FileNotFoundError:
            write_atomic(target, data)
            return
        except PermissionError:  # a file system without hard links
            old.write_bytes(target.read_bytes())
        try:
            write_atomic(target, data)
            self._rescue(stage, path, old)
        finally:
            old.unlink(missing_ok=True)

    def _rescue(self, stage: str, path: str, old: Path) -> None:
        """Keeps a displaced text that nobody has recorded."""
        displaced = old.read_bytes()
        if sha(displaced) not in {e.sha for e in self.journal}:
            self.journal.append([("rescued", stage, path, self.objects.put(displaced))])

    def rescue_left(self) -> None:
        """The same for what a killed publication had linked aside. Call it under the run's lock, before leftovers are swept."""
        for old in self.root.rglob(".*.old.tmp"):
            if old.is_file() and not old.is_symlink():
                self._rescue("", old.relative_to(self.root).as_posix(), old)

    def write_persons(self, stage: str, content: Mapping[str, bytes | None]) -> None:
        """Puts a text in place that counts as the person's (their edit merged with ours); what was there is kept as an object.

        None as a text removes the file.
        """
        for path, data in content.items():
            target = self.root / path
            if target.is_file():
                self.journal.append([("rescued", stage, path, self.objects.put(target.read_bytes()))])
            if data is None:
                self._remove(path)
            else:
                write_atomic(target, data)

    def propose(self, stage: str, targets: Sequence[str], content: Content) -> str:
        """Writes beside the targets, as NAME.proposed; returns those names."""
        for target in targets:
            beside = target.rstrip("/") + ".proposed"
            for path, data in content.items():
                if target.endswith("/") and path.startswith(target):
                    self._beside(stage, f"{beside}/{path[len(target) :]}", data)
                elif path == target:
                    self._beside(stage, beside, data)
            self.journal.append([("proposed", stage, beside, "")])
        return ", ".join(t.rstrip("/") + ".proposed" for t in targets)

    def _beside(self, stage: str, path: str, data: bytes) -> None:
        """An earlier proposal that a person has worked on stays as an object."""
        target = self.root / path
        if target.is_file() and target.read_bytes() != data:
            self.journal.append([("rescued", stage, path, self.objects.put(target.read_bytes()))])
        write_atomic(target, data)

    def set_aside(self, stage: str, targets: Sequence[str]) -> dict[str, str]:
        """Keeps what lies at the targets as objects and removes it. Returns path → hash."""
        now = self.current(targets)
        for path in now:
            self.objects.put((self.root / path).read_bytes())
        self.journal.append([("set_aside", stage, path, digest) for path, digest in now.items()])
        for path in now:
            self._remove(path)
        return now

    def _remove(self, path: str) -> None:
        target = self.root / path
        target.unlink(missing_ok=True)
        for parent in PurePosixPath(path).parents[:-1]:
            folder = self.root / parent
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
