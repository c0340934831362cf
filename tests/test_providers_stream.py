"""Event streams, thinking, loops: whatever the cuts between the pieces."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.providers.loops import DATA_REPEATS, LONG_REPEATS, WORDY_REPEATS, LoopDetector
from nightmill.providers.reasoning import Splitter
from nightmill.providers.sse import MAX_LINE, BadStream, Chunk, Event, EventParser, Usage, decode


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """`data` in pieces cut at these places, modulo its length."""
    places = sorted({0, len(data), *(n % (len(data) + 1) for n in at)})
    return [data[a:b] for a, b in pairwise(places)]


def cut_text(text: str, at: list[int]) -> list[str]:
    places = sorted({0, len(text), *(n % (len(text) + 1) for n in at)})
    return [text[a:b] for a, b in pairwise(places)]


def events(pieces: list[bytes]) -> list[Event]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close()


CUTS = st.lists(st.integers(0, 10_000), max_size=30)
DATA = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=3)


@given(st.lists(DATA, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), CUTS, st.booleans())
def test_events_come_out_as_they_went_in_whatever_the_line_ends_and_cuts(
    sent: list[list[str]], end: str, cuts: list[int], bom: bool
) -> None:
    text = "".join("".join(f"data: {line}{end}" for line in lines) + f": ping{end}{end}" for lines in sent)
    data = (b"\xef\xbb\xbf" if bom else b"") + text.encode()
    assert [event.data for event in events(cut(data, cuts))] == ["\n".join(lines) for lines in sent]


@given(st.binary(max_size=200), CUTS)
def test_any_bytes_give_events_or_bad_stream_alike_for_all_cuts(data: bytes, cuts: list[int]) -> None:
    def outcome(pieces: list[bytes]) -> list[Event] | None:
        try:
            return events(pieces)
        except BadStream:
            return None

    assert outcome(cut(data, cuts)) == outcome([data] if data else [])


@given(st.text(max_size=80))
def test_any_event_is_decoded_or_refused(text: str) -> None:
    try:
        assert isinstance(decode(Event("message", text)), Chunk)
    except BadStream as error:
        assert "\n" not in str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "delta", "content", "index", "usage", "timings", "prompt_n", "error", "model"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_a_chunk_or_refused(value: object) -> None:
    with suppress(BadStream):
        assert isinstance(decode(Event("message", json.dumps(value))), Chunk)


@pytest.mark.parametrize(
    ("data", "chunk"),
    [
        ("[DONE]", Chunk(done=True)),
        ('{"error": {"message": "no"}}', Chunk(error={"message": "no"})),
        ('{"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}', Chunk(text="a", alive=True)),
        ('{"choices": [{"index": 1, "delta": {"content": "a"}}]}', Chunk()),
        ('{"choices": [{"delta": {"reasoning": "a"}}], "model": "m"}', Chunk(reasoning="a", model="m", alive=True)),
        ('{"choices": [{"delta": {"role": "assistant", "content": null}}]}', Chunk()),
        ('{"choices": [], "usage": {"prompt_tokens": 3}}', Chunk(usage=Usage(prompt=3))),
        ('{"choices": [], "timings": {"cache_n": 236, "prompt_n": 1, "predicted_n": 35}}', Chunk(usage=Usage(237, 236, 35, 1))),
        ('{"choices": [], "prompt_progress": {"processed": 9}}', Chunk(progress=True)),
        ('{"choices": [{"delta": {"refusal": "no"}}]}', Chunk(refusal="no", alive=True)),
    ],
)
def test_chunks_are_read(data: str, chunk: Chunk) -> None:
    assert decode(Event("message", data)) == chunk


@pytest.mark.parametrize("text", ['{"content": "\\ud83d"}', '{"content": 7}', "7"])
def test_half_characters_and_other_types_are_refused(text: str) -> None:
    with pytest.raises(BadStream):
        decode(Event("message", f'{{"choices": [{{"delta": {text}}}]}}'))


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    parser = EventParser()
    with pytest.raises(BadStream):
        for _ in range(MAX_LINE // 65_536 + 1):
            parser.feed(b"x" * 65_536)


def test_the_last_event_needs_no_blank_line_and_a_torn_one_is_dropped() -> None:
    assert [event.data for event in events([b"data: 1\n\ndata: [DONE]"])] == ["1", "[DONE]"]
    assert [event.data for event in events([b"data: 1\n\ndata: 2\n"])] == ["1", "2"]
    assert [event.data for event in events([b'data: 1\n\ndata: {"a'])] == ["1"]


def split(text: str, cuts: list[int] | None = None) -> tuple[str, str]:
    splitter = Splitter()
    for piece in cut_text(text, cuts or []):
        splitter.feed(piece)
    splitter.finish()
    return splitter.text, splitter.reasoning


@pytest.mark.parametrize(
    ("text", "visible", "reasoning"),
    [
        ("just an answer", "just an answer", ""),
        ("\n\nleading lines stay", "\n\nleading lines stay", ""),
        ("<think>hm</think>yes", "yes", "hm"),
        ("<think>\nhm\n</think>\n\nyes\n", "yes\n", "hm"),
        ("  <Thinking>\nhm\n</THINKING>\nyes", "yes", "hm"),
        ("<reasoning>a < b </think> </reasoning>yes", "yes", "a < b </think>"),
        ("<think>a</think><think>b</think>yes", "yes", "ab"),
        ("one\n<think>hm</think>\ntwo", "one\n\ntwo", "hm"),
        ("<think>never closed", "", "never closed"),
        ("<think>half closed</thi", "", "half closed</thi"),
        ("hm\nhm\n</think>\n\nyes", "yes", "hm\nhm"),
        ("hm, done.</think>\n\nyes", "yes", "hm, done."),
        ("hm, done.</think>", "", "hm, done."),
        ("```\nx\n```\nhm\n</think>\nyes", "yes", "```\nx\n```\nhm"),
        ("strip `<think>` and `</think>` tags", "strip `<think>` and `</think>` tags", ""),
        ("the tag <think> in a line", "the tag <think> in a line", ""),
        ("ends with `</think>`\nyes", "ends with `</think>`\nyes", ""),
        ("```html\n<think>\n</think>\n```\n", "```html\n<think>\n</think>\n```\n", ""),
        ("~~~~\n```\n<think>\n~~~~\n<think>x</think>", "~~~~\n```\n<think>\n~~~~\n", "x"),
        ("```x``` is inline\n<think>hm</think>yes", "```x``` is inline\nyes", "hm"),
        ("<thinker>no</thinker>", "<thinker>no</thinker>", ""),
        ("<thi", "<thi", ""),
        ("<think>a</think>one\n</think>\ntwo", "one\n</think>\ntwo", "a"),
    ],
)
def test_thinking_is_kept_apart(text: str, visible: str, reasoning: str) -> None:
    assert split(text) == (visible, reasoning)
    assert split(text, list(range(len(text)))) == (visible, reasoning)


TOKENS = [
    "<think>",
    "</think>",
    "<reasoning>",
    "</reasoning>",
    "```",
    "```py",
    "~~~",
    "\n",
    "\n\n",
    " ",
    "word",
    "`",
    "<",
    "</th",
    "\r\n",
    "\t",
]


@given(st.lists(st.sampled_from(TOKENS), max_size=25).map("".join), CUTS)
def test_cuts_between_pieces_change_nothing(text: str, cuts: list[int]) -> None:
    assert split(text, cuts) == split(text)


@given(st.lists(st.sampled_from(TOKENS), max_size=25).map("".join), CUTS)
def test_the_pieces_given_out_end_with_the_answer_and_are_all_of_a_text_without_tags(text: str, cuts: list[int]) -> None:
    splitter = Splitter()
    shown = "".join(splitter.feed(piece)[0] for piece in cut_text(text, cuts)) + splitter.finish()
    assert shown.endswith(splitter.text)
    if "think>" not in text and "reasoning>" not in text:
        assert shown == text == splitter.text


def test_thinking_that_the_server_set_apart_comes_first_and_protects_a_later_tag() -> None:
    splitter = Splitter()
    splitter.think("hm")
    splitter.feed("\nyes\n</think>\n")
    assert (splitter.text, splitter.reasoning) == ("yes\n</think>\n", "hm")


def first_alarm(text: str, piece: int = 7) -> int | None:
    """After how many characters the detector called out."""
    detector = LoopDetector()
    for start in range(0, len(text), piece):
        if detector.feed(text[start : start + piece]):
            return start
    return None


PROSE = "The function returns the rounded value.\n"
BLOCK = "def parse(text):\n    return text.strip()\n\n\nclass Reader:\n    pass\n\n"


@pytest.mark.parametrize(
    ("unit", "most"),
    [
        (PROSE, WORDY_REPEATS + 1),
        ("I check the first clause.\n\nI check the second clause.\n\n", WORDY_REPEATS),
        ("".join(f"Clause {chr(97 + n)} says that the value is kept.\n" for n in range(20)), LONG_REPEATS + 1),
        ("".join(f"    total_{chr(97 + n % 26)}{n} = previous value\n" for n in range(110)), LONG_REPEATS + 1),
        ("| T1 | C1 | round(0.5) | zero |\n", DATA_REPEATS + 1),
        ("- and so on\n", DATA_REPEATS + 1),
    ],
)
def test_repeated_lines_are_noticed_early_after_any_beginning(unit: str, most: int) -> None:
    for before in ("", PROSE + BLOCK, "| a | b |\n|---|---|\n"):
        alarm = first_alarm(before + unit * 500)
        assert alarm is not None and alarm <= len(before) + len(unit) * most


def test_phrases_repeated_in_one_line_are_noticed() -> None:
    alarm = first_alarm("Then " + "I will check it again and " * 2000)
    assert alarm is not None and alarm < 5000
    assert first_alarm("0, " * 20_000) is not None
    assert first_alarm("\n" * 5000) is not None


@pytest.mark.parametrize(
    "text",
    [
        "| input | expected |\n|---|---|\n" + "".join(f"| round({n}.5) | {n % 2} |\n" for n in range(400)),
        "| a | b |\n" + "| true | false |\n" * 30,
        "".join(f"T{n} | C1 | the same text | the same text\n" for n in range(300)),
        BLOCK + "\n" * 300 + BLOCK,
        "data = [\n" + "    0, 0, 0, 0, 0, 0, 0, 0,\n" * 500 + "]\n",
        "data = [" + "0, " * 5000 + "]\n",
        'key = "' + "A" * 20_000 + '"\n',
        "row = [" + "None, " * 500 + "]\n",
        "\n".join(f'    "{"ab cd " * 10}",' for _ in range(30)),
        "+----+----+\n|    |    |\n" * 60,
        "    }\n" * 200,
        "    pass\n" * 30,
        "next(reader)\n" * 10,
        '    {\n        "name": "x",\n        "value": 1,\n    },\n' * 30,
        "def test_it():\n    assert parse('') == 0\n\n" * 3,
    ],
    ids=lambda text: text[:20].strip(),
)
def test_tables_blank_lines_and_literal_data_are_no_loop(text: str) -> None:
    assert first_alarm(text) is None


def test_the_source_of_real_programs_is_no_loop() -> None:
    for module in (json, json.decoder, random, pytest):
        assert module.__file__
        assert first_alarm(Path(module.__file__).read_text(encoding="utf-8")) is None


def test_a_loop_is_described_in_one_line() -> None:
    detector = LoopDetector()
    found = next(filter(None, (detector.feed(PROSE) for _ in range(100))))
    assert found == f"the line {PROSE.strip()!r} {WORDY_REPEATS} times in a row"
