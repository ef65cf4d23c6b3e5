"""TLS settings in the terms of Python's ssl module."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from rabbit_chx.connection.failures import has_no_descriptor
from rabbit_chx.errors import InputError, UnreachableError

if TYPE_CHECKING:
    from rabbit_chx.amqp import TlsSettings


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the `ssl.SSLContext` for these settings; reads the certificate files.

    Raises:
        InputError: a file is missing or unreadable, or holds no certificate or key.
        UnreachableError: there is no file descriptor left to read it.
    """
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
    """Return the name to ask the broker for and to find in its certificate; None for neither."""
    return (tls.server_name or host) if tls.check_server_name else None
