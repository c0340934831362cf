"""Never a silent move to a paid or remote provider: where a role has several models, `remote: allow` must be written for such a one."""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

from nightmill.config import ModelConfig, OpenAIProvider, RunConfig
from nightmill.errors import ConfigError

_OWN_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128"),  # this machine
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),  # private: RFC 1918, RFC 4193
        *("169.254.0.0/16", "fe80::/10"),  # link-local: RFC 3927, RFC 4291
        "100.64.0.0/10",  # shared (RFC 6598): carriers, and the tailnets of Tailscale
    )
)
_OWN_NAMES = ("localhost", "local", "lan", "home", "internal", "home.arpa")
"""Top of a host name: RFC 6761, RFC 6762 (mDNS), RFC 8375, ICANN's `internal`, and what home routers hand out."""
_NUMERIC = re.compile(r"(?:.*\.)?(?:\d+|0x[0-9a-f]*)", re.IGNORECASE)


def refuse_remote(config: RunConfig) -> None:
    """Raises ConfigError, naming role, host and remedy, when a role could move to a paid or remote provider unasked."""
    for role, models in config.models.items():
        for model in models if len(models) > 1 else ():
            if why := _needs_leave(config, model):
                raise ConfigError(
                    f"models.{role}: {model.model} of provider {model.provider} {why}: a role with several models moves there only if"
                    f" you write `remote: allow` below providers.{model.provider}; else take it out of the list"
                )


def is_local(url: str) -> bool:
    """Whether a URL's host is this machine or lies on the own network, by its address or name alone; nothing is resolved."""
    try:
        host = (urlsplit(url.strip()).hostname or "").rstrip(".")
        if ":" in host:
            return _own(ipaddress.ip_address(host))
        host = host.encode("idna").decode()  # as the resolver will read it: other scripts have dots of their own
        if _NUMERIC.fullmatch(host):  # 127.1 and 2130706433 are addresses too
            return _own(ipaddress.ip_address(socket.inet_aton(host)))
    except (ValueError, OSError):
        return False
    return bool(host) and ("." not in host or host.lower().endswith(tuple(f".{name}" for name in _OWN_NAMES)))


def _own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    return any(address in network for network in _OWN_NETWORKS)


def _needs_leave(config: RunConfig, model: ModelConfig) -> str:
    """Why this model may not be moved to unasked; "" when it may."""
    provider = config.providers[model.provider]
    if not isinstance(provider, OpenAIProvider) or provider.remote == "allow":
        return ""
    if not is_local(provider.url):
        return f"is at {_shown(provider.url)}, outside of your own network"
    if model.price.input or model.price.output:
        return f"at {_shown(provider.url)} costs money"
    return ""


def _shown(url: str) -> str:
    """Host and port, without a user's name or key."""
    try:
        return urlsplit(url.strip()).netloc.rpartition("@")[2] or "an address without a host"
    except ValueError:
        return "an address that is no URL"
