"""The settings of a connection in the terms of pika, and pika's failures to open it as our errors."""

from __future__ import annotations

from typing import Any

import pika
from pika import credentials as pika_credentials
from pika import exceptions as pika_errors
from pika.adapters.utils import connection_workflow

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.failures import refused_certificate, unreachable
from rabbit_chx.connection.tls import tls_context
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerTimeoutError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)

__all__ = ["REPLY_TIMEOUT_S", "opening_error", "pika_parameters", "said_by"]

REPLY_TIMEOUT_S = 30.0
_MAX_FRAME_MAX = 131_072  # what pika allows


class _PreferredCredentials(pika_credentials.PlainCredentials):
    """The first of our mechanisms that the broker offers; each of pika's own classes knows one."""

    def __init__(self, settings: ConnectionSettings) -> None:
        super().__init__(settings.username, settings.password.reveal())
        self._mechanisms = settings.auth_mechanisms

    def response_for(self, start: Any) -> Any:  # noqa: ANN401 - pika's stubs allow PLAIN alone here
        external = pika_credentials.ExternalCredentials()
        for mechanism in self._mechanisms:
            answer = super().response_for(start) if mechanism == "PLAIN" else external.response_for(start)
            if answer != (None, None):
                return answer
        return None, None


def pika_parameters(target: str | ConnectionSettings) -> pika.ConnectionParameters:
    """Return a URL or settings in pika's terms, for programs that use pika themselves.

    pika's own URLParameters refuses ``cacertfile`` and does not know ``connection_timeout``. pika makes one
    attempt, which the connection timeout bounds. It sends the host as the TLS server name even where no name
    is checked.

    Args:
        target: an AMQP URI, or the settings of a connection.

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: the TLS files cannot be used.
    """
    settings = ConnectionSettings.from_uri(target) if isinstance(target, str) else target
    optional: dict[str, Any] = {}
    if settings.tls is not None:
        optional["ssl_options"] = pika.SSLOptions(tls_context(settings.tls), settings.tls.server_name)
    if settings.channel_max is not None:
        optional["channel_max"] = settings.channel_max
    if settings.frame_max is not None:
        optional["frame_max"] = min(settings.frame_max, _MAX_FRAME_MAX)
    if settings.connection_name is not None:
        optional["client_properties"] = {"connection_name": settings.connection_name}
    return pika.ConnectionParameters(
        host=settings.host,
        port=settings.port,
        virtual_host=settings.vhost,
        credentials=_PreferredCredentials(settings),
        heartbeat=settings.heartbeat_s,
        connection_attempts=1,
        socket_timeout=settings.connection_timeout_s,
        stack_timeout=settings.connection_timeout_s,
        blocked_connection_timeout=REPLY_TIMEOUT_S,
        **optional,
    )


def opening_error(  # noqa: PLR0911  # one for each fault
    settings: ConnectionSettings, cause: BaseException
) -> RabbitChxError:
    """Return our error for pika's failure to open a connection.

    Args:
        settings: the settings that the connection was opened with.
        cause: the error that pika raised.
    """
    said = said_by(cause)
    refused = refused_certificate(settings.masked_url, cause, said)
    if refused is not None:
        return refused
    if isinstance(cause, pika_errors.AuthenticationError):
        return AccessRefusedError(
            f"{settings.masked_url}: the broker offers none of the mechanisms "
            f"{', '.join(settings.auth_mechanisms)}: choose another auth_mechanism, or enable it there",
        )
    if isinstance(cause, pika_errors.ProbableAuthenticationError):
        return AccessRefusedError(
            f"{settings.masked_url}: the broker refuses the login ({said}): check user name and password",
            reply_code=403,
        )
    if isinstance(cause, pika_errors.ProbableAccessDeniedError):
        return _vhost_error(settings, said)
    if isinstance(cause, connection_workflow.AMQPConnectorStackTimeout) or "imed out" in said:
        return BrokerTimeoutError(
            f"{settings.masked_url}: not open within {settings.connection_timeout_s:g} s: "
            "check host, port and firewall"
        )
    if isinstance(cause, pika_errors.IncompatibleProtocolError | pika_errors.StreamLostError):
        return UnreachableError(
            f"{settings.masked_url}: no AMQP 0-9-1 is spoken there ({said}): check the port"
        )
    return unreachable(settings, cause, said)


def _vhost_error(settings: ConnectionSettings, said: str) -> RabbitChxError:
    if "not found" in said:
        return NotFoundError(
            f"{settings.masked_url}: there is no vhost {settings.vhost!r}: "
            "check the vhost in the URL, or create it",
            reply_code=530,
        )
    return AccessRefusedError(
        f"{settings.masked_url}: the broker refuses the vhost {settings.vhost!r} ({said}): "
        "check the user's permissions on it",
        reply_code=530,
    )


def said_by(cause: BaseException) -> str:
    """Return the words of the innermost of pika's nested errors, on one line."""
    inner = getattr(cause, "exception", None) or next(iter(cause.args), None)
    if isinstance(inner, BaseException):
        return said_by(inner)
    return " ".join(str(cause).split()) or type(cause).__name__
