"""Where to connect, and as whom: from options to settings, with the password looked up where it is needed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp import ConnectionSettings, Secret, TlsSettings
from rabbit_chx.amqp.settings import MAX_TIMEOUT_S
from rabbit_chx.errors import InputError
from spark_connector.options.option_values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Brokers", "PasswordSource"]

_NEXT_URL = re.compile(r"\s*,\s*(?=amqps?://)", re.IGNORECASE)
_HOST = re.compile(r"[^\s:/@?#%\[\]]+|[0-9A-Fa-f.]*:[0-9A-Fa-f.:]+")  # a name, an address, or an IPv6 address
_MAX_HEARTBEAT_S = 65_535
_HOST_FORM = ("host", "port", "vhost")
_PASSWORDS = ("password", "passwordEnv", "passwordFile")
_TLS_FILES = ("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsVerify")


@dataclass(frozen=True, slots=True)
class PasswordSource:
    """Where a task finds the password.

    Attributes:
        option: ``passwordEnv`` or ``passwordFile``.
        name: of the variable, or the path of the file.
    """

    option: str
    name: str

    def read(self) -> Secret:
        """The password, as it is on this machine now; of a file, its UTF-8 text without the line's end.

        Raises:
            InputError: it is not there, or empty.
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
            # Blanks may be part of it.
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
    """The addresses to try, in turn.

    Attributes:
        addresses: settings that lack the password where `password` says where it is.
        password: None where the settings have it already.
    """

    addresses: tuple[ConnectionSettings, ...]
    password: PasswordSource | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Brokers:
        """Read the options of the group.

        Raises:
            InputError: they contradict each other, or one is missing.
        """
        passwords = [name for name in _PASSWORDS if values[name] is not None]
        if len(passwords) > 1:
            raise InputError(f"options {passwords[0]!r} and {passwords[1]!r}: give one of them")
        addresses = _from_urls(values) if values["url"] is not None else (_from_host(values),)
        changed = {name: value for name, value in _common(values).items() if value is not None}
        if values["password"] is not None:
            changed["password"] = Secret(values["password"])
        addresses = tuple(replace(address, **changed) for address in addresses)
        if passwords and passwords[0] != "password":
            return cls(addresses, PasswordSource(passwords[0], values[passwords[0]]))
        return cls(addresses)

    @property
    def masked_url(self) -> str:
        """The addresses without passwords, for messages."""
        return ", ".join(address.masked_url for address in self.addresses)

    def resolve(self, first: int = 0) -> tuple[ConnectionSettings, ...]:
        """The settings with the password, beginning with the address `first`, so that tasks spread over them.

        Raises:
            InputError: the password is not to be had in this process.
        """
        first %= len(self.addresses)
        addresses = self.addresses[first:] + self.addresses[:first]
        if self.password is None:
            return addresses
        secret = self.password.read()
        return tuple(replace(address, password=secret) for address in addresses)


def _from_urls(values: Mapping[str, Any]) -> tuple[ConnectionSettings, ...]:
    for name in _HOST_FORM:
        if values[name] is not None:
            raise InputError(f"options 'url' and {name!r}: the URL has it already; give the one or the other")
    return tuple(_from_url(url, values) for url in _NEXT_URL.split(values["url"].strip()))


def _from_url(url: str, values: Mapping[str, Any]) -> ConnectionSettings:
    settings = ConnectionSettings.from_uri(url)  # tells what is wrong with it, and shows no password
    userinfo, at, _ = url.partition("://")[2].rpartition("@")
    for name in _PASSWORDS:
        if values[name] is not None and ":" in userinfo:
            raise InputError(f"option {name!r}: the URL has a password already; take it out of the URL")
    if values["username"] is not None and at:
        raise InputError("option 'username': the URL has a user name already; give it once")
    given = next((name for name in ("tls", *_TLS_FILES) if values[name] is not None), None)
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


def _from_host(values: Mapping[str, Any]) -> ConnectionSettings:
    if values["host"] is None:
        raise InputError("option 'url' is missing: give amqp://user@host:5672/vhost, or host, port and vhost")
    if not _HOST.fullmatch(values["host"]):
        raise InputError(
            f"option 'host' is {shown(values['host'])}: give a name or an address alone; "
            "port, vhost and username are options of their own"
        )
    files = next((name for name in _TLS_FILES if values[name] is not None), None)
    if files and not values["tls"]:
        raise InputError(f"option {files!r} is for TLS: set tls to true, or leave it out")
    tls = _tls(values, TlsSettings()) if values["tls"] else None
    return ConnectionSettings(
        host=values["host"],
        port=values["port"] or (5671 if tls else 5672),
        vhost=values["vhost"] or "/",
        tls=tls,
    )


def _tls(values: Mapping[str, Any], tls: TlsSettings) -> TlsSettings:
    names = {
        "tlsCaFile": "ca_file",
        "tlsCertFile": "cert_file",
        "tlsKeyFile": "key_file",
        "tlsVerify": "verify",
    }
    given: dict[str, Any] = {field: values[name] for name, field in names.items() if values[name] is not None}
    return replace(tls, **given)


def _common(values: Mapping[str, Any]) -> dict[str, Any]:
    heartbeat = values["heartbeat"]
    if heartbeat is not None and not (heartbeat == int(heartbeat) <= _MAX_HEARTBEAT_S):
        raise InputError(
            f"option 'heartbeat' is {heartbeat:g} seconds: AMQP has whole ones only, up to {_MAX_HEARTBEAT_S}"
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
