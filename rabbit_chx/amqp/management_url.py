"""The URL of the management API, as a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote

from rabbit_chx.amqp.secret import Secret
from rabbit_chx.amqp.settings import ConnectionSettings, TlsSettings
from rabbit_chx.amqp.uri import TLS_PARAMETERS, given_parameters, tls_settings
from rabbit_chx.amqp.url_parts import UriProblem, UrlParts, fail, url_parts
from rabbit_chx.errors import InputError

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
        host = f"[{quote(self.host, safe=':')}]" if ":" in self.host else quote(self.host, safe="")
        port = "" if self.port is None else f":{self.port}"
        return f"{scheme}://{quote(self.username or 'guest', safe='')}:***@{host}{port}"


def _read(text: str) -> tuple[ManagementUrl | None, str]:
    try:
        parts = url_parts(text, ("http", "https"))
        if not parts.host:
            fail(f"it names no host: give {_EXAMPLE}")
        path = parts.path.rstrip("/")
        prefix = path and f"/{path}"
        return ManagementUrl(parts.host, parts.port, prefix, parts.username, parts.password, _tls(parts)), ""
    except UriProblem as error:
        return None, f"management URL: {error}"


def _tls(parts: UrlParts) -> TlsSettings | None:
    parameters = dict(given_parameters(parts.query, TLS_PARAMETERS))
    if parts.scheme == "https":
        return tls_settings(parameters)
    for name in parameters:
        fail(f"{name} is for TLS: write https:// instead of http://, or leave it out")
    return None
