"""Path lines: recognising them under a model's decoration, and refusing paths that must never be written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nightmill.edits.items import Refused

Exists = Callable[[str], bool]
"""Is this, however written, the path of a file?"""

_LONGEST_LINE = 400
_LONGEST_PATH = 1000
_LONGEST_NAME = 255

_SUFFIX_WORDS = """
ada adb ads asm astro awk bash bat bats bib c cc cfg cjs clj cljs cmake cmd coffee conf cpp cr cs css csv cts cu cue cxx d dart diff
dockerfile eex el elm env erb erl ex exs f90 feature fish fs fsx gitignore glsl go gql gradle graphql groovy h haml hbs hcl hh hpp hrl hs
htm html hxx in ini ipynb j2 java jinja jinja2 jl js json json5 jsonc jsonl jsx kt kts ksh less lhs lisp lock log lua m make markdown md
mdx mjs mk ml mli mm mod mts mustache nim nix nu org pas patch php pl plist pm po pot prisma properties proto ps1 pug pxd py pyi pyx qmd
r rake raku rb rkt robot rs rst s sass scala scm scss service sh slim sln sol sql srt styl sum sv svelte svg swift t tcl template tex
textproto tf tfvars thrift tmpl toml tpl ts tsv tsx txt typ v vb vbs vhd vim vue wat wgsl wsgi xhtml xml xsd xsl xslt yaml yml zig zsh
"""
_NAME_WORDS = """
Makefile makefile GNUmakefile Dockerfile Containerfile Procfile Gemfile Rakefile Jenkinsfile Vagrantfile Justfile justfile CODEOWNERS
LICENSE
"""
_PROSE_WORDS = "md markdown mdx mkd qmd rmd rst adoc j2 jinja jinja2 tmpl tpl"

SUFFIXES = frozenset(_SUFFIX_WORDS.split())
"""Endings by which a bare name counts as a file that may be created. Others need a folder or a leading `./`."""

_NAMES = frozenset(_NAME_WORDS.split())
_PROSE = frozenset(_PROSE_WORDS.split())

_MARK = re.compile(r"(?:#{1,6}|[-*+•]|\d{1,3}[.)]|//|--|/\*|<!--)[ \t]+")
_MARK_END = re.compile(r"[ \t]+(?:\*/|-->|#{1,6})$")
_WORD = r"(?:(?:new|updated|modified|existing)[ ])?(?:file(?:[ _-]?(?:name|path))?|path)(?:[ ]\d{1,3})?"
_LABEL = re.compile(rf"(?:\*\*(?:{_WORD})[ ]?(?::\*\*|\*\*[ ]?:)|__(?:{_WORD}):__|(?:{_WORD})[ ]?:)[ \t]*", re.IGNORECASE)
_PAIRS = (("**", "**"), ("__", "__"), ("*", "*"), ("_", "_"), ("`", "`"), ('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"))
_NOTE = re.compile(r"[ \t]+\([^()]{1,60}\)$")
_LINE_NUMBERS = re.compile(r":\d{1,7}(?:[-–:]\d{1,7})?$")
_PART_WORDS = r"lines?|excerpt|snippet|partial|current|currently|before|original|unchanged"
_PART = re.compile(rf":\d{{1,7}}(?:[-–:]\d{{1,7}})?\W*$|\([^()]*\b(?:{_PART_WORDS})\b[^()]*\)\W*$", re.IGNORECASE)
_DOTTED = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
_NOT_IN_PATHS = re.compile(r'[<>|"*?`{}=;]')
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_DRIVE = re.compile(r"[A-Za-z]:")
_INFO_TOKEN = re.compile(r"""(?:[\w-]+=)?(?:"[^"]*"|'[^']*'|[^\s{}"']+)""")
_INFO_KEY = re.compile(r"(?:title|file|filename|filepath|path|name)=", re.IGNORECASE)
_INFO_LANGUAGE = re.compile(r"[A-Za-z][\w+#.-]*:(?![/\\])(?!\d+$)")
_QUOTED = re.compile(r"`([^`]+)`")
_TOKEN = re.compile(r"[\w./\\-]+")


@dataclass(frozen=True)
class Named:
    """A path as a line of the reply names it.

    `sure` is false for a bare dotted name with an unknown ending that is no file here: `Ledger.total` or a new file, nobody can tell.
    `part` is true when the line also says which lines, or that this is an excerpt or the old text.
    """

    path: str
    sure: bool = True
    part: bool = False


def peel(line: str) -> str:
    """`line` without the decoration a model may put around a path."""
    text = line.strip(" \t")
    if len(text) > _LONGEST_LINE:
        return text
    while True:
        before = text
        for mark in (_MARK, _LABEL):
            if match := mark.match(text):
                text = text[match.end() :]
        text = _NOTE.sub("", _MARK_END.sub("", text)).strip(" \t")
        text = _LINE_NUMBERS.sub("", text.removesuffix(":"))
        for left, right in _PAIRS:
            if len(text) > len(left) + len(right) and text.startswith(left) and text.endswith(right):
                text = text[len(left) : -len(right)].strip(" \t")
                break
        if text == before:
            return text


def named_alone(line: str, exists: Exists) -> Named | None:
    """The path that stands alone on `line`, or None when it is no path line. The path may well be a forbidden one."""
    if len(line) > _LONGEST_LINE:
        return None
    text = peel(line)
    if not text:
        return None
    named = _classified(text, exists)
    return replace(named, part=True) if named and _PART.search(line) else named


def _classified(text: str, exists: Exists) -> Named | None:
    if " " in text or "\t" in text:
        return Named(text) if "." in text and exists(text) else None
    if exists(text):
        return Named(text)
    seen = "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf"))
    if _NOT_IN_PATHS.search(seen) or not any(c.isalnum() for c in seen) or (_URL.match(seen) and not seen.startswith("file:")):
        return None
    suffix = seen.rpartition(".")[2].lower() if "." in seen else ""
    if "/" in seen or "\\" in seen or seen.startswith("~") or seen in _NAMES or (_DRIVE.match(seen) and suffix in SUFFIXES):
        return Named(text)
    if "(" in seen or ")" in seen:
        return None
    if suffix in SUFFIXES or re.match(r"\.[A-Za-z]", seen):
        return Named(text)
    return Named(text, sure=False) if _DOTTED.fullmatch(seen) else None


def named_in_info(info: str, exists: Exists) -> Named | None:
    """The path in a fence's info string: `python a.py`, `python:src/a.py`, `src/a.py`, `python title="a.py"`."""
    if len(info) > _LONGEST_LINE:
        return None
    for token in _INFO_TOKEN.findall(info):
        text = token
        if key := _INFO_KEY.match(text):
            text = text[key.end() :]
        elif language := _INFO_LANGUAGE.match(text):
            text = text[language.end() :]
        if text.startswith(("text/", "application/")) and not exists(text):
            continue
        named = _classified(peel(text), exists)
        if named and _PART.search(text):
            named = replace(named, part=True)
        if named and named.sure and (text not in _NAMES or text != token or exists(text)):
            return named
    return None


def named_in_sentence(line: str, exists: Exists) -> Named | None:
    """The one existing path that a sentence has in backticks; None when there is none or more than one."""
    if "`" not in line or len(line) > 5 * _LONGEST_LINE:
        return None
    found = {text for text in map(peel, _QUOTED.findall(line)) if exists(text)}
    return Named(found.pop()) if len(found) == 1 else None


def mentioned(line: str, exists: Exists) -> set[str]:
    """Every existing path that occurs as a word of `line`, normalised."""
    words = {word.rstrip(".") for word in _TOKEN.findall(line[: 10 * _LONGEST_LINE]) if "." in word or "/" in word}
    return {normalise(word) for word in words if exists(word)}


def normalise(text: str) -> str:
    """`text` as a relative posix path. Raises Refused for anything that could lead out of the root, into `.git`, or deceive the eye."""
    path = text.replace("\\", "/")
    if path.startswith(("/", "~")) or _DRIVE.match(path) or _URL.match(path):
        raise Refused("absolute", f"`{_shown(text)}`: give the path relative to the project's root.")
    bad = next((c for c in path if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") or (c != " " and c.isspace())), None)
    if bad is not None:
        raise Refused("path", f"`{_shown(text)}`: a path must not contain the character U+{ord(bad):04X}.")
    parts = [part for part in path.split("/") if part != "."]
    if ".." in parts:
        raise Refused("outside", f"`{_shown(text)}`: `..` is not accepted; name the file from the project's root.")
    if any(_is_git(part) for part in parts):
        raise Refused("outside", f"`{_shown(text)}`: nothing in `.git` may be written.")
    if not parts or ":" in path or any(part != part.strip(" ") or part.endswith(".") or not part for part in parts):
        raise Refused("path", f"`{_shown(text)}` is not the name of a file.")
    if len(path.encode()) > _LONGEST_PATH or any(len(part.encode()) > _LONGEST_NAME for part in parts):
        raise Refused("path", f"`{_shown(text)}`: the path is too long.")
    return "/".join(parts)


def _is_git(part: str) -> bool:
    return part.rstrip(". ").casefold() in (".git", "git~1")


def suffix_of(path: str) -> str:
    """The ending of the path's last part, lower case and without its dot."""
    return PurePosixPath(path).suffix.lower().removeprefix(".")


def is_prose(path: str) -> bool:
    """May lines of this file be Markdown fences?"""
    return suffix_of(path) in _PROSE


def fold(name: str) -> str:
    """Two names with equal folds are one file on some file systems."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:200])
