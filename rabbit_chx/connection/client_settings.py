"""Connection settings for Python's ssl module and for aio-pika."""

from __future__ import annotations

import ssl
from typing import Any

from rabbit_chx.amqp import ConnectionSettings, TlsSettings
from rabbit_chx.connection.failures import has_no_descriptor
from rabbit_chx.errors import InputError, UnreachableError


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the `ssl.SSLContext` for these settings; raise an InputError for an unusable certificate file."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except OSError as cause:  # ssl.SSLError is an OSError
        raise _unusable(f"the CA certificates in {tls.ca_file!r}", cause) from None
    if not (tls.verify and tls.check_server_name):
        context.check_hostname = False
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file is not None:
        password = tls.key_password.reveal() if tls.key_password else None
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file, password=password or "")
        except OSError as cause:
            what = f"the client certificate {tls.cert_file!r} with the key {tls.key_file!r}"
            raise _unusable(what, cause) from None
    return context


def _unusable(what: str, cause: OSError) -> InputError | UnreachableError:
    kind = UnreachableError if has_no_descriptor(cause) else InputError
    return kind(f"{what} cannot be used: {cause}")


def server_name(host: str, tls: TlsSettings) -> str | None:
    """Return the name for SNI and the check of the certificate; None for neither."""
    return (tls.server_name or host) if tls.check_server_name else None


def aio_pika_arguments(target: str | ConnectionSettings) -> dict[str, Any]:
    """Return arguments of `aio_pika.connect` and `aio_pika.connect_robust` for an AMQP URI or settings, the `target`.

    aio-pika's URL parser ignores ``cacertfile``, ``verify`` and ``connection_timeout``, so it does not get the URL. A setting that aio-pika
    (aiormq 7.2) would ignore is an error here.

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: aio-pika does not support a setting, or the TLS files cannot be used.

    Example::

        connection = await aio_pika.connect_robust(**aio_pika_arguments(url))
    """
    settings = ConnectionSettings.of(target)
    _refuse_what_it_ignores(settings)
    arguments: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "login": settings.username,
        "password": settings.password.reveal(),
        "virtualhost": settings.vhost,
        "timeout": settings.connection_timeout_s,
        "auth": settings.auth_mechanisms[0],
    }
    if settings.tls is not None:
        arguments |= {"ssl": True, "ssl_context": tls_context(settings.tls)}
    if settings.heartbeat_s is not None:
        arguments["heartbeat"] = settings.heartbeat_s
    if settings.connection_name is not None:
        arguments["name"] = settings.connection_name
    return arguments


def _refuse_what_it_ignores(settings: ConnectionSettings) -> None:
    ignored = {
        "channel_max": settings.channel_max is not None,
        "frame_max": settings.frame_max is not None,
        "a second auth_mechanism": len(settings.auth_mechanisms) > 1,
        "server_name_indication": settings.tls is not None
        and settings.tls.check_server_name
        and settings.tls.server_name not in {None, settings.host},
    }
    for setting, value in ignored.items():
        if value:
            raise InputError(f"{settings.masked_url}: aio-pika cannot follow {setting}: leave it out")
