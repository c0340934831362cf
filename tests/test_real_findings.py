"""What a real llama-server with a real model has shown, and no test had asked before."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from fake_server import FakeServer, Http, Recorded, Rule
from nightmill.calls.backends import title
from nightmill.calls.bound import BYTES_PER_TOKEN, bound
from nightmill.calls.fit import fit
from nightmill.calls.prompts import Section
from nightmill.errors import ConfigError
from nightmill.providers import continuation
from nightmill.providers.base import NoVerdict
from nightmill.providers.openai_compat import OpenAICompat
from small_runs import configure, opened, scratch, small_run
from test_ask import GOOD, ask, events

RANDOM = random.Random(3)
MEASURED = {
    "digits": ("".join(RANDOM.choice("0123456789") for _ in range(3000)), 3000),
    "table": ("\n".join(",".join(str(RANDOM.randrange(10**6)) for _ in range(8)) for _ in range(60)), 3310),
    "json": (json.dumps([RANDOM.random() for _ in range(200)]), 4063),
    "hex": (RANDOM.randbytes(1600).hex(), 2795),
    "base64": (base64.b64encode(RANDOM.randbytes(2400)).decode(), 2363),
    "letters": ("".join(RANDOM.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(2000)), 1084),
    "signs": ("+--==||##@@!!%%^^&&**((" * 120, 1440),
    "emoji": ("🫠🪿🫎🩷" * 200, 2400),
    "han": ("".join(chr(RANDOM.randrange(0x4E00, 0x9FA5)) for _ in range(800)), 1312),
}
"""Text → its tokens, as a real llama-server counted them with Qwen 2.5's tokenizer."""


@pytest.mark.parametrize("kind", MEASURED)
def test_without_a_tokenizer_no_text_counts_as_fewer_tokens_than_a_real_server_made_of_it(kind: str) -> None:
    text, tokens = MEASURED[kind]
    assert bound(text) >= tokens


def test_without_a_tokenizer_code_and_prose_count_by_their_bytes_as_before() -> None:
    text = (
        "def fee(minutes: int) -> int:\n    return (minutes + 29) // 30 * rate\n\n\nThe fee of a stay is charged for each started period.\n"
        * 40
    )
    assert len(text) / BYTES_PER_TOKEN <= bound(text) <= 1.1 * len(text) / BYTES_PER_TOKEN


def test_what_cannot_fit_is_told_with_the_tokens_of_the_prompt_and_those_of_its_answer() -> None:
    sections = [Section("task", "word " * 1500)]
    with pytest.raises(ConfigError, match=r"prompt, 1516 tokens, and its answer, 700, need 2216 tokens, .* is 2048.*lower `max_tokens`"):
        fit(sections, 2048, 700, lambda text: len(text.split()))
    with pytest.raises(ConfigError, match="its answer, 700 and 100 of reasoning, need 2316 tokens"):
        fit(sections, 2048, 700, lambda text: len(text.split()), 100)


def test_a_kill_in_the_middle_of_code_costs_a_few_tokens_and_not_a_line() -> None:
    text = Path(continuation.__file__).read_text(encoding="utf-8")
    lost = [end - len(continuation.cut(text[:end])) for end in range(400, len(text))]
    assert sum(lost) / len(lost) <= 15, "characters; 4 tokens, half a second of decoding on a slow machine"


def test_a_server_that_counted_and_is_gone_is_no_server_without_a_tokenizer() -> None:
    with FakeServer() as server:
        provider = OpenAICompat("fake", server.url, api_key=None)
        assert provider.count("x" * 400) == 100
    with pytest.raises(NoVerdict) as caught:
        provider.count("x" * 400)
    assert caught.value.kind == "unreachable"


class Restarted(FakeServer):
    """Behind a proxy, which answers 502 once between the first answer's end and the next one."""

    outage = 1

    def answer(self, request: Recorded) -> Any:
        if self.calls and request.path == "/tokenize" and self.outage:
            self.outage -= 1
            return Http(502, b"<html>Bad gateway"), ""
        return super().answer(request)


def test_a_server_that_dies_in_mid_answer_and_comes_back_gets_the_same_prompt_again_however_narrow_its_window() -> None:
    with scratch() as folder:
        root = small_run(folder / "run")
        with FakeServer([GOOD]) as server:
            configure(root, providers={"p": {"url": server.url}}, models={"default": {"provider": "p", "model": "m", "max_tokens": 500}})
            assert ask(opened(root)).approved
        exact = events(root, "call_started")[0].prompt_tokens
        root = small_run(folder / "again")
        with Restarted([GOOD], rules=[Rule("drop", {"after": 8})], window=exact + 500) as server:
            configure(root, providers={"p": {"url": server.url}}, models={"default": {"provider": "p", "model": "m", "max_tokens": 500}})
            assert ask(opened(root)).approved
        assert [e.outcome for e in events(root, "call_finished")] == ["dropped", "server_error", "ok"]
        assert {e.prompt_tokens for e in events(root, "call_started")} == {exact}


@pytest.mark.parametrize("folder", ["/home/ann/.cache/models/", "~/models/", "./", "C:\\Users\\Ann\\models\\"])
def test_a_model_that_its_server_names_by_its_file_is_told_without_the_folders(folder: str) -> None:
    assert title(f"{folder}qwen2.5-q4.gguf") == "qwen2.5-q4.gguf"
    assert title("Qwen/Qwen2.5-Coder") == "Qwen/Qwen2.5-Coder", "an owner is no folder"


def test_the_record_of_a_call_says_which_model_answered_and_not_where_its_file_lies() -> None:
    with scratch() as folder, FakeServer([GOOD], model="/home/ann/models/qwen2.5-q4.gguf") as server:
        root = small_run(folder / "run")
        configure(root, providers={"p": {"url": server.url}}, models={"default": {"provider": "p", "model": "qwen2.5-q4.gguf"}})
        assert ask(opened(root)).approved
        (finished,) = events(root, "call_finished")
    assert (finished.model, finished.named) == ("qwen2.5-q4.gguf", "")
