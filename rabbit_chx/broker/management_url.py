"""The URL of the management API, as a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from rabbit_chx.amqp import Secret, TlsSettings
from rabbit_chx.amqp.uri_query import TLS_PARAMETERS, UriProblem, fail, given_parameters, tls_settings
from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from rabbit_chx.amqp import ConnectionSettings

__all__ = ["ManagementUrl"]

_EXAMPLE = "http://user:password@host:15672"


@dataclass(frozen=True, slots=True)
class ManagementUrl:
    """Where the HTTP API is, and as whom to ask it.

    Attributes:
        host: name or address; IPv6 without brackets.
        port: TCP port; None for that of the scheme, 80 or 443.
        prefix: what is before ``/api`` in each path.
        username: the user; None where the URL names none.
        password: their password; None where the URL has none.
        tls: None for ``http``.
    """

    host: str
    port: int | None
    prefix: str = ""
    username: str | None = None
    password: Secret | None = None
    tls: TlsSettings | None = None

    @classmethod
    def of(cls, text: str) -> ManagementUrl:
        """Read ``http[s]://user:password@host:port/prefix?parameters``.

        The parameters are those of TLS in an AMQP URI: see :func:`rabbit_chx.amqp.uri.parse_uri`.

        Args:
            text: the URL.

        Raises:
            InputError: it cannot be followed. No part of a password is in the message.
        """
        url, problem = _read(text)
        if url is None:  # raised here, where no exception with a password in its frames is at hand
            raise InputError(problem)
        return url

    def with_login_of(self, settings: ConnectionSettings) -> ManagementUrl:
        """Return the URL with the login of AMQP settings, where it has none of its own.

        Args:
            settings: the settings.
        """
        if self.username is not None or self.password is not None:
            return self
        return replace(self, username=settings.username, password=settings.password)

    @property
    def masked(self) -> str:
        """The address with ``***`` for the password: fit for messages and logs."""
        scheme = "http" if self.tls is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{scheme}://{quote(self.username or 'guest')}:***@{host}{port}"


def _read(text: str) -> tuple[ManagementUrl | None, str]:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        host = None
    if not host or parts.scheme not in ("http", "https"):
        return None, f"this is not a management URL: give {_EXAMPLE}"
    try:
        tls = _tls(parts)
    except UriProblem as error:
        return None, f"management URL: {error}"
    return ManagementUrl(
        host,
        port,
        parts.path.rstrip("/"),
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else Secret(unquote(parts.password)),
        tls,
    ), ""


def _tls(parts: SplitResult) -> TlsSettings | None:
    if parts.fragment:
        fail("a '#' in it: in a user name, a password or a file name it is written %23")
    given: dict[str, Any] = dict(given_parameters(parts.query, TLS_PARAMETERS))
    if parts.scheme == "https":
        return tls_settings(given)
    for name in given:
        fail(f"{name} is for TLS: write https:// instead of http://, or leave it out")
    return None
