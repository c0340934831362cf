"""Every way in which a server fails to answer → NoVerdict, with one line that a person can act on and no secret in it."""

from __future__ import annotations

import contextlib
import email.utils
import json
import math
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from nightmill.providers.base import Kind, NoVerdict

MAX_BODY = 64 << 10
"""Bytes of an error's body that are read."""
_QUOTE = 200

_TOO_LARGE = re.compile(
    r"exceed_context_size|context_length_exceeded|exceeds? the (available |model'?s? )?context|maximum context length|context window"
    r"|prompt is too long|too many (input )?tokens|reduce the length",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model_not_found|model\b.{0,80}\b(not found|does not exist|not exist|unknown|not loaded)|(unknown|invalid) model", re.I
)
_NO_QUOTA = re.compile(r"insufficient_quota|\bbilling|\bcredits?\b|\bbalance\b|\bpayment", re.IGNORECASE)
_COME_BACK = re.compile(r"\b(re)?try (again )?in\b", re.IGNORECASE)
_LOADING = re.compile(r"\bloading\b", re.IGNORECASE)


@dataclass(frozen=True)
class Failures:
    """`where` is host and port as shown to the person; `secret` is blotted out of whatever the server says."""

    where: str
    secret: str | None = field(default=None, repr=False)

    def transport(self, error: httpx.HTTPError, connect_s: float) -> NoVerdict:
        """The connection could not be made, or broke."""
        causes = list(_causes(error))
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return NoVerdict("unreachable", f"the host name of {self.where} cannot be resolved")
        if tls := next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None):
            return NoVerdict("unreachable", f"no TLS connection to {self.where}: {_tls(tls)}")
        if isinstance(error, httpx.ConnectTimeout):
            return NoVerdict("unreachable", f"{self.where} accepted no connection within {connect_s:g} s")
        if isinstance(error, httpx.ConnectError):
            refused = any(isinstance(cause, ConnectionRefusedError) for cause in causes)
            return NoVerdict("unreachable", f"nothing listens at {self.where}" if refused else f"{self.where}: {self.quote(str(error))}")
        if isinstance(error, httpx.DecodingError):
            return NoVerdict("garbage", f"{self.where} sent a body that its content-encoding does not fit")
        if isinstance(error, httpx.RemoteProtocolError) and not re.search("disconnected|closed", str(error)):
            return NoVerdict("garbage", f"{self.where} does not speak HTTP/1.1")
        return NoVerdict("dropped", f"{self.where} closed the connection")

    def status(self, status: int, headers: Mapping[str, str], body: bytes) -> NoVerdict:
        """An HTTP status other than 200."""
        said = _parse(body)
        message = self.quote(said.message) or ("an HTML page" if is_html(body) else "")
        kind = _kind(status, said)
        wish = retry_after(headers.get("retry-after"), time.time())
        if kind == "no_quota" and status == 429 and wish is not None and "insufficient_quota" not in said.type:
            kind = "rate_limited"  # an account that is used up has no hour of return
        if kind == "unauthorized" and status == 401:
            message = ""  # some servers quote the key, in part
        if location := headers.get("location", "") if 300 <= status < 400 else "":
            message = f"it redirects to {self.quote(location.partition('?')[0])}"
        detail = f"{self.where} answered {status}" + (f": {message}" if message else "")
        return NoVerdict(kind, detail, retry_after=wish)

    def in_stream(self, error: object) -> NoVerdict:
        """An error object inside a stream that had begun with 200."""
        return self._reported(error, "stream_error")

    def instead(self, body: bytes) -> NoVerdict:
        """A body that came with 200 in place of an event stream."""
        if is_html(body):
            return self.html("an HTML page instead of an answer")
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(body)
            if isinstance(value, dict) and value.get("error"):
                return self._reported(value, "server_error")
        return self.garbage("JSON instead of an event stream")

    def html(self, what: str) -> NoVerdict:
        return NoVerdict("html", f"{self.where} sent {self.quote(what)}: a proxy or a web site stands at this url")

    def garbage(self, what: str) -> NoVerdict:
        return NoVerdict("garbage", f"{self.where} sent {self.quote(what)}")

    def bad_utf8(self, what: str) -> NoVerdict:
        return NoVerdict("bad_utf8", f"{self.where} sent {self.quote(what)}")

    def _reported(self, error: object, kind: Kind) -> NoVerdict:
        said = _said(error)
        if _TOO_LARGE.search(said.all):
            kind = "too_large"
        elif said.code in (402, 429, 503) and (told := _kind(said.code, said)) != "server_error":
            kind = told
        return NoVerdict(kind, f"{self.where} reported an error while answering: {self.quote(said.message) or 'no reason given'}")

    def quote(self, text: str) -> str:
        """A server's words on one line, shortened, without the key and without control characters."""
        if self.secret:
            text = text.replace(self.secret, "***")
        text = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _QUOTE]).split())
        return text if len(text) <= _QUOTE else text[: _QUOTE - 1] + "…"


def is_html(body: bytes) -> bool:
    return body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<"


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds from a `Retry-After` header (seconds or an HTTP date); `now` is Unix time. None when absent or senseless."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


@dataclass(frozen=True)
class _Said:
    message: str = ""
    type: str = ""
    code: int | None = None

    @property
    def all(self) -> str:
        return f"{self.type} {self.message}"


def _parse(body: bytes) -> _Said:
    with contextlib.suppress(ValueError, RecursionError):
        return _said(json.loads(body))
    text = body[: 4 * _QUOTE].decode("utf-8", "replace")
    return _Said("" if is_html(body) else text)


def _said(value: object) -> _Said:
    """The shapes in use: {"error": {...}}, {"error": "text"}, {"message": …}, {"detail": …}, a bare string."""
    if isinstance(value, dict) and value.get("error"):
        value = value["error"]
    if isinstance(value, str):
        return _Said(value)
    if not isinstance(value, dict):
        return _Said()
    error: Mapping[str, Any] = value
    message = error.get("message") or error.get("detail") or ""
    code = error.get("code")
    names = [str(name) for name in (error.get("type"), code) if isinstance(name, str)]
    number = int(code) if isinstance(code, int | str) and str(code).isdigit() and len(str(code)) == 3 else None
    return _Said(message if isinstance(message, str) else json.dumps(message), " ".join(names), number)


def _kind(status: int, said: _Said) -> Kind:
    if status < 400:
        return "bad_request" if status >= 300 else "garbage"
    if status >= 500:
        if status == 503 and (_LOADING.search(said.message) or "unavailable_error" in said.type):
            return "loading"
        return "too_large" if _TOO_LARGE.search(said.all) else "server_error"
    if status == 429 and _NO_QUOTA.search(said.all) and ("insufficient_quota" in said.type or not _COME_BACK.search(said.message)):
        return "no_quota"
    fixed = _BY_STATUS.get(status)
    if fixed:
        return fixed
    if _TOO_LARGE.search(said.all):
        return "too_large"
    return "no_model" if _NO_MODEL.search(said.all) else "bad_request"


_BY_STATUS: Mapping[int, Kind] = {
    401: "unauthorized",
    402: "no_quota",
    403: "unauthorized",
    404: "no_model",
    405: "no_model",
    408: "server_error",
    413: "too_large",
    425: "server_error",
    429: "rate_limited",
}


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); name a private CA in SSL_CERT_FILE"
    return "it does not seem to speak TLS; try http:// instead of https://"
