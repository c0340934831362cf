"""intake: the old program as a snapshot and a map, before anybody judges it."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from nightmill.errors import ConfigError
from nightmill.gate.languages.base import LanguagePack
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage
from nightmill.redact import replaced

SYMBOLS_SHOWN = 40
"""Per file, in source.md; the rest is counted."""
PLACES_SHOWN = 3
JOINERS = "\u200c\u200d"
"""Part of how some scripts and emoji are written."""


@stage(makes=["source.md", "source.lock"], config=["language"], outside=True)
def intake(ctx: Ctx) -> None:
    """Take a snapshot of the source tree and map its files and symbols."""
    session = ctx.session
    try:
        files = {rel: session.read_source(rel) for rel in sorted(session.source_files)}
    except FileNotFoundError as error:
        raise ConfigError(f"{error.filename} vanished while the source was read: run doit again when it stands") from error
    if any(session.run.objects.put(data) != session.source_files[rel] for rel, data in files.items()):
        raise ConfigError("the source tree is being changed while it is read: run doit again when it stands")
    for reason, paths in session.source_skipped.items():
        ctx.note(f"left out of the source, {reason}: {', '.join(paths[:8])}" + (f" and {len(paths) - 8} more" if len(paths) > 8 else ""))
    _warn(ctx, files)
    ctx.write("".join(f"{session.source_files[rel]}  {rel}\n" for rel in files), "source.lock")
    ctx.write(_map(files, session.source_skipped, ctx.pack), "source.md")


def _warn(ctx: Ctx, files: Mapping[str, bytes]) -> None:
    """Secrets to be put back, and characters that a reader of the source does not see."""
    for rel, count in sorted(ctx.session.source_redacted.items()):
        what = f"{count} secret{'s' * (count != 1)} of the old program replaced by REDACTED_SECRET_…, in prompts and wherever it is run"
        ctx.finding("intake", f"{what}: where the new program says so, have it read the value from its environment or put it back", rel)
    for rel, data in files.items():
        if places := _unseen(data.decode("utf-8", "replace")):
            shown = ", ".join(f"line {line}: {char}" for line, char in places[:PLACES_SHOWN])
            more = f" and {len(places) - PLACES_SHOWN} more" if len(places) > PLACES_SHOWN else ""
            ctx.finding("intake", f"characters that nobody sees, the text may read otherwise than it looks: {shown}{more}", rel)


def _unseen(text: str) -> list[tuple[int, str]]:
    """(line, `U+202E RIGHT-TO-LEFT OVERRIDE`) of control and format characters, bidirectional ones among them."""
    text = text.removeprefix("\ufeff")
    if text.isascii() and not any(c < " " and c not in "\t\n\r\f\v" for c in set(text)):
        return []
    return [
        (number, f"U+{ord(char):04X} {unicodedata.name(char, 'control character')}")
        for number, line in enumerate(text.split("\n"), 1)
        for at, char in enumerate(line)
        if unicodedata.category(char) in ("Cc", "Cf") and char not in "\t\r\f\v" and not (char in JOINERS and _joins(line, at))
    ]


def _joins(line: str, at: int) -> bool:
    return at > 0 and at + 1 < len(line) and not line[at - 1].isascii() and not line[at + 1].isascii()


def _map(files: Mapping[str, bytes], skipped: Mapping[str, list[str]], pack: LanguagePack) -> str:
    total = sum(data.count(b"\n") for data in files.values())
    lines = ["# Source", "", f"{len(files)} files, {total} lines, language {pack.name}.", ""]
    for rel, data in files.items():
        length = data.count(b"\n")
        lines.append(f"- `{rel}` ({length} lines{_secrets(replaced(data.decode()))})")
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


def _secrets(count: int) -> str:
    return f", {count} secret{'s' * (count != 1)} replaced" if count else ""
