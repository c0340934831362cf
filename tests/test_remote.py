"""The own network, and the leave that a paid or remote provider needs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.calls.remote import is_local, refuse_remote
from nightmill.config import parse
from nightmill.errors import ConfigError

LOCAL = [
    "http://localhost:8080/v1",
    "http://LOCALHOST",
    "http://127.0.0.1:8080",
    "http://127.9.9.9",
    "http://127.1:80",
    "http://0.0.0.0:8080",
    "http://0x7f000001",
    "http://10.0.0.7/v1",
    "http://172.16.0.1",
    "http://172.31.255.255",
    "http://192.168.1.20:11434/v1",
    "http://169.254.1.1",
    "http://100.64.0.1",
    "http://100.127.9.9",
    "http://[::1]:8080/v1",
    "http://[fe80::1%25eth0]:80",
    "http://[fd7a:115c:a1e0::1]",
    "http://[fc00::1]",
    "http://[::ffff:192.168.1.1]",
    "http://gpubox:8000",
    "https://gpu_box",
    "http://tower.local:1",
    "http://tower.local./v1",
    "http://a.b.lan",
    "http://nas.home",
    "http://llm.internal",
    "http://x.home.arpa",
    "http://any.localhost",
]
REMOTE = [
    "https://api.example.com/v1",
    "http://8.8.8.8",
    "http://134744072",
    "http://0x08080808",
    "http://172.32.0.1",
    "http://172.15.0.1",
    "http://192.169.0.1",
    "http://100.128.0.1",
    "http://100.63.255.255",
    "http://11.0.0.1",
    "http://169.253.0.1",
    "http://[2001:4860:4860::8888]",
    "http://[::ffff:8.8.8.8]",
    "http://[64:ff9b::a00:1]",
    "http://[fec0::1%25x]",
    "http://tower.local.example.com",
    "http://localhost.example.com",
    "http://mylocal.com",
    "http://localhost@example.com",
    "http://user:key@api.example.com",
    "http://example。com",
    "http://internal.example",
    "http://1.2.3.4.5",
    "http://10.0.0.300",
    "http://[nonsense]",
    "127.0.0.1:8080",
]


@pytest.mark.parametrize("url", LOCAL)
def test_an_address_of_the_own_network_is_local(url: str) -> None:
    assert is_local(url)


@pytest.mark.parametrize("url", [*REMOTE, "", "http://", "nonsense"])
def test_any_other_address_is_remote(url: str) -> None:
    assert not is_local(url)


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_the_question_whether_it_is_local(text: str) -> None:
    is_local(text)
    is_local(f"http://{text}/v1")


def configured(models: object, **hosted: object) -> None:
    providers = {
        "near": {"url": "http://127.0.0.1:8080/v1"},
        "hosted": {"url": "https://api.example.com/v1", **hosted},
        "files": {"kind": "scripted", "replies": "r"},
    }
    refuse_remote(
        parse({"source": "x", "providers": providers, "models": {"default": {"provider": "near", "model": "m"}, "reviewer": models}})
    )


NEAR, HOSTED = {"provider": "near", "model": "m"}, {"provider": "hosted", "model": "big"}


def test_a_role_may_not_move_to_a_remote_provider_without_leave_and_is_told_how_to_give_it() -> None:
    with pytest.raises(ConfigError, match=r"models\.reviewer.*api\.example\.com.*`remote: allow` below providers\.hosted") as raised:
        configured([NEAR, HOSTED])
    assert "\n" not in str(raised.value)
    configured([NEAR, HOSTED], remote="allow")


def test_the_order_makes_no_difference_to_the_leave_that_is_needed() -> None:
    with pytest.raises(ConfigError):
        configured([HOSTED, NEAR])


def test_a_single_remote_model_is_what_the_person_asked_for() -> None:
    configured(HOSTED)
    configured([{**HOSTED, "price": {"output": 10}}])


def test_a_near_provider_that_costs_money_needs_leave_too() -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:8080 costs money"):
        configured([NEAR, {**NEAR, "model": "gateway", "price": {"input": 1}}])


def test_near_and_scripted_providers_need_no_leave() -> None:
    configured([NEAR, {**NEAR, "model": "n"}, {"provider": "files", "model": "s"}])
