"""Where to connect, and as whom: the options become settings. The password is read where it is needed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rabbit_chx.amqp import ConnectionSettings, Secret, TlsSettings
from rabbit_chx.amqp.settings import MAX_TIMEOUT_S
from rabbit_chx.errors import InputError
from spark_connector.options.option_values import shown

if TYPE_CHECKING:
    from spark_connector.options.option_table import OptionValues

__all__ = ["Brokers", "PasswordSource"]

_NEXT_URL = re.compile(r"\s*,\s*(?=amqps?://)", re.IGNORECASE)
_HOST = re.compile(r"[^\s:/@?#%\[\]]+|[0-9A-Fa-f.]*:[0-9A-Fa-f.:]+")  # a name, an address, or an IPv6 address
_MAX_HEARTBEAT_S = 65_535
_HOST_FORM: tuple[Literal["host", "port", "vhost"], ...] = ("host", "port", "vhost")
_PASSWORDS: tuple[Literal["password", "passwordEnv", "passwordFile"], ...] = (
    "password",
    "passwordEnv",
    "passwordFile",
)
#: Options of TLS, and the fields of `TlsSettings` that they set.
_TLS_FIELDS: dict[Literal["tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsVerify"], str] = {
    "tlsCaFile": "ca_file",
    "tlsCertFile": "cert_file",
    "tlsKeyFile": "key_file",
    "tlsVerify": "verify",
}


@dataclass(frozen=True, slots=True)
class PasswordSource:
    """Where a task finds the password.

    Attributes:
        option: ``passwordEnv`` or ``passwordFile``.
        name: name of the variable, or path of the file.
    """

    option: str
    name: str

    def read(self) -> Secret:
        """Return the password, as it is on this machine now.

        A line break at the end of a file does not count.

        Raises:
            InputError: the variable or the file does not exist here, is empty, or is not UTF-8.
        """
        if self.option == "passwordEnv":
            found = os.environ.get(self.name)
            if not found:
                raise InputError(
                    f"option 'passwordEnv': the environment variable {self.name!r} is not set in this process: "
                    "set it where the executors start, or give passwordFile"
                )
            return Secret(found)
        try:
            # Blanks may be part of the password.
            found = Path(self.name).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as cause:
            raise InputError(
                f"option 'passwordFile': {self.name!r} cannot be read here ({type(cause).__name__}): "
                "put the file on every executor, as UTF-8"
            ) from None
        if not found:
            raise InputError(f"option 'passwordFile': {self.name!r} is empty: write the password into it")
        return Secret(found)


@dataclass(frozen=True, slots=True)
class Brokers:
    """The addresses to try, one after the other.

    Attributes:
        addresses: the settings of each address; they lack the password if `password` says where it is.
        password: where to read the password; None if the settings contain it.
    """

    addresses: tuple[ConnectionSettings, ...]
    password: PasswordSource | None = None

    @classmethod
    def of(cls, values: OptionValues) -> Brokers:
        """Return the addresses that the options name.

        Args:
            values: the values of all options.

        Raises:
            InputError: options contradict each other, or neither `url` nor `host` is given.
        """
        passwords = [(name, text) for name in _PASSWORDS if (text := values[name]) is not None]
        if len(passwords) > 1:
            raise InputError(
                f"options {passwords[0][0]!r} and {passwords[1][0]!r} are both given: give one of them"
            )
        addresses = (_from_host(values),) if values["url"] is None else _from_urls(values["url"], values)
        changed = {name: value for name, value in _common(values).items() if value is not None}
        if values["password"] is not None:
            changed["password"] = Secret(values["password"])
        addresses = tuple(replace(address, **changed) for address in addresses)
        elsewhere = [PasswordSource(name, text) for name, text in passwords if name != "password"]
        return cls(addresses, *elsewhere)

    @property
    def masked_url(self) -> str:
        """The addresses without passwords, for messages."""
        return ", ".join(address.masked_url for address in self.addresses)

    def resolve(self, first: int = 0) -> tuple[ConnectionSettings, ...]:
        """Return the settings with the password.

        Args:
            first: index of the address to begin with, modulo their number; tasks spread over the addresses by
                it.

        Raises:
            InputError: the password is not available in this process.
        """
        first %= len(self.addresses)
        addresses = self.addresses[first:] + self.addresses[:first]
        if self.password is None:
            return addresses
        secret = self.password.read()
        return tuple(replace(address, password=secret) for address in addresses)


def _from_urls(urls: str, values: OptionValues) -> tuple[ConnectionSettings, ...]:
    for name in _HOST_FORM:
        if values[name] is not None:
            raise InputError(
                f"options 'url' and {name!r} are both given, and the URL has it already: give one of them"
            )
    return tuple(_from_url(url, values) for url in _NEXT_URL.split(urls.strip()))


def _from_url(url: str, values: OptionValues) -> ConnectionSettings:
    settings = ConnectionSettings.from_uri(url)  # tells what is wrong with it, and shows no password
    userinfo, at, _ = url.partition("://")[2].rpartition("@")
    for name in _PASSWORDS:
        if values[name] is not None and ":" in userinfo:
            raise InputError(f"option {name!r}: the URL has a password already; take it out of the URL")
    if values["username"] is not None and at:
        raise InputError("option 'username': the URL has a user name already; give it once")
    given = "tls" if values["tls"] is not None else _given_tls_field(values)
    if given is None:
        return settings
    if settings.tls is None:
        if values["tls"] is False:
            return settings
        raise InputError(f"option {given!r}: {settings.masked_url} is without TLS; write amqps://")
    if values["tls"] is False:
        raise InputError(
            f"option 'tls' is false: {settings.masked_url} says TLS; write amqp://, or leave it out"
        )
    return replace(settings, tls=_tls(values, settings.tls))


def _from_host(values: OptionValues) -> ConnectionSettings:
    if values["host"] is None:
        raise InputError("option 'url' is missing: give amqp://user@host:5672/vhost, or host, port and vhost")
    if not _HOST.fullmatch(values["host"]):
        raise InputError(
            f"option 'host' is {shown(values['host'])}: give a name or an address alone; "
            "port, vhost and username are options of their own"
        )
    for_tls = _given_tls_field(values)
    if for_tls and not values["tls"]:
        raise InputError(f"option {for_tls!r} is for TLS: set tls to true, or leave it out")
    tls = _tls(values, TlsSettings()) if values["tls"] else None
    return ConnectionSettings(
        host=values["host"],
        port=values["port"] or (5671 if tls else 5672),
        vhost=values["vhost"] or "/",
        tls=tls,
    )


def _given_tls_field(values: OptionValues) -> str | None:
    return next((name for name in _TLS_FIELDS if values[name] is not None), None)


def _tls(values: OptionValues, tls: TlsSettings) -> TlsSettings:
    given: dict[str, Any] = {
        field: values[name] for name, field in _TLS_FIELDS.items() if values[name] is not None
    }
    return replace(tls, **given)


def _common(values: OptionValues) -> dict[str, Any]:
    heartbeat = values["heartbeat"]
    if heartbeat is not None and not (heartbeat == int(heartbeat) <= _MAX_HEARTBEAT_S):
        raise InputError(
            f"option 'heartbeat' is {heartbeat:g} seconds: AMQP allows whole seconds only, up to {_MAX_HEARTBEAT_S}"
        )
    connect = values["connectTimeout"]
    if connect is not None and not 0 < connect <= MAX_TIMEOUT_S:
        raise InputError(
            f"option 'connectTimeout' is {connect:g} seconds: give more than 0, and at most {MAX_TIMEOUT_S:.0f}"
        )
    return {
        "username": values["username"],
        "heartbeat_s": None if heartbeat is None else int(heartbeat),
        "connection_timeout_s": connect,
    }
