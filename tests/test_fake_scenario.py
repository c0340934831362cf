"""Replies from files, scenario files, and the command `nightmill fake-server`."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fake_help import ask, client, failure, request
from fake_server import FakeServer, Rule
from nightmill import demo
from nightmill.errors import ConfigError
from nightmill.fake import command, scenario
from nightmill.fake.faults import FAULTS
from nightmill.fake.settings import Settings
from nightmill.fake.strict import readers
from nightmill.providers.openai_compat import OpenAICompat
from nightmill.providers.scripted import Scripted
from runs import NIGHTMILL, environment

LABELS = ("contract:1#1", "contract_review:2#1", "plan#1", "implement:money#2", "implement:slip/security_reviewer#1")


@pytest.mark.parametrize("label", LABELS)
def test_a_file_answers_as_the_scripted_provider_would(label: str) -> None:
    folder = demo.EXAMPLE / "replies"
    with FakeServer(replies=folder, window=None) as server:
        over_http = ask(server, asked=request(label))
    direct = Scripted("demo", folder).complete(request(label), lambda _: None, lambda: False)
    assert over_http.text == direct.text and over_http.text.strip()


@pytest.mark.parametrize(
    ("directive", "kind"),
    [
        *[("cut=4", "dropped"), ("finish=length", "length"), ("error=503", "loading"), ("error=402", "no_quota"), ("reasoning=1", "")],
        *[("error=loop", "loop"), ("garbage=html", "html"), ("garbage=utf8", "bad_utf8"), ("garbage=json", "garbage"), ("stall=9", "idle")],
    ],
)
def test_a_files_directive_means_over_http_what_it_means_to_the_scripted_provider(tmp_path: Path, directive: str, kind: str) -> None:
    (tmp_path / "plan.md").write_text(f"<!-- scripted: {directive} -->\nsome text")
    with FakeServer(replies=tmp_path) as server:
        assert failure(server, asked=request("plan#1")).kind == (kind or "reasoning_only")


def test_a_missing_file_is_named_and_requests_without_a_label_get_the_usual_reply(tmp_path: Path) -> None:
    with FakeServer(replies=tmp_path, reply="fine") as server:
        caught = failure(server, asked=request("plan#3"))
        assert caught.kind == "no_model" and "plan.3.md" in caught.detail
        assert ask(server, asked=request("")).text == "fine"
        assert client(server).continues("fake-model")


def test_a_file_that_cannot_be_read_is_an_answer_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "plan.md").symlink_to("/proc/self/mem")  # an I/O error for everybody, root included
    with FakeServer(replies=tmp_path) as server:
        caught = failure(server, asked=request("plan#1"))
    assert caught.kind == "server_error" and "the disk reports an I/O error" in caught.detail


def write(folder: Path, text: str) -> Path:
    path = folder / "night.yaml"
    path.write_text(text)
    return path


def test_a_scenario_file_says_how_the_server_is_and_what_goes_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_KEY", "sk-secret")
    (tmp_path / "replies").mkdir()
    settings, planned = scenario.load(
        write(
            tmp_path,
            """
            model: qwen3-8b
            window: null
            slots: 2
            tokenize: off
            api_key_env: FAKE_KEY
            decode_tps: 40
            replies: replies
            faults:
              - {at: 3, fault: rate_limited, retry_after: 2}
              - {at: [5, 7], fault: server_error, status: 502}
              - {at: "implement:*", times: 2, fault: drop, after: 200}
              - {fault: hang, times: always, pings: on}
            """,
        )
    )
    assert (settings.model, settings.window, settings.slots, settings.tokenize, settings.counts) == ("qwen3-8b", None, 2, False, True)
    assert (settings.decode_tps, settings.replies, settings.api_key) == (40.0, tmp_path / "replies", "sk-secret")
    assert "sk-secret" not in repr(settings)
    assert planned == (
        Rule("rate_limited", {"retry_after": 2.0}, first=3),
        Rule("server_error", {"status": 502}, first=5, last=7, times=3),
        Rule("drop", {"after": 200}, first=0, label="implement:*", times=2),
        Rule("hang", {"pings": True}, times=None),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("windw: 4096", "unknown key `windw`: did you mean `window`?"),
        ("api_key: sk-1", "did you mean `api_key_env`"),
        ("loading: 3", "unknown key `loading`"),
        ("slots: 0", "slots: give a whole number from 1 (got 0)"),
        ("slots: 1000000", "slots: give at most 1024"),
        ("slots: null", "slots: give a whole number"),
        ("load_s: soon", "load_s: give seconds"),
        ("decode_tps: .nan", "decode_tps: give tokens per second"),
        ("echo: maybe", "echo: give on or off"),
        ("replies: nowhere", "is not a directory"),
        ("replies: ~nobody-here/x", "replies: "),
        ("api_key_env: SURELY_NOT_SET", "SURELY_NOT_SET"),
        ("faults: drop", "faults: expected a list"),
        ("faults: [drop]", "faults[1]: expected something like"),
        ("faults: [{at: 3}]", "faults[1]: `fault` is missing"),
        ("faults: [{fault: [drop]}]", "faults[1]: no fault"),
        ("faults: [{fault: rate_limit}]", "did you mean `rate_limited`?"),
        ("faults: [{fault: drop, afetr: 3}]", "faults[1] (drop): unknown key `afetr`: did you mean `after`?"),
        ("faults: [{fault: drop, after: -3}]", "number of characters"),
        ("faults: [{fault: drop, turn: 3}]", "unknown key `turn`"),
        ("faults: [{fault: drop, at: 0}]", "faults[1]: at: give a whole number from 1"),
        ("faults: [{fault: drop, at: [5, 2]}]", "at: 2 comes before 5"),
        ("faults: [{fault: drop, at: [1, 2, 3]}]", "at: give a number, two numbers"),
        ("faults: [{fault: drop, times: often}]", "times: give a whole number"),
        ("[1, 2]", "expected `key: value` lines"),
        ("a: {b", "not valid YAML"),
    ],
)
def test_a_mistake_in_a_scenario_is_one_line_with_its_place_and_the_near_miss(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario.load(write(tmp_path, text))
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_the_help_names_every_setting_and_every_fault_with_its_parameters() -> None:
    text = command.epilog()
    defaults = scenario.DEFAULTS
    for name in readers(Settings):
        said = re.search(rf"^    {name}: (\S+)", text, re.MULTILINE)
        assert said, name
        value = getattr(defaults, name)
        assert said[1] == {None: "null", True: "on"}.get(
            value if value is None or isinstance(value, bool) else 0, f"{value}".removesuffix(".0")
        )
    for name, builder in FAULTS.items():
        assert re.search(rf"^    {name}\b", text, re.MULTILINE), name
        assert all(parameter in text for parameter in readers(builder))


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [*NIGHTMILL, "fake-server", *arguments], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_its_url_logs_each_request_and_stops_cleanly_even_while_it_answers(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = write(tmp_path, "model: tiny\nfaults: [{at: 2, fault: hang, after: 1}]")
    with started("--scenario", str(path), "--slots", "3") as (process, url):
        provider = OpenAICompat("fake", url, api_key=None, idle_s=20)
        assert provider.complete(request(), lambda _: None, lambda: False).model == "tiny"
        with httpx.stream(
            "POST", f"{url}/chat/completions", json={"messages": [{"role": "user", "content": "a"}], "stream": True}, trust_env=False
        ) as answer:
            pieces = answer.iter_raw()
            assert any(b"content" in piece for piece in pieces)
            stopped = time.monotonic()
            process.send_signal(number)
            process.send_signal(number)
            _, log = process.communicate(timeout=5)
            assert time.monotonic() - stopped < 2
    assert process.returncode == 0
    first, second = log.strip().splitlines()
    assert "POST /v1/chat/completions contract:1#1 → 200" in first and "hang" in second


def test_a_quiet_command_says_nothing_but_its_url() -> None:
    with started("--quiet", "--port", "0", "--model", "m") as (process, url):
        assert httpx.get(f"{url}/models", trust_env=False).json()["data"][0]["id"] == "m"
        process.terminate()
        assert process.communicate(timeout=5) == ("", "")


def test_a_port_that_is_taken_and_options_that_make_no_sense_are_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wrong = [["--port", str(taken.getsockname()[1])], ["--port", "70000"], ["--slots", "0"], ["--scenario", "/nowhere.yaml"]]
        for arguments, code in zip(wrong, (78, 3, 3, 78), strict=True):
            done = subprocess.run([*NIGHTMILL, "fake-server", *arguments], env=environment(), capture_output=True, text=True, timeout=20)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
