"""How to speak TLS, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from rabbit_chx.amqp.secret import Secret, require_secret
from rabbit_chx.errors import InputError

__all__ = ["TlsSettings"]


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How to speak TLS with the broker. Names of files are not looked at here.

    Attributes:
        ca_file: PEM file of the authorities to trust; None for those of the system.
        cert_file: PEM file of our own certificate, for brokers that ask for one.
        key_file: PEM file of its key; None where the key is in `cert_file`.
        key_password: the password of that key.
        verify: whether the broker's certificate must be good. Switch it off for tests only.
        server_name: the name to ask for (SNI) and to find in the certificate; None for the host.
        check_server_name: False sends no name and compares none; the chain is still verified.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = None
    verify: bool = True
    server_name: str | None = None
    check_server_name: bool = True

    def __post_init__(self) -> None:
        if self.key_password is not None:
            require_secret("key_password", self.key_password)
        if self.key_file is not None and self.cert_file is None:
            raise InputError("a key file without a certificate file: give certfile as well")
