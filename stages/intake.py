"""intake: the old program as a snapshot and a map, before anybody judges it."""

from __future__ import annotations

from collections.abc import Mapping

from nightmill.errors import ConfigError
from nightmill.gate.languages.base import LanguagePack
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage

SYMBOLS_SHOWN = 40
"""Per file, in source.md; the rest is counted."""


@stage(makes=["source.md", "source.lock"], config=["language"], outside=True)
def intake(ctx: Ctx) -> None:
    """Take a snapshot of the source tree and map its files and symbols."""
    try:
        files = {rel: (ctx.session.source_root / rel).read_bytes() for rel in sorted(ctx.session.source_files)}
    except FileNotFoundError as error:
        raise ConfigError(f"{error.filename} vanished while the source was read: run doit again when it stands") from error
    if any(ctx.session.run.objects.put(data) != ctx.session.source_files[rel] for rel, data in files.items()):
        raise ConfigError("the source tree is being changed while it is read: run doit again when it stands")
    for reason, paths in ctx.session.source_skipped.items():
        ctx.note(f"left out of the source, {reason}: {', '.join(paths[:8])}" + (f" and {len(paths) - 8} more" if len(paths) > 8 else ""))
    ctx.write("".join(f"{ctx.session.source_files[rel]}  {rel}\n" for rel in files), "source.lock")
    ctx.write(_map(files, ctx.session.source_skipped, ctx.pack), "source.md")


def _map(files: Mapping[str, bytes], skipped: Mapping[str, list[str]], pack: LanguagePack) -> str:
    total = sum(data.count(b"\n") for data in files.values())
    lines = ["# Source", "", f"{len(files)} files, {total} lines, language {pack.name}.", ""]
    for rel, data in files.items():
        length = data.count(b"\n")
        lines.append(f"- `{rel}` ({length} lines)")
        symbols = pack.symbols(rel, data.decode()) if rel.endswith(tuple(pack.suffixes)) else []
        lines += [f"  - {s.line}: `{s.signature}`" for s in symbols[:SYMBOLS_SHOWN]]
        lines += [f"  - and {len(symbols) - SYMBOLS_SHOWN} more"] if len(symbols) > SYMBOLS_SHOWN else []
    if skipped:
        lines += ["", "## Left out", ""]
        lines += [
            f"- {reason}: {len(paths)} ({', '.join(paths[:5])}{', …' if len(paths) > 5 else ''})"
            for reason, paths in sorted(skipped.items())
        ]
    return "\n".join(lines)
