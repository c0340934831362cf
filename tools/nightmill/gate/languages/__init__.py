"""The languages nightmill can gate. Adding one: a file with a class that has the members of `base.LanguagePack`, and its line here."""

from __future__ import annotations

from nightmill.errors import ConfigError
from nightmill.gate.languages.base import LanguagePack, Symbol
from nightmill.gate.languages.python import PythonPack
from nightmill.run.trees import Tree

__all__ = ["LanguagePack", "Symbol", "detect", "pack"]

_PACKS: dict[str, type[LanguagePack]] = {"python": PythonPack}


def pack(name: str) -> LanguagePack:
    """The pack called `name`. Raises ConfigError for a language without one."""
    if name not in _PACKS:
        raise ConfigError(f"no language pack for {name!r}: set `language:` in run.yaml to one of {', '.join(sorted(_PACKS))}")
    return _PACKS[name]()


def detect(tree: Tree) -> tuple[LanguagePack, ...]:
    """Packs of the languages found in the tree, the one with most files first."""
    found = [p for p in (make() for make in _PACKS.values()) if p.detect(tree)]
    return tuple(sorted(found, key=lambda p: -sum(path.endswith(p.suffixes) for path in tree)))
