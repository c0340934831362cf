"""Placeholder lines: `# ... rest of the code unchanged ...` in place of the code it speaks of."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from nightmill.edits.items import Refused
from nightmill.edits.lines import BLANK
from nightmill.edits.paths import suffix_of

_MARKUP = frozenset({"md", "markdown", "mdx", "mkd", "qmd", "rmd", "rst", "txt", "adoc"})
"""Files in which `#`, `*`, `-` and `>` open headings and lists, not comments."""

_COMMENT = re.compile(
    r"(?:\{/\*+|/\*+|\{\{!(?:--)?|\{#|<!--|<%#|<%--|\(\*|--\[\[|--+|//+!?|#+|;+|%+|\*(?=[ .…])|REM\b|rem\b)"
    r"(?P<inner>.*?)"
    r"(?:\*+/\}?|(?:--)?\}\}|#\}|-->|--%>|%>|\*\)|\]\])?",
    re.DOTALL,
)
_HTML_COMMENT = re.compile(r"(?:<!--|\{/\*+)(?P<inner>.*?)(?:-->|\*+/\})", re.DOTALL)
_STUB = re.compile(r"(?:pass|\.\.\.|return;?|[{};])[ \t]+(?=[#/{(<-])")
_SPREAD = re.compile(r"\.\.\.[\w$]+(?:[.(\[].*)?[,;)\]}]*")
_DOTS_BEFORE = re.compile(r"(?:\.{3,}|…)[ \t]*")
_DOTS_AFTER = re.compile(r"[ \t]*(?:\.{3,}|…)")
_LONGEST = 300
"""Characters and words beyond which a line is prose; they also bound the work of the expressions below, whose loops are possessive."""

_MOST_WORDS = 14

_NOUN = (
    r"(?:code|files?|functions?|methods?|class(?:es)?|implementations?|logic|imports?|contents?|lines?|body|bodies|modules?|scripts?|tests?"
    r"|definitions?|declarations?|routes?|handlers?|fields?|statements?|cases?|entries|sections?|parts?|stuff|helpers?|propert(?:y|ies)"
    r"|attributes?|variables?|constants?|config(?:uration)?|settings|parameters|arguments|components?|styles?|rules?|quer(?:y|ies)|columns?"
    r"|items?|text|blocks?|documents?|programs?|sources?|features|elements?|markup|setup|steps?|endpoints?|fixtures?|types?|members?|structs?"
    r"|enums?|interfaces?|traits?|hooks?|selectors?|keys|options|checks|assertions|docstrings?|comments)"
)
_LEAD = (
    r"(?:(?:and|the|all|any|your|my|our|this|with|keep|leave|insert|include|add|put|paste|copy|plus|here|as|is|same|of|for|in|goes|go|"
    r"then|remains?|stays?|todo:?)\s+){0,4}"
)
_UNTOUCHED = (
    r"(?>(?:(?:is|are|be|left|kept|remains?|stays?|remaining|staying|goes|go|comes)\s+)*+"
    r"(?:exactly\s+|all\s+|completely\s+)?"
    r"(?:unchanged|untouched|unmodified|intact|omitted|elided|skipped|truncated|not\s+shown|(?:the\s+)?same|as\s+(?:is|before|they\s+(?:are|were))"
    r"|as-is|here|above|below|follows|continues?|identical)\b)"
)
_REST = rf"(?:rest|remainder)\b(?:\s+of\s+(?:\w+\s+){{0,4}}{_NOUN}\b|\s+{_UNTOUCHED}|\s*$|\s+of\s+(?:it|this|that|them)\b)"
_ADJECTIVE = r"(?:existing|remaining|previous|original|unchanged|unmodified|other|current)"
_OTHERS = rf"{_ADJECTIVE}\s+(?:[\w/.()`-]+,?\s+){{0,3}}{_NOUN}\b"
_SPEAKS = re.compile(
    rf"\b(?:{_REST}|{_OTHERS}|{_ADJECTIVE}\s*$|unchanged\b|{_NOUN}\s+{_UNTOUCHED}|same\s+as\s+(?:before|above)\b|omitted\b|as\s+before\b)",
    re.IGNORECASE,
)
_OPENS = re.compile(rf"{_LEAD}(?:{_SPEAKS.pattern})", re.IGNORECASE)
_TAIL = rf"(?:\s*,?\s*(?:{_UNTOUCHED}|for\s+brevity|in\s+(?:the|this)\s+(?:file|class|module)|from\s+(?:the\s+)?(?:original|before)\b.*))*+"
_STRONG_NOUN = (
    r"(?:code|implementations?|methods?|functions?|logic|imports?|contents?|body|(?:class|file|function|method)\s+(?:body|contents?))"
)
_WHOLE_PHRASE = re.compile(
    rf"{_LEAD}(?:(?:rest|remainder)\s+of\s+(?:\w+\s+){{0,3}}{_NOUN}{_TAIL}"
    rf"|(?:the\s+)?(?:rest|remainder)\s+{_UNTOUCHED}{_TAIL}"
    rf"|{_ADJECTIVE}\s+(?:\w+\s+){{0,2}}{_NOUN}\s*,?\s*{_UNTOUCHED}{_TAIL}"
    rf"|{_ADJECTIVE}\s+(?:\w+\s+)?{_STRONG_NOUN}{_TAIL}"
    rf"|{_NOUN}\s+{_UNTOUCHED}{_TAIL}"
    r"|(?:same\s+as|as)\s+before|unchanged|(?:code\s+)?(?:omitted|unchanged)(?:\s+for\s+brevity)?)[ .:]*",
    re.IGNORECASE,
)


def demand_complete(new: Iterable[str], path: str, *known: Container[str]) -> None:
    """Raises Refused when one of the lines stands for code left out."""
    if placeholder := elided_line(new, path, *known):
        raise Refused("elided", f"`{placeholder}` stands for code that was left out: write every line.", guard="elided")


def elided_line(new: Iterable[str], path: str, *known: Container[str]) -> str | None:
    """The first of the `new` lines that stands for code left out; lines that are `known`, compared without outer blanks, do not count."""
    markup = suffix_of(path) in _MARKUP
    for line in new:
        text = line.strip()
        if text and len(text) <= _LONGEST and _is_placeholder(text, markup):
            bare = line.strip(BLANK)
            if not any(bare in lines for lines in known):
                return text
    return None


def _is_placeholder(text: str, markup: bool) -> bool:
    if text[0] in "\"'`":
        return False
    stub = None if markup else _STUB.match(text)
    comment = (_HTML_COMMENT if markup else _COMMENT).fullmatch(text)
    comment = comment or (_COMMENT.fullmatch(text, stub.end()) if stub else None)
    if comment:
        return _stands_for_code(comment["inner"], comment=True)
    return not _SPREAD.fullmatch(text) and _stands_for_code(text, comment=False)


def _stands_for_code(text: str, *, comment: bool) -> bool:
    inner = _bare(text)
    before = _DOTS_BEFORE.match(inner)
    inner = inner[before.end() :] if before else inner
    after = _DOTS_AFTER.search(inner)
    at_end = after is not None and _DOTS_AFTER.fullmatch(inner, after.start()) is not None
    inner = _bare(inner[: after.start()] if after and at_end else inner)
    if not inner or len(inner.split()) > _MOST_WORDS:
        return False
    if before:
        return _SPEAKS.search(inner) is not None
    if at_end:
        return _OPENS.match(inner) is not None
    return comment and _WHOLE_PHRASE.fullmatch(inner) is not None


def _bare(text: str) -> str:
    """`text` without the brackets around all of it."""
    text = text.strip()
    while len(text) > 2 and text[0] + text[-1] in ("()", "[]", "<>", "{}"):
        text = text[1:-1].strip()
    return text
