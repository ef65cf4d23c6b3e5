"""The definition and the parser of an option, and the options of the address: every option comes from Spark as text."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rabbit_chx.amqp import ConnectionSettings, Secret, TlsSettings
from rabbit_chx.amqp.settings import (
    MAX_TIMEOUT_S,
    SCHEMES,
    ManagementUrl,
    Protocol,
    default_port,
    parse_stream_uri,
    parse_uri,
)
from rabbit_chx.checks import similar
from rabbit_chx.connection.tokens import Credentials, TokenSecret, token_command
from rabbit_chx.errors import InputError, UnreachableError
from rabbit_chx.options import COUNT, FLAG, SECONDS, TEXT, Option, ValueKind, one_of, options_of
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.key_map_json import key_map_from_json
from rabbit_chx.streams.nodes import node_addresses, stream_settings

_T = TypeVar("_T")

_SHOWN = 60
#: Names in lower case that Spark itself puts among the options of a reader, a writer or a query (3.5 to 4.3): DataFrameReader.load,
#: DataFrameWriter.save, DataStreamWriter.start and queryName, DataSourceUtils.PARTITIONING_COLUMNS_KEY.
_OF_CALLS = ("path", "paths", "checkpointlocation", "queryname", "__partition_columns")
#: The reserved properties of a table, in TableCatalog.java.
_RESERVED = "location is_managed_location external table_type comment collation provider owner"
#: Those of a table: DataFrameWriter.saveAsTable, the storage properties of the session catalog.
_OF_TABLES = ("__v1_save_as_table_overwrite", "serialization.format", *_RESERVED.split())
ADDED_BY_SPARK = (*_OF_CALLS, *_OF_TABLES)
#: TableCatalog.OPTION_PREFIX: Spark adds each option of a table a second time, behind this prefix.
_TABLE_OPTION = "option."


#: Options of Spark's Kafka source and sink, in lower case, and the options here for the same.
_OF_KAFKA = {
    "subscribe": ("stream", "queue", "exchange"),
    "subscribepattern": ("superStream", "exchange"),
    "assign": ("stream", "queue", "exchange"),
    "topic": ("exchange", "stream"),
    "kafka.bootstrap.servers": ("url",),
    "startingoffsetsbytimestamp": ("startingTimestamp",),
    "endingoffsetsbytimestamp": ("endingTimestamp",),
    "kafka.transactional.id": ("appId",),
    "kafka.compression.type": ("compression",),
    "kafka.client.id": ("connectionName",),
    "maxrecordsperpartition": ("minPartitions",),
}


def options_from(of: Callable[..., _T], texts: Mapping[str, str], *, streams: bool | None = False) -> _T:
    """Return the options of a class, whose `brokers` are those of the stream protocol if `streams`; None: if other options need them."""
    own = options_of(of)
    values = read_options((*ADDRESS_OPTIONS, *own.values()), texts)
    if streams is None:
        streams = bool(values["superStream"] or values["delivery"])
    brokers = Brokers.of(values, streams=streams)
    return of(brokers=brokers, **{name: values[option.spark_name] for name, option in own.items()})


def by_lower_name(texts: Mapping[str, str]) -> dict[str, str]:
    """Return options by their names in lower case; an InputError for two names of one option, which Spark does not distinguish."""
    named: dict[str, str] = {}
    for name in texts:
        check_exclusive(**{named.setdefault(name.lower(), name): True, name: True})
    return {name.lower(): text for name, text in texts.items()}


def read_options(known: Iterable[Option], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of every option by its name; InputError if one is unknown or cannot be parsed."""
    by_name = {option.spark_name.lower(): option for option in known}
    given = by_lower_name(texts)
    text_of = {
        name: text
        for name, text in given.items()
        if name not in ADDED_BY_SPARK and not name.startswith(_TABLE_OPTION)
    }
    is_read = "stream" in by_name
    _check_path(given, is_read=is_read)
    if not text_of:  # tested with PySpark 4.3.0
        remedy = (
            "read of the table: use CREATE TEMPORARY VIEW name USING rabbitmq OPTIONS (...)"
            if is_read
            else "INSERT into the table: write with df.write.format('rabbitmq').options(...).mode('append').save(), where df may be "
            "spark.sql('SELECT ...')"
        )
        raise InputError(
            f"option 'url' is missing, as all options are: pass url. Spark passes the options of CREATE TABLE to no {remedy}"
        )
    for name in text_of:
        if name not in by_name:
            raise InputError(f"unknown option {name!r}: {_hint(name, by_name)}")
    return {option.spark_name: read_option(option, text_of.get(name)) for name, option in by_name.items()}


def read_option(option: Option, text: str | None) -> Any:  # each option has its own type
    """Return the value of a text, or the default for an empty one; InputError if it cannot be parsed."""
    if not text:
        return option.default
    try:
        return option.kind.value_of(text)
    except InputError:
        raise
    except ValueError:
        remedy = option.kind.texts or option.kind.remedy
        raise InputError(f"option {option.spark_name!r} is {quote_text(text)}: pass {remedy}") from None


def _check_path(given: Mapping[str, str], *, is_read: bool) -> None:
    """Raise an InputError for a path of ``save``, ``start`` or ``load``; that of a table is among other options of Spark."""
    path = given.get("path") or given.get("paths") or ""
    is_of_table = any(name in _OF_TABLES or name.startswith(_TABLE_OPTION) for name in given)
    if path and not is_of_table:
        if is_read:
            option = "stream"
            calls = "load"
        else:
            option = "queue"
            calls = "save, start"
        raise InputError(
            f"the path {quote_text(path)} ({calls}) names nothing on a broker: leave it out, and pass the option {option!r}"
        )


def _hint(name: str, known: Mapping[str, Option]) -> str:
    same = [known[other.lower()].spark_name for other in _OF_KAFKA.get(name, ()) if other.lower() in known]
    if same:
        return f"{name!r} of Kafka is {same[0]!r} here"
    if name.startswith(("kafka.", "groupid", "minoffsetspertrigger", "maxtriggerdelay", "fetchoffset")):
        return "it is one of Kafka, and has no counterpart here: leave it out"
    if nearest := similar(name, known, 0.5):
        return f"did you mean {known[nearest].spark_name!r}?"
    from difflib import get_close_matches  # only errors need it

    nearest_three = get_close_matches(name, known, 3, 0.0)
    return f"the nearest are {', '.join(known[near].spark_name for near in nearest_three)}"


def check_only(known: Iterable[Option], texts: Mapping[str, str], unfit: Mapping[str, str]) -> None:
    """Raise an InputError if an option does not apply to this write or read; `unfit` has the end of the message by `Option.only`."""
    given = {name.lower() for name, text in texts.items() if text}
    for known_option in known:
        if known_option.only in unfit and known_option.spark_name.lower() in given:
            raise InputError(f"option {known_option.spark_name!r}{unfit[known_option.only]}")


def check_exclusive(**values: object) -> list[str]:
    """Return the names of the options that are given; InputError if there are two."""
    given = [name for name, value in values.items() if value not in (None, "", ())]
    if len(given) > 1:
        raise InputError(f"options {given[0]!r} and {given[1]!r} are both given: pass one of them")
    return given


def quote_text(text: str) -> str:
    """Return the text of an option for a message: the beginning of a long one, nothing of one that may contain a password."""
    if "@" in text:
        return "a text with an '@', which is not shown"
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def either(no: str, yes: str) -> ValueKind:
    """Return the kind of an option that is one of two words; the value is true for the second."""
    words = one_of(no, yes)
    return ValueKind(
        words.text_label,
        parse=lambda text: words.value_of(text) == yes,
        write=lambda value: yes if value else no,
        texts=words.remedy,
    )


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError from None
    if not isinstance(value, dict):
        raise ValueError  # noqa: TRY004  # `read_option` expects this one
    return value


def _ring(text: str) -> KeyMap:
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text()
        except (OSError, ValueError) as cause:
            raise InputError(
                f"option 'ring' is {quote_text(text)}: it is not a JSON object, and cannot be read as a file "
                f"({type(cause).__name__}): pass ring.to_json(), or the path of a file with it"
            ) from None
    try:
        ring = key_map_from_json(text)
    except InputError as cause:
        raise InputError(f"option 'ring': {cause}") from None
    if not ring.destinations:
        raise InputError(
            "option 'ring' has no buckets or bindings, or its slots no queue, so it predicts nothing: bind queues first, or leave it out"
        )
    return ring


JSON_OBJECT = ValueKind("JSON object", parse=_json_object, write=json.dumps, texts="a JSON object")
NODE_ADDRESSES = Option(
    "addresses",
    replace(JSON_OBJECT, parse=lambda text: node_addresses(_json_object(text))),
    'reachable addresses by advertised ones: `{"rabbit-0:5552": "127.0.0.1:15552"}`',
    {},
    spark="addresses",
)
MANAGEMENT_URL = ValueKind("URL", parse=ManagementUrl.of)
RING = replace(TEXT, parse=_ring)


# fmt: off
ADDRESS_OPTIONS = (
    Option(
        "url", TEXT,
        "AMQP URI, or for streams `rabbitmq-stream://user@host:5552/vhost`; several, separated by commas, are tried in order",
        heading="Where to",
    ),
    Option("host", TEXT, "instead of `url`: host name or address"),
    Option("port", COUNT, "with `host`; by default 5672, with TLS 5671; for streams 5552 and 5551"),
    Option("vhost", TEXT, "with `host`; by default `/`"),
    Option("username", TEXT, "if `url` has none; by default `guest`"),
    Option("password", TEXT, "if `url` has none; see [Secrets](../spark/write.md#secrets)"),
    Option("passwordEnv", TEXT, "environment variable of the executors with the password"),
    Option("passwordFile", TEXT, "path of a file with the password on every executor"),
    Option("tokenCommand", TEXT, "command on every executor that prints an [OAuth 2 token](../operate/security.md#oauth-2-tokens)"),
    Option("tls", FLAG, "with `host`: use TLS; in a `url` write `amqps://` or `rabbitmq-stream+tls://`"),
    Option("tlsCaFile", TEXT, "PEM file of the trusted authorities; by default those of the system"),
    Option("tlsCertFile", TEXT, "PEM file of the client's certificate"),
    Option("tlsKeyFile", TEXT, "PEM file of its key"),
    Option("tlsVerify", FLAG, "verify the broker's certificate; by default true"),
    Option("connectTimeout", SECONDS, "time to open a connection; by default that of `url`, or 10s"),
    Option("heartbeat", SECONDS, "heartbeat interval; by default the broker's; 0 disables it"),
)
# fmt: on

_log = logging.getLogger(__name__)
_NEXT_URL = re.compile(r"\s*,\s*(?=(?:amqps?|rabbitmq-stream(?:\+tls)?)://)", re.IGNORECASE)
_HOST = re.compile(r"[^\s:/@?#%\[\]]+|[0-9A-Fa-f.]*:[0-9A-Fa-f.:]+")  # a name, an address, or an IPv6 address
_MAX_HEARTBEAT_S = 65_535
_COMMAND_OPTION = "option 'tokenCommand'"
_PASSWORDS = ("password", "passwordEnv", "passwordFile", "tokenCommand")
#: Options of TLS, and the fields of `TlsSettings` that they set.
_TLS_FIELDS = {
    "tlsCaFile": "ca_file",
    "tlsCertFile": "cert_file",
    "tlsKeyFile": "key_file",
    "tlsVerify": "verify",
}


@dataclass(frozen=True, slots=True)
class PasswordSource:
    """The variable (``passwordEnv``), file (``passwordFile``) or command (``tokenCommand``) from which a task gets the password."""

    option: str
    name: str

    def token_command(self) -> Credentials:
        """Return the function that runs the command."""
        return token_command(self.name, _COMMAND_OPTION)

    def read(self) -> Secret:
        """Return the password on this machine: a token that is renewed, or text without line breaks at its end."""
        if self.option == "tokenCommand":
            return TokenSecret(self.token_command(), _COMMAND_OPTION)
        if self.option == "passwordEnv":
            password = os.environ.get(self.name, "").rstrip("\r\n")
            if not password:
                raise InputError(
                    f"option 'passwordEnv': the environment variable {self.name!r} is not set in this process: "
                    "set it where the executors start, or pass passwordFile"
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
        addresses: the settings of each address; without the password if `password` is set.
        password: the source of the password; None if the settings contain it.
        given: the addresses as they were given: for `streams` they may be AMQP URIs.
    """

    addresses: tuple[ConnectionSettings, ...]
    password: PasswordSource | None = None
    given: tuple[ConnectionSettings, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any], *, streams: bool = False) -> Brokers:
        """Return the addresses of the options; for `streams` (the stream protocol) the port of an AMQP URI is ignored."""
        passwords = check_exclusive(**{name: values[name] for name in _PASSWORDS})
        given = (_from_host(values, streams=streams),) if values["url"] is None else _from_urls(values)
        settings = _of_all_addresses(values)
        given = tuple(replace(address, **settings) for address in given)
        addresses = tuple(map(stream_settings, given)) if streams else given
        if len({address.protocol for address in addresses}) > 1:
            raise InputError(
                "option 'url' has addresses of AMQP and of streams: pass rabbitmq-stream:// for all of them, or for none"
            )
        elsewhere = [PasswordSource(name, values[name]) for name in passwords if name != "password"]
        if "tokenCommand" in passwords:
            elsewhere[0].token_command()  # it is malformed here already
        return cls(addresses, next(iter(elsewhere), None), given)

    @property
    def by_amqp(self) -> Brokers:
        """The same hosts for AMQP: at the ports of AMQP URIs, else at its default ports."""
        return replace(self, addresses=tuple(one.by("amqp") for one in self.given))

    @property
    def masked_url(self) -> str:
        """The addresses without passwords, for messages."""
        return ", ".join(address.masked_url for address in self.addresses)

    def resolve(self, first: int = 0) -> tuple[ConnectionSettings, ...]:
        """Return the settings with the password, beginning with the address `first` (modulo their number), which spreads tasks."""
        first %= len(self.addresses)
        addresses = self.addresses[first:] + self.addresses[:first]
        if self.password is None:
            return addresses
        secret = self.password.read()
        return tuple(replace(address, password=secret) for address in addresses)

    def call_first_reachable(self, ask: Callable[[ConnectionSettings], _T]) -> _T:
        """Return the result of the first address that can be reached, or raise the UnreachableError of the last one."""
        problem: UnreachableError | None = None
        for settings in self.resolve():
            try:
                return ask(settings)
            except UnreachableError as cause:
                _log.warning("%s", cause)
                problem = cause
        raise problem or UnreachableError("there is no address to connect to")


def _from_urls(values: Mapping[str, Any]) -> tuple[ConnectionSettings, ...]:
    for name in ("host", "port", "vhost"):
        check_exclusive(url=values["url"], **{name: values[name]})
    return tuple(_from_url(url, values) for url in _NEXT_URL.split(values["url"].strip()))


def _from_url(url: str, values: Mapping[str, Any]) -> ConnectionSettings:
    parse = parse_stream_uri if url.lower().startswith("rabbitmq-stream") else parse_uri
    settings = parse(url)
    userinfo, at, _ = url.partition("://")[2].rpartition("@")
    for name in _PASSWORDS:
        if values[name] is not None and ":" in userinfo:
            raise InputError(f"option {name!r}: the URL has a password already; take it out of the URL")
    if values["username"] is not None and at:
        raise InputError("option 'username': the URL has a user name already; pass it once")
    if values["tls"] is None and not _tls_options(values):
        return settings
    plain, with_tls = SCHEMES[settings.protocol]
    if settings.tls is None:
        if values["tls"] is False:
            return settings
        option = "tls" if values["tls"] else _tls_options(values)[0]
        raise InputError(f"option {option!r}: {settings.masked_url} is without TLS; write {with_tls}://")
    if values["tls"] is False:
        raise InputError(
            f"option 'tls' is false: {settings.masked_url} requires TLS; write {plain}://, or remove the option"
        )
    return replace(settings, tls=_tls(values, settings.tls))


def _from_host(values: Mapping[str, Any], *, streams: bool) -> ConnectionSettings:
    if values["host"] is None:
        raise InputError("option 'url' is missing: pass amqp://user@host:5672/vhost, or host, port and vhost")
    if not _HOST.fullmatch(values["host"]):
        raise InputError(
            f"option 'host' is {quote_text(values['host'])}: pass a name or an address alone; "
            "port, vhost and username are separate options"
        )
    for_tls = _tls_options(values)
    if for_tls and not values["tls"]:
        raise InputError(f"option {for_tls[0]!r} is for TLS: set tls to true, or leave it out")
    tls = _tls(values, TlsSettings()) if values["tls"] else None
    protocol: Protocol = "stream" if streams else "amqp"
    return ConnectionSettings(
        host=values["host"],
        port=values["port"] or default_port(protocol, tls=tls is not None),
        vhost=values["vhost"] or "/",
        tls=tls,
        protocol=protocol,
    )


def _tls_options(values: Mapping[str, Any]) -> list[str]:
    return [name for name in _TLS_FIELDS if values[name] is not None]


def _tls(values: Mapping[str, Any], tls: TlsSettings) -> TlsSettings:
    return replace(tls, **{_TLS_FIELDS[name]: values[name] for name in _tls_options(values)})


def _of_all_addresses(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that options set for every address."""
    heartbeat = values["heartbeat"]
    connect = values["connectTimeout"]
    if heartbeat is not None and not (heartbeat == int(heartbeat) <= _MAX_HEARTBEAT_S):
        raise InputError(
            f"option 'heartbeat' is {heartbeat:g} seconds: AMQP allows whole seconds only, up to {_MAX_HEARTBEAT_S}"
        )
    if connect is not None and not 0 < connect <= MAX_TIMEOUT_S:
        raise InputError(
            f"option 'connectTimeout' is {connect:g} seconds: pass more than 0, and at most {MAX_TIMEOUT_S:.0f}"
        )
    settings = {
        "username": values["username"],
        "password": values["password"] and Secret(values["password"]),
        "heartbeat_s": None if heartbeat is None else int(heartbeat),
        "connection_timeout_s": connect,
    }
    return {name: value for name, value in settings.items() if value is not None}
