"""The text that goes back to the model when a reply is refused: what failed, and what the real lines are."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from nightmill.edits.files import Files
from nightmill.edits.items import Failure
from nightmill.edits.lines import BLANK, is_blank
from nightmill.edits.locate import MANY, Haystack, Hit

_LONGEST_TEXT = 60
_FULL = 6
"""Failures told with all details; the others get one line each."""

_AROUND = 5
_MOST_SHOWN = 21
_LONGEST_LINE = 300
_PLACES_TOLD = 4
_VOTES_PER_LINE = 50
_WORD = re.compile(r"\w+")


def text(failures: Sequence[Failure], earlier: Sequence[str] = ()) -> str:
    """The refusal, at most _LONGEST_TEXT lines. `earlier` holds the fingerprints of blocks that failed before, repeats included."""
    lines = ["Nothing was changed. Send ALL blocks again, also those not named here; any refused part refuses the whole reply."]
    told = failures[:_FULL]
    room = (_LONGEST_TEXT - 3 - len(lines)) // max(1, len(told)) - 2
    for failure in told:
        lines += ["", _headline(failure)]
        lines += _capped(tuple(failure.details), room - 1)
        lines += _strategy(failure, earlier)
    others = failures[_FULL:]
    named = [f"- {_headline(failure)}" for failure in others]
    left = _LONGEST_TEXT - len(lines)
    if len(named) > left:
        named = [*named[: max(0, left - 1)], f"- and {len(named) - max(0, left - 1)} more"]
    return "\n".join(lines + named)[:20_000]


def _headline(failure: Failure) -> str:
    where = f"block {failure.number}" if failure.number else "the reply"
    return f"{_one_line(failure.path)}, {where}: {failure.reason}" if failure.path else f"{where}: {failure.reason}"


def _one_line(value: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value[:_LONGEST_LINE])


def _capped(details: Sequence[str], room: int) -> list[str]:
    """At most `room` of the lines; a fence that is cut is closed."""
    if len(details) <= room:
        return list(details)
    kept = list(details[: max(1, room - 1)])
    fences = [line for line in kept if re.fullmatch(r"`{3,}", line)]
    return [*kept, fences[-1]] if len(fences) % 2 else kept


def _strategy(failure: Failure, earlier: Sequence[str]) -> list[str]:
    failed = Counter(earlier)[failure.fingerprint] if failure.fingerprint else 0
    return (
        ["This SEARCH has failed before. Do not send it again: send the whole function, or the whole file if it is small."]
        if failed
        else []
    )


def no_such_file(files: Files, path: str, elsewhere: Iterable[str] = ()) -> Iterator[str]:
    """Details for a path that is no file: where that name exists, and where the SEARCH would match."""
    yield "there is no such file; a block with an empty SEARCH, or the whole file, creates one."
    name = path.rpartition("/")[2].casefold()
    namesakes = (other for other, _ in files.some() if other.rpartition("/")[2].casefold() == name)
    if others := _listed(namesakes):
        yield f"Files of that name: {others}."
    yield from _elsewhere(elsewhere)


def _listed(paths: Iterable[str]) -> str:
    return ", ".join(f"`{path}`" for path in islice(paths, 3))


def _elsewhere(paths: Iterable[str]) -> Iterator[str]:
    if others := _listed(paths):
        yield f"Elsewhere: SEARCH matches exactly once in {others} (not applied)."


def not_found(haystack: Haystack, search: Sequence[str], replace: Sequence[str], elsewhere: Iterable[str]) -> Iterator[str]:
    """Details for a SEARCH that stands nowhere: the lines most like it, how they differ, and what may have happened instead.

    `elsewhere` names other files in which SEARCH stands exactly once.
    """
    stands = next(haystack.right_stripped.find(line.rstrip(BLANK) for line in replace), None)
    if stands is not None and not all(map(is_blank, replace)):
        yield f"Already there: REPLACE stands at line {stands + 1}. Leave this block out if nothing else is to change."
    yield from _elsewhere(elsewhere)
    start = _closest(haystack, search)
    if start is None:
        yield "SEARCH resembles nothing in this file" + (", which is empty." if not haystack.lines else ".")
        return
    differs = _first_difference(haystack, search, start)
    if differs is not None:
        yield from _difference(haystack, search, start, differs)
    middle = start + (differs or 0)
    first = max(0, start - _AROUND, middle - _MOST_SHOWN // 2)
    last = min(len(haystack.lines), start + len(search) + _AROUND, first + _MOST_SHOWN)
    yield "The closest lines of the file are, verbatim:"
    yield from _fenced(haystack.lines[first:last])


def _fenced(lines: Sequence[str]) -> Iterator[str]:
    ticks = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, ticks + 1)
    yield fence
    yield from (line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} [line cut here]" for line in lines)
    yield fence


def _closest(haystack: Haystack, search: Sequence[str]) -> int | None:
    """The line at which the most lines of SEARCH would stand in their places; by common words when no line is equal."""
    places: dict[str, list[int]] = {}
    wanted = {line.strip(BLANK) for line in search if not is_blank(line)}
    for at, line in enumerate(haystack.lines):
        key = line.strip(BLANK)
        if key in wanted and len(places.setdefault(key, [])) < _VOTES_PER_LINE:
            places[key].append(at)
    votes: defaultdict[int, float] = defaultdict(float)
    for offset, line in enumerate(search):
        found = places.get(line.strip(BLANK), ())
        for at in found:
            votes[at - offset] += (1.5 if offset == 0 else 1) / len(found)
    if votes:
        return max(0, max(votes, key=lambda start: (votes[start], -start)))
    return _closest_by_words(haystack, search)


def _closest_by_words(haystack: Haystack, search: Sequence[str]) -> int | None:
    offset = max(range(len(search)), key=lambda at: len(search[at].strip(BLANK)), default=0)
    wanted = set(_WORD.findall(search[offset].lower())) if search else set()
    best, start = 0.0, None
    for at, line in enumerate(haystack.lines):
        words = set(_WORD.findall(line[: 10 * _LONGEST_LINE].lower()))
        score = 2 * len(words & wanted) / (len(words) + len(wanted) or 1)
        if score > best:
            best, start = score, max(0, at - offset)
    return start


def _first_difference(haystack: Haystack, search: Sequence[str], start: int) -> int | None:
    there = haystack.lines[start : start + len(search)]
    return next((at for at, line in enumerate(search) if at >= len(there) or line.rstrip(BLANK) != there[at].rstrip(BLANK)), None)


def _difference(haystack: Haystack, search: Sequence[str], start: int, at: int) -> Iterator[str]:
    wanted = search[at]
    if start + at >= len(haystack.lines):
        yield f"Line {at + 1} of SEARCH is behind the end of the file: {_quoted(wanted)}"
        return
    real = haystack.lines[start + at]
    yield f"Line {at + 1} of SEARCH is the first that differs ({_how(wanted, real)}):"
    yield f"  SEARCH: {_quoted(wanted)}"
    yield f"  file:   {_quoted(real)}"


def _quoted(line: str) -> str:
    return _one_line(line.replace("\t", "\\t").replace("\r", "\\r").replace("\f", "\\f")) if line else "(blank line)"


def _how(wanted: str, real: str) -> str:
    if is_blank(wanted) or is_blank(real):
        return "one of them is blank"
    if wanted.strip(BLANK) == real.strip(BLANK):
        return "indentation"
    if "".join(wanted.split()) == "".join(real.split()):
        return "spaces inside the line"
    if wanted.casefold() == real.casefold():
        return "upper and lower case"
    if wanted.strip(BLANK) in real or real.strip(BLANK) in wanted:
        return "one is only a part of the other: give whole lines"
    return (
        f"from column {next((n for n, (a, b) in enumerate(zip(wanted, real, strict=False)) if a != b), min(len(wanted), len(real))) + 1} on"
    )


def ambiguous(haystack: Haystack, hit: Hit) -> Iterator[str]:
    """Details for a SEARCH that stands at several places: each one, and the line that tells it from the others."""
    starts = [place.start for place in hit.places]
    yield f"SEARCH matches at {'at least ' if len(starts) == MANY else ''}{len(starts)} places; add lines until it matches one."
    for start in starts[:_PLACES_TOLD]:
        yield f"- line {start + 1}, {'below:' if start else 'the start of the file.'}"
        yield from (f"      {_quoted(line)}" for line in haystack.lines[max(0, start - 2) : start])
        yield f"  to mean this one, {_telling(haystack, start, starts, len(hit.search))}"


def _telling(haystack: Haystack, start: int, starts: Sequence[int], length: int) -> str:
    """The nearest line above, else below, that none of the other places has at the same distance."""
    for step in range(1, 31):
        for distance, words in (
            (-step, f"begin SEARCH {step} line{'s' * (step > 1)} earlier, with"),
            (length - 1 + step, "end SEARCH with"),
        ):
            mine = _line(haystack, start + distance)
            if mine is not None and all(_line(haystack, other + distance) != mine for other in starts if other != start):
                return f"{words}: {_quoted(mine)}"
    return "send the whole file instead."


def _line(haystack: Haystack, at: int) -> str | None:
    return haystack.lines[at] if 0 <= at < len(haystack.lines) else None
