"""What secrets look like: a short list of shapes that are rarely anything else. A missed key is bad; a rewritten program is bad too.

Every search is linear in the text, whatever is in it: shapes start with a literal, runs are bounded or cannot start twice.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

PREFIX = "REDACTED_SECRET_"
PLACEHOLDER = re.compile(PREFIX + r"[0-9a-f]{3}(?:[0-9a-f]{3})?")

SHORT = 16
"""Characters. Below it a value may be one that a person thought of."""
MIN_ENTROPY = 3.5
"""Bits per character; English words have about 3, random letters and digits of this length about 4."""
MIN_HEX_ENTROPY = 3.0
"""The same for 32 hex digits and more, which cannot have more than 4; random ones have about 3.6."""


def placeholder(value: str) -> str:
    """An identifier-like ASCII word, valid inside any string literal; the same one for the same value, in every process.

    Its digits come from a hash cut to 24 bits, and to 12 bits for a short value: about one in 4,096 guesses fits, so the
    placeholder does not confirm which word of a dictionary a weak password was.
    """
    digest = hashlib.sha256(b"nightmill placeholder\0" + value.encode("utf-8", "surrogatepass")).hexdigest()
    return PREFIX + digest[: 6 if len(value) >= SHORT else 3]


@dataclass(frozen=True)
class Shape:
    """`hints`: one of them is in every text that matches (a cheap test). Group `value` of `pattern`, or all of it, is the secret."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    is_secret: Callable[[re.Match[str]], bool] = lambda match: True

    def redact(self, text: str) -> str:
        return self.pattern.sub(self._replacement, text) if any(hint in text for hint in self.hints) else text

    def _replacement(self, match: re.Match[str]) -> str:
        group = "value" if "value" in self.pattern.groupindex else 0
        value = match[group]
        if PLACEHOLDER.fullmatch(value) or not self.is_secret(match):
            return match[0]
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return match[0][:start] + placeholder(value) + match[0][end:]


# -- keys with a mark of their own ------------------------------------------------------------------


def _begins_a_word(match: re.Match[str]) -> bool:
    """Not the tail of a longer word; `\\n` and the like in a string literal count as no letter."""
    start = match.start()
    before = match.string[max(0, start - 2) : start]
    return not before[-1:].isalnum() or (before[:1] == "\\" and before[1:] in ("n", "r", "t"))


def _marked(match: re.Match[str]) -> bool:
    return _begins_a_word(match) and any(c.isdigit() for c in match[0])


def _random_key(match: re.Match[str]) -> bool:
    return _marked(match) and _wordy(match[0]) < 0.5


_TOKENS: tuple[tuple[str, str, Callable[[re.Match[str]], bool]], ...] = (
    ("AKIA", r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])", _begins_a_word),
    ("ASIA", r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])", _marked),
    ("gh", r"gh[opsur]_[A-Za-z0-9]{30,}", _begins_a_word),
    ("github_pat_", r"github_pat_[A-Za-z0-9_]{40,}", _begins_a_word),
    ("glpat-", r"glpat-[A-Za-z0-9_-]{20,}", _begins_a_word),
    ("xox", r"xox[abeprs]-[A-Za-z0-9-]{15,}", _marked),
    ("sk-", r"sk-[A-Za-z0-9_-]{20,}", _random_key),
    ("k_", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}", _begins_a_word),
    ("AIza", r"AIza[A-Za-z0-9_-]{30,}", _marked),
    ("hf_", r"hf_[A-Za-z0-9]{30,}", _begins_a_word),
    ("npm_", r"npm_[A-Za-z0-9]{36,}", _begins_a_word),
    ("pypi-", r"pypi-[A-Za-z0-9_-]{50,}", _random_key),
    ("eyJ", r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", lambda match: True),
    ("hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows)/(?P<value>[A-Za-z0-9/_-]{20,})", lambda match: True),
)

# -- what a name or a place gives away ---------------------------------------------------------------

_DUMMY_WORDS = """
password passwd pass pwd pw secret user username admin root test token key example changeme
"""
_DUMMIES = frozenset(_DUMMY_WORDS.split())
_TEMPLATE = re.compile(r"\$?\{[^}]*\}|<[^>]*>|%\(|%[sd]|^\$")


def _url_password(match: re.Match[str]) -> bool:
    value = match["value"]
    return not (_TEMPLATE.search(value) or value.lower() in _DUMMIES or value == match["user"] or len(set(value)) == 1)


_URL = re.compile(r"://(?P<user>[^\s/:@\"'<>]{0,64}):(?P<value>[^\s/@\"'<>]{3,128})@")

_NAME = re.compile(
    r"password|passwd|passphrase|pwd|secret(?<!redacted_secret)|token|credential"
    r"|api[_-]?key|access[_-]?key|auth[_-]?key|private[_-]?key|signing[_-]?key|encryption[_-]?key"
)
"""In lower case; the first letters of plain alternatives are what makes the search fast."""
_ABOUT = re.compile(r"(?i)(?:hash|digest|url|uri|name|path|file|field|type|pattern|regex|header|prefix|label|message)s?$")
"""Endings of names that tell something about a secret: `token_url`, `password_hash`."""
_QUOTED = re.compile(
    r"(?P<tail>[\w-]{0,24})(?:\\?[\"'`]\]?,?)?[ \t]{0,3}(?::[ \t]{0,3}[A-Za-z][\w.\[\]| ]{0,24})?"
    r"[ \t]{0,3}(?::=|=>|==|=|:|(?<=,))[ \t]{0,3}[rbuf]?\\?[\"'`](?P<value>[^\"'`\s\\]{16,})\\?[\"'`]"
)
"""What follows a name, from `PASSWORD: str = "…"` to `environ.get("API_KEY", "…")`."""
_BARE = re.compile(r"(?P<tail>[\w-]{0,24})[ \t]{0,3}[=:][ \t]{0,3}(?P<value>[A-Za-z0-9+/=_-]{16,400}+)(?=[ \t]{0,8}\r?(?:\n|\Z))")
_BEARER = re.compile(r"[Bb](?:earer|EARER) {1,3}(?P<value>[A-Za-z0-9._~+/=-]{20,})")
_WORDS = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
_VOWELS = re.compile(r"[aeiouyAEIOUY]")
_CLUSTER = re.compile(r"[^aeiouyAEIOUY]{5}")


def entropy(text: str) -> float:
    """Shannon's, in bits per character, from the text's own letters."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values()) if text else 0.0


def _wordy(text: str) -> float:
    """The share of characters that belong to what could be words: four letters or more with vowels among them."""
    words = [w for w in _WORDS.findall(text) if len(w) > 3 and not _CLUSTER.search(w) and 0.2 <= len(_VOWELS.findall(w)) / len(w) <= 0.75]
    return sum(map(len, words)) / max(len(text), 1)


def _counts_up(text: str) -> bool:
    """`abcdef…`, `0123456789…`: a person ran along the keys."""
    return sum(ord(b) - ord(a) == 1 for a, b in itertools.pairwise(text)) * 2 >= len(text)


def looks_random(value: str) -> bool:
    """Long and of high entropy, and neither words (an identifier, a path, a URL, a sentence without spaces) nor a template."""
    value = value[:400]
    enough = MIN_HEX_ENTROPY if re.fullmatch(r"[0-9a-fA-F-]{32,}", value) else MIN_ENTROPY
    if len(value) < SHORT or entropy(value) < enough or _TEMPLATE.search(value) or _counts_up(value):
        return False
    return _wordy(value) < 0.5 or not re.fullmatch(r"[\w./:?&=,@+-]+", value)


def _assigned(match: re.Match[str]) -> bool:
    return not _ABOUT.search(match["tail"]) and looks_random(match["value"])


def _assigned_bare(match: re.Match[str]) -> bool:
    """Without quotes it could be code: capitals, small letters and digits all together, or a long hex number."""
    value = match["value"]
    mixed = all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", "[0-9]")) or re.fullmatch(
        r"(?=.*[a-f])(?=.*[0-9])[0-9a-f]{32,}", value
    )
    return bool(mixed) and _assigned(match)


def _bearer(match: re.Match[str]) -> bool:
    return _begins_a_word(match) and looks_random(match["value"])


_SHAPES = (
    *(Shape((hint,), re.compile(pattern), secret) for hint, pattern, secret in _TOKENS),
    Shape(("://",), _URL, _url_password),
    Shape(("earer ", "EARER "), _BEARER, _bearer),
)
_ASSIGNMENTS = ((_QUOTED, _assigned), (_BARE, _assigned_bare))


def assignments(text: str) -> str:
    """Values that stand behind a name such as `password`."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter that grows, such as U+0130
        lowered = "".join(c.lower() if c.isascii() else c for c in text)
    parts, at = [], 0
    for name in _NAME.finditer(lowered):
        for pattern, is_secret in _ASSIGNMENTS:
            match = pattern.match(text, name.end()) if name.start() >= at else None
            if match and not PLACEHOLDER.fullmatch(match["value"]) and is_secret(match):
                parts += [text[at : match.start("value")], placeholder(match["value"])]
                at = match.end("value")
    return "".join(parts) + text[at:]


# -- private keys -----------------------------------------------------------------------------------

_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_RUN = re.compile(r"(\\[nrt])|[A-Za-z0-9+/=]+")
_LINES = re.compile(r"(?:[\s\"',\\]{0,64}(?:\\[nrt])*[A-Za-z0-9+/=]{16,}){1,400}")
_LONGEST_KEY = 20_000
"""Characters; an RSA key of 16,384 bits has about 13,000."""


def private_keys(text: str) -> str:
    """Blanks the text of private keys and leaves lines and quotes around it as they were."""
    if "PRIVATE KEY" not in text:
        return text
    parts, at = [], 0
    while begin := _BEGIN.search(text, at):
        end = _END.search(text, begin.end(), begin.end() + _LONGEST_KEY)
        again = _BEGIN.search(text, begin.end(), end.start()) if end else None
        parts.append(text[at : begin.start()])
        if end and not again and _is_key(text[begin.end() : end.start()]):
            parts.append(_blanked(text[begin.end() : end.start()]))
            at = end.end()
        elif torn := _LINES.match(text, begin.end(), begin.end() + _LONGEST_KEY):
            parts.append(_blanked(torn[0]))
            at = torn.end()
        else:
            parts.append(begin[0])
            at = begin.end()
    return "".join(parts) + text[at:]


def _is_key(body: str) -> bool:
    """Mostly base64, as between the marks of a key; code that speaks of both marks is not."""
    return sum(len(m[0]) for m in _RUN.finditer(body) if len(m[0]) >= SHORT) * 2 > len("".join(body.split()))


def _blanked(body: str) -> str:
    runs = [m for m in _RUN.finditer(body) if not m[1] and (len(m[0]) >= SHORT or _stands_alone(m))]
    blank = {m.span() for m in runs}
    return placeholder("".join(m[0] for m in runs)) + _RUN.sub(lambda m: "" if m.span() in blank else m[0], body)


def _stands_alone(match: re.Match[str]) -> bool:
    """The short last line of a key, or a header of an encrypted one: nothing else on the line, or between the quotes."""
    before = match.string[: match.start()].rstrip(" \t")[-1:]
    after = match.string[match.end() :].lstrip(" \t")[:1]
    return before in ("", "\n", "\r", '"', "'", "n", "r") and after in ("", "\n", "\r", '"', "'", "\\")


def by_shape(text: str) -> str:
    """`text` with everything that looks like a secret replaced; the number of lines stays."""
    text = private_keys(text)
    for shape in _SHAPES:
        text = shape.redact(text)
    return assignments(text)
