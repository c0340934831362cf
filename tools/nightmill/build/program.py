"""The old program as the new one's model: its files of the target language without its tests, and its public names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nightmill.gate.languages.base import Symbol
    from nightmill.graph.context import Ctx

_TESTS = re.compile(r"(^|/)(tests?/|test_|conftest\.)")


def program(ctx: Ctx) -> dict[str, bytes]:
    """Path → content, in the order of paths."""
    suffixes = tuple(ctx.pack.suffixes)
    return {path: data for path, data in sorted(ctx.source().items()) if path.endswith(suffixes) and not _is_test(ctx, path)}


def _is_test(ctx: Ctx, path: str) -> bool:
    return _TESTS.search(path) is not None or ctx.pack.is_test_file(path)


def public(ctx: Ctx) -> list[Symbol]:
    """The public names of all files of the program."""
    return [s for path, data in program(ctx).items() for s in ctx.pack.symbols(path, data.decode("utf-8", "replace")) if s.public]


def uses(ctx: Ctx) -> dict[str, set[str]]:
    """Function → the functions whose names its source names, directly or through others, itself included. In doubt one more."""
    texts: dict[str, str] = {}
    for path, data in program(ctx).items():
        text = data.decode("utf-8", "replace")
        for symbol in ctx.pack.symbols(path, text):
            if symbol.kind in ("function", "method"):
                name = symbol.name.rpartition(".")[2]
                texts[name] = texts.get(name, "") + ctx.pack.function(path, text, symbol.name)
    reach = {name: {name} | (set(re.findall(r"\w+", text)) & set(texts)) for name, text in texts.items()}
    for _ in reach:
        reach = {name: found.union(*(reach[other] for other in found)) for name, found in reach.items()}
    return reach
