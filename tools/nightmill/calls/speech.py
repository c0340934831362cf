"""Personas and formats in the words of a language: written for Python, they speak of `.js` files to who writes JavaScript."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nightmill.gate.languages.base import LanguagePack

_EXAMPLE = "\n\nExample\n\n"


def worded(text: str, pack: LanguagePack) -> str:
    """`text` with the language's words in place of Python's."""
    for word, own in pack.words.items():
        text = text.replace(word, own)
    return text


def persona(skill: str, pack: LanguagePack) -> str:
    """The persona, its example that of the language where it has one of its own."""
    from nightmill.calls.prompts import load_skill  # and with it the template engine, which a run with nothing to do never needs

    text = load_skill(skill).text
    if example := pack.examples.get(skill):
        text = text.split(_EXAMPLE)[0] + _EXAMPLE + example.strip()
    return worded(text, pack)
