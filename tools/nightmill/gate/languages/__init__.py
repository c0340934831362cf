"""The languages nightmill can gate. Adding one: a file with a class that has the members of `base.LanguagePack`, and its line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nightmill.errors import ConfigError
from nightmill.gate.languages.base import LanguagePack, Symbol
from nightmill.gate.languages.javascript import JavaScriptPack
from nightmill.gate.languages.python import PythonPack
from nightmill.gate.languages.rust import RustPack
from nightmill.run.trees import Tree

__all__ = ["LanguagePack", "Symbol", "detect", "pack"]


def _python(tool: Path | None) -> LanguagePack:
    return PythonPack(interpreter=tool) if tool else PythonPack()


_PACKS: dict[str, Callable[[Path | None], LanguagePack]] = {
    "python": _python,
    "javascript": lambda _: JavaScriptPack(),
    "rust": lambda _: RustPack(),
}


def pack(name: str, tool: Path | None = None) -> LanguagePack:
    """The pack called `name`, with the person's own interpreter or compiler if they named one. ConfigError for an unknown language."""
    if name not in _PACKS:
        raise ConfigError(f"no language pack for {name!r}: set `language:` in run.yaml to one of {', '.join(sorted(_PACKS))}")
    return _PACKS[name](tool)


def detect(tree: Tree, tool: Path | None = None) -> tuple[LanguagePack, ...]:
    """Packs of the languages found in the tree, the one with most files first."""
    found = [p for p in (make(tool) for make in _PACKS.values()) if p.detect(tree)]
    return tuple(sorted(found, key=lambda p: -sum(path.endswith(p.suffixes) for path in tree)))
