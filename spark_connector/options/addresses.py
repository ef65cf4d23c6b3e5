"""Where to connect, and as whom: the options become settings. The password is read where it is needed."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rabbit_chx.amqp import ConnectionSettings, Secret, TlsSettings
from rabbit_chx.amqp.settings import MAX_TIMEOUT_S, parse_stream_uri, parse_uri
from rabbit_chx.errors import InputError, UnreachableError
from spark_connector.options.kinds import COUNT, FLAG, SECONDS, TEXT, Option, check_exclusive, shown

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

ADDRESS_OPTIONS = (
    Option(
        "url",
        TEXT,
        "AMQP URI, or for streams `rabbitmq-stream://user@host:5552/vhost`; several, with commas between them, are tried one after the other",
        heading="Where to",
    ),
    Option("host", TEXT, "host name or address, instead of `url`"),
    Option("port", COUNT, "with `host`: 5672, or 5671 with TLS, unless given; for streams 5552 and 5551"),
    Option("vhost", TEXT, "with `host`: `/` unless given"),
    Option("username", TEXT, "user name, if `url` has none: `guest` unless given"),
    Option("password", TEXT, "password, if `url` has none; tasks get it, and nothing shows it"),
    Option(
        "passwordEnv",
        TEXT,
        "environment variable of the executors with the password; put `PASSWORD` or `SECRET` in its name",
    ),
    Option("passwordFile", TEXT, "path of a file with the password on every executor"),
    Option(
        "tls",
        FLAG,
        "with `host`: whether to use TLS; a `url` says it with `amqps://` or `rabbitmq-stream+tls://`",
    ),
    Option("tlsCaFile", TEXT, "PEM file of the trusted authorities; those of the system unless given"),
    Option("tlsCertFile", TEXT, "PEM file of the client's certificate"),
    Option("tlsKeyFile", TEXT, "PEM file of the key of that certificate"),
    Option("tlsVerify", FLAG, "whether the broker's certificate is checked: true unless given"),
    Option(
        "connectTimeout", SECONDS, "time in which a connection must open: 10s unless given here or in `url`"
    ),
    Option(
        "heartbeat", SECONDS, "heartbeat of the connection: what the broker proposes unless given; 0 for none"
    ),
)

_NEXT_URL = re.compile(r"\s*,\s*(?=(?:amqps?|rabbitmq-stream(?:\+tls)?)://)", re.IGNORECASE)
_HOST = re.compile(r"[^\s:/@?#%\[\]]+|[0-9A-Fa-f.]*:[0-9A-Fa-f.:]+")  # a name, an address, or an IPv6 address
_MAX_HEARTBEAT_S = 65_535
_PASSWORDS = ("password", "passwordEnv", "passwordFile")
#: Options of TLS, and the fields of `TlsSettings` that they set.
_TLS_FIELDS = {
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
            password = os.environ.get(self.name)
            if not password:
                raise InputError(
                    f"option 'passwordEnv': the environment variable {self.name!r} is not set in this process: "
                    "set it where the executors start, or give passwordFile"
                )
            return Secret(password)
        try:
            # Blanks may be part of the password.
            password = Path(self.name).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as cause:
            raise InputError(
                f"option 'passwordFile': {self.name!r} cannot be read here ({type(cause).__name__}): "
                "put the file on every executor, as UTF-8"
            ) from None
        if not password:
            raise InputError(f"option 'passwordFile': {self.name!r} is empty: write the password into it")
        return Secret(password)


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
    def of(cls, values: Mapping[str, Any], *, streams: bool = False) -> Brokers:
        """Return the addresses that the options name.

        Args:
            values: the values of all options.
            streams: whether they are for the stream protocol; an AMQP URI is then that of the same host, whose port is passed over.

        Raises:
            InputError: options contradict each other, or neither `url` nor `host` is given.
        """
        passwords = check_exclusive(**{name: values[name] for name in _PASSWORDS})
        addresses = (
            (_from_host(values, streams=streams),)
            if values["url"] is None
            else _from_urls(values, streams=streams)
        )
        settings = _of_all_addresses(values)
        addresses = tuple(replace(address, **settings) for address in addresses)
        if len({address.protocol for address in addresses}) > 1:
            raise InputError(
                "option 'url' has addresses of AMQP and of streams: give rabbitmq-stream:// for all of them, or for none"
            )
        elsewhere = [PasswordSource(name, values[name]) for name in passwords if name != "password"]
        return cls(addresses, *elsewhere)

    @property
    def for_streams(self) -> bool:
        """Whether the addresses are those of the stream protocol."""
        return self.addresses[0].protocol == "stream"

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

    def first_that_answers(self, ask: Callable[[ConnectionSettings], _T]) -> _T:
        """Return the result of the first address that can be reached.

        Args:
            ask: connects to an address.

        Raises:
            UnreachableError: no address answers; that of the last one.
        """
        problem: UnreachableError | None = None
        for settings in self.resolve():
            try:
                return ask(settings)
            except UnreachableError as cause:
                _log.warning("%s", cause)
                problem = cause
        raise problem or UnreachableError("there is no address to connect to")


def _from_urls(values: Mapping[str, Any], *, streams: bool) -> tuple[ConnectionSettings, ...]:
    for name in ("host", "port", "vhost"):
        if values[name] is not None:
            raise InputError(
                f"options 'url' and {name!r} are both given, and the URL has it already: give one of them"
            )
    return tuple(_from_url(url, values, streams=streams) for url in _NEXT_URL.split(values["url"].strip()))


def _from_url(url: str, values: Mapping[str, Any], *, streams: bool) -> ConnectionSettings:
    # Both tell what is wrong with it, and show no password.
    parse = parse_stream_uri if streams or url.lower().startswith("rabbitmq-stream") else parse_uri
    settings = parse(url)
    userinfo, at, _ = url.partition("://")[2].rpartition("@")
    for name in _PASSWORDS:
        if values[name] is not None and ":" in userinfo:
            raise InputError(f"option {name!r}: the URL has a password already; take it out of the URL")
    if values["username"] is not None and at:
        raise InputError("option 'username': the URL has a user name already; give it once")
    if values["tls"] is None and not _tls_options(values):
        return settings
    plain, with_tls = (
        ("rabbitmq-stream", "rabbitmq-stream+tls") if settings.protocol == "stream" else ("amqp", "amqps")
    )
    if settings.tls is None:
        if values["tls"] is False:
            return settings
        option = "tls" if values["tls"] else _tls_options(values)[0]
        raise InputError(f"option {option!r}: {settings.masked_url} is without TLS; write {with_tls}://")
    if values["tls"] is False:
        raise InputError(
            f"option 'tls' is false: {settings.masked_url} says TLS; write {plain}://, or leave it out"
        )
    return replace(settings, tls=_tls(values, settings.tls))


def _from_host(values: Mapping[str, Any], *, streams: bool) -> ConnectionSettings:
    if values["host"] is None:
        raise InputError("option 'url' is missing: give amqp://user@host:5672/vhost, or host, port and vhost")
    if not _HOST.fullmatch(values["host"]):
        raise InputError(
            f"option 'host' is {shown(values['host'])}: give a name or an address alone; "
            "port, vhost and username are options of their own"
        )
    for_tls = _tls_options(values)
    if for_tls and not values["tls"]:
        raise InputError(f"option {for_tls[0]!r} is for TLS: set tls to true, or leave it out")
    tls = _tls(values, TlsSettings()) if values["tls"] else None
    plain_port, tls_port = (5552, 5551) if streams else (5672, 5671)
    return ConnectionSettings(
        host=values["host"],
        port=values["port"] or (tls_port if tls else plain_port),
        vhost=values["vhost"] or "/",
        tls=tls,
        protocol="stream" if streams else "amqp",
    )


def _tls_options(values: Mapping[str, Any]) -> list[str]:
    return [name for name in _TLS_FIELDS if values[name] is not None]


def _tls(values: Mapping[str, Any], tls: TlsSettings) -> TlsSettings:
    return replace(tls, **{_TLS_FIELDS[name]: values[name] for name in _tls_options(values)})


def _of_all_addresses(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that options give to every address."""
    heartbeat, connect = values["heartbeat"], values["connectTimeout"]
    if heartbeat is not None and not (heartbeat == int(heartbeat) <= _MAX_HEARTBEAT_S):
        raise InputError(
            f"option 'heartbeat' is {heartbeat:g} seconds: AMQP allows whole seconds only, up to {_MAX_HEARTBEAT_S}"
        )
    if connect is not None and not 0 < connect <= MAX_TIMEOUT_S:
        raise InputError(
            f"option 'connectTimeout' is {connect:g} seconds: give more than 0, and at most {MAX_TIMEOUT_S:.0f}"
        )
    settings = {
        "username": values["username"],
        "password": values["password"] and Secret(values["password"]),
        "heartbeat_s": None if heartbeat is None else int(heartbeat),
        "connection_timeout_s": connect,
    }
    return {name: value for name, value in settings.items() if value is not None}
