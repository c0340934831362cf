"""Fitting a prompt to a window: what is sent always fits, what is left out is said, what cannot fit is never sent."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nightmill.calls.fit import BYTES_PER_TOKEN, MIN_OUTPUT, bound, fit
from nightmill.calls.prompts import ARTIFACTS, Section, messages
from nightmill.errors import ConfigError

ORDER = ["rules", *ARTIFACTS, "role", "task", "format", "feedback"]
GO_FIRST = ["analysis", "tests", "matrix", "source", "schema"]
"""What may be left out, the first to go first."""
NEVER = [name for name in ORDER if name not in GO_FIRST]
LONG = st.builds(lambda piece, times: piece * times, st.text("ab é\n", min_size=1, max_size=3), st.integers(1, 1500))
TEXTS = st.dictionaries(st.sampled_from(ORDER), LONG, min_size=1)
WINDOWS = st.integers(1, 8000)


def by_words(text: str) -> int:
    return len(text.split())


def unknown(text: str) -> None:
    return None


def sections(texts: dict[str, str]) -> list[Section]:
    return [Section(name, texts[name]) for name in ORDER if name in texts]


def size(found: list[Section]) -> int:
    """Tokens as the server would count them, at the worst."""
    return sum(bound(message.content) for message in messages(found))


@given(texts=TEXTS, window=WINDOWS, wanted=st.integers(1, 4000))
def test_what_is_returned_fits_and_what_does_not_fit_is_never_returned(texts: dict[str, str], window: int, wanted: int) -> None:
    try:
        fitted = fit(sections(texts), window, wanted, unknown)
    except ConfigError as error:
        kept = sections({name: text for name, text in texts.items() if name in NEVER})
        assert size(kept) + max(min(wanted, window // 2), min(MIN_OUTPUT, wanted)) > window - 16 * 2 - 200, "it could have been sent"
        assert str(window) in str(error)
        return
    assert fitted.prompt_tokens >= size(fitted.sections)
    assert fitted.prompt_tokens + fitted.max_tokens <= window
    assert 0 < fitted.max_tokens <= wanted


@given(texts=TEXTS, window=WINDOWS)
def test_sections_go_in_the_fixed_order_and_only_as_many_as_must(texts: dict[str, str], window: int) -> None:
    try:
        fitted = fit(sections(texts), window, 300, unknown)
    except ConfigError:
        assume(False)
        raise
    present = [name for name in GO_FIRST if name in texts]
    assert list(fitted.left_out) == [name for name in present if name in fitted.left_out]
    before = present[: present.index(fitted.left_out[-1])] if fitted.left_out else []
    assert [name for name in before if name not in fitted.left_out and len(texts[name]) > 60] == [], "only what is short may stay"
    if fitted.left_out:
        one_more = {s.name: s.text for s in fitted.sections} | {fitted.left_out[-1]: texts[fitted.left_out[-1]]}
        assert size(sections(one_more)) + 16 * len(messages(sections(one_more))) + fitted.max_tokens > window


@given(texts=TEXTS, window=WINDOWS)
def test_the_rules_mission_contract_code_role_task_and_format_are_never_touched(texts: dict[str, str], window: int) -> None:
    try:
        fitted = fit(sections(texts), window, 300, by_words)
    except ConfigError:
        assume(False)
        raise
    assert {"rules", "mission", "contract", "code", "role", "task", "format", "feedback"} == set(NEVER)
    assert [s.name for s in fitted.sections] == [s.name for s in sections(texts)]
    assert {s.name: s.text for s in fitted.sections if s.name not in fitted.left_out} == {
        name: text for name, text in texts.items() if name not in fitted.left_out
    }


def test_the_prompt_says_what_was_left_out_where_it_would_have_stood() -> None:
    fitted = fit(sections({"source": "s " * 2000, "analysis": "a " * 2000, "task": "Do it."}), 1500, 300, by_words)
    assert fitted.left_out == ("analysis", "source")
    text = messages(fitted.sections)[-1].content
    assert text.index("The source did not fit here and is left out") < text.index("The analysis did not fit") < text.index("Do it.")


def test_the_smaller_the_window_the_more_goes_and_always_in_the_same_order() -> None:
    everything = sections(dict.fromkeys(ORDER, "word " * 1000))
    gone = [list(fit(everything, window, 300, by_words).left_out) for window in range(14_000, 8_500, -100)]
    assert [found for found, _ in itertools.groupby(gone)] == [GO_FIRST[:n] for n in range(len(GO_FIRST) + 1)]


def test_a_prompt_that_fits_is_sent_as_it_is() -> None:
    given_ = sections(dict.fromkeys(ORDER, "text"))
    fitted = fit(given_, 4000, 300, unknown)
    assert (fitted.sections, fitted.left_out, fitted.max_tokens) == (given_, (), 300)


def test_the_last_token_of_the_window_is_used_and_not_one_more() -> None:
    only = [Section("task", "word " * 1000)]
    needed = 1000 + 16 + 300
    assert fit(only, needed, 300, by_words).prompt_tokens == needed - 300
    with pytest.raises(ConfigError, match=f"need {needed} tokens, but the window is {needed - 1}: raise the server's context"):
        fit(only, needed - 1, 300, by_words)


def test_the_answer_gets_at_most_half_the_window_but_never_almost_nothing() -> None:
    only = [Section("task", "word")]
    assert fit(only, 4000, 100_000, by_words).max_tokens == 2000
    assert fit(only, 300, 100_000, by_words).max_tokens == MIN_OUTPUT
    assert fit(only, 4000, 10, by_words).max_tokens == 10


@given(st.text())
def test_without_a_tokenizer_every_text_counts_by_its_bytes_rounded_up(text: str) -> None:
    assert bound(text) >= len(text.encode()) / BYTES_PER_TOKEN
    assert bound(text) > 0
