"""The parts of a URL with a login: of an AMQP URI, and of the management API.

`urllib.parse` is too lenient: a password with a '/' in it becomes a host name, and is shown.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn
from urllib.parse import unquote_to_bytes

from rabbit_chx.amqp.secret import Secret

_URL = re.compile(
    r"(?P<scheme>[A-Za-z+-]+)://(?P<authority>[^/?#]*)(?:/(?P<path>[^?#]*))?(?:\?(?P<query>[^#]*))?"
)
_HOST_AND_PORT = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]*))?")
_HOST_NAME = re.compile(r"[^\s/@?#:%\[\]\x00-\x1f\x7f]+")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_IN_URLS = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]")

_ENCODE = (
    "percent-encode what is special in a user name, password or vhost: '@' %40, '/' %2F, '?' %3F, '#' %23"
)


class UriProblem(Exception):
    """Why a URL cannot be followed. Who reads the whole URL says which it is; no part of a password is in here."""


def fail(problem: str) -> NoReturn:
    """Raise a `UriProblem`."""
    raise UriProblem(problem)


class UrlParts(NamedTuple):
    """A URL, taken apart.

    Attributes:
        scheme: in small letters.
        username: decoded; None where there is no '@'.
        password: decoded; None where there is no ':' before the '@'.
        host: decoded, IPv6 without brackets; "" where there is none.
        port: None where there is none.
        path: as it is, without the '/' before it.
        query: as it is, without the '?' before it.
    """

    scheme: str
    username: str | None
    password: Secret | None
    host: str
    port: int | None
    path: str
    query: str


def url_parts(text: str, schemes: Sequence[str]) -> UrlParts:
    """Take a URL apart.

    Args:
        text: the URL.
        schemes: those that are possible, in small letters.

    Raises:
        UriProblem: the text is no such URL.
    """
    match = _split(text, schemes)
    userinfo, at, address = match["authority"].rpartition("@")
    host, port = _address(address)
    username, colon, password = userinfo.partition(":")
    return UrlParts(
        match["scheme"].lower(),
        decoded("user name", username) if at else None,
        Secret(decoded("password", password)) if at and colon else None,
        host,
        port,
        match["path"] or "",
        match["query"] or "",
    )


def with_path(text: str, path: str) -> str:
    """Return a URL with another path; all else in it stays as it is.

    Args:
        text: a URL that `url_parts` takes apart.
        path: the path, percent-encoded, without the '/' before it.
    """
    match = _URL.fullmatch(text) or fail(f"a '#' in it; {_ENCODE}")
    query = "" if match["query"] is None else f"?{match['query']}"
    return f"{match['scheme']}://{match['authority']}/{path}{query}"


def _split(text: str, schemes: Sequence[str]) -> re.Match[str]:
    if not isinstance(text, str):
        fail(f"expected text such as {schemes[0]}://user:password@host, not {type(text).__name__}")
    if not text.lower().startswith(tuple(f"{scheme}://" for scheme in schemes)):
        fail(f"it must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if _NOT_IN_URLS.search(text):
        fail("white space or a control character in it: remove it, or percent-encode it")
    match = _URL.fullmatch(text)
    if match is None:
        fail(f"a '#' in it; {_ENCODE}")
    if text.count("@") != match["authority"].count("@") or text.count("@") > 1:
        fail(f"an '@' too many; {_ENCODE}")
    if _BAD_PERCENT.search(text):
        fail("a '%' that is not followed by two hexadecimal digits: write a '%' itself as %25")
    return match


def decoded(what: str, text: str) -> str:
    """Return percent-encoded text, decoded as UTF-8.

    Args:
        what: what it is, for the message.
        text: the text.

    Raises:
        UriProblem: it is not UTF-8.
    """
    decoded_text = _utf8(unquote_to_bytes(text))
    if decoded_text is None:
        fail(f"the {what} is not UTF-8 after percent-decoding")
    return decoded_text


def _utf8(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _address(text: str) -> tuple[str, int | None]:
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        fail(f"the part between '@' and '/' must be host:port, with IPv6 in brackets; {_ENCODE}")
    port = match["port"]
    if port and (len(port) > 5 or not 1 <= int(port) <= 65535):
        fail("the port must be a number from 1 to 65535")
    return _host(match["host"]), int(port) if port else None


def _host(text: str) -> str:
    host = decoded("host", text.removeprefix("[").removesuffix("]"))
    if text.startswith("["):
        if not _is_ipv6(host) or _NOT_IN_URLS.search(host):
            fail("the text in brackets is not an IPv6 address")
    elif host and not _HOST_NAME.fullmatch(host):
        fail("the host name holds characters that no host name has")
    return host


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
