"""Every option of ``format("rabbitmq")``, once: parsing, error messages and docs/spark.md use this table."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, cast

from rabbit_chx.errors import InputError
from rabbit_chx.publishing import Limits, Retries
from spark_connector.options.option_values import (
    COUNT,
    FLAG,
    JSON_OBJECT,
    SECONDS,
    SIZE,
    TEXT,
    WHOLE,
    Kind,
    one_of,
)

__all__ = ["OPTIONS", "Option", "OptionValues", "read_options"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: the name in camelCase; users may write it in any case.
        kind: how its text is read.
        default_value: the value of an option that is not given; None if it has no default.
        meaning: one line for the documents.
        group: the heading of the option in the documents.
    """

    name: str
    kind: Kind
    default_value: Any
    meaning: str
    group: str

    @property
    def default(self) -> str | None:
        """The default as a user would write it; None if there is none."""
        return None if self.default_value is None else self.kind.write(self.default_value)


_BROKER, _ROWS, _PACE, _TROUBLE, _PLACE, _SEEING = (
    "Where to",
    "What is published",
    "How fast",
    "When something goes wrong",
    "Placement and prediction",
    "Seeing it",
)

OPTIONS: tuple[Option, ...] = (
    Option(
        "url",
        TEXT,
        None,
        "AMQP URI; several, with commas between them, are tried one after the other",
        _BROKER,
    ),
    Option("host", TEXT, None, "host name or address, instead of `url`", _BROKER),
    Option("port", COUNT, None, "with `host`: 5672, or 5671 with TLS, unless given", _BROKER),
    Option("vhost", TEXT, None, "with `host`: `/` unless given", _BROKER),
    Option("username", TEXT, None, "user name, if `url` has none: `guest` unless given", _BROKER),
    Option(
        "password", TEXT, None, "password, if `url` has none; tasks get it, and nothing shows it", _BROKER
    ),
    Option(
        "passwordEnv",
        TEXT,
        None,
        "environment variable of the executors with the password; put `PASSWORD` or `SECRET` in its name",
        _BROKER,
    ),
    Option("passwordFile", TEXT, None, "path of a file with the password on every executor", _BROKER),
    Option("tls", FLAG, None, "with `host`: whether to use TLS; a `url` says it with `amqps://`", _BROKER),
    Option(
        "tlsCaFile",
        TEXT,
        None,
        "PEM file of the trusted authorities; those of the system unless given",
        _BROKER,
    ),
    Option("tlsCertFile", TEXT, None, "PEM file of the client's certificate", _BROKER),
    Option("tlsKeyFile", TEXT, None, "PEM file of the key of that certificate", _BROKER),
    Option(
        "tlsVerify", FLAG, None, "whether the broker's certificate is checked: true unless given", _BROKER
    ),
    Option(
        "connectTimeout",
        SECONDS,
        None,
        "time in which a connection must open: 10s unless given here or in `url`",
        _BROKER,
    ),
    Option(
        "heartbeat",
        SECONDS,
        None,
        "heartbeat of the connection: what the broker proposes unless given; 0 for none",
        _BROKER,
    ),
    Option(
        "exchange", TEXT, None, "the exchange to publish to; it must exist, and nothing is declared", _ROWS
    ),
    Option("allowExchangeColumn", FLAG, False, "whether a column `exchange` may name it row by row", _ROWS),
    Option("routingKey", TEXT, None, "the routing key of every row, instead of a column `key`", _ROWS),
    Option(
        "ignoreUnknownColumns",
        FLAG,
        False,
        "whether columns that are not part of a message are ignored",
        _ROWS,
    ),
    Option(
        "mandatory",
        FLAG,
        True,
        "whether the broker returns messages that no queue takes; with false they are lost silently",
        _ROWS,
    ),
    Option("persistent", FLAG, True, "whether queues keep the messages when the broker restarts", _ROWS),
    Option(
        "headersConst",
        JSON_OBJECT,
        None,
        "headers of every message; a row's header of the same name wins",
        _ROWS,
    ),
    Option(
        "messageId",
        one_of("none", "column", "auto"),
        "none",
        "`column`: every row has a `message_id`; `auto`: made of write, batch, partition and row",
        _ROWS,
    ),
    Option(
        "writeName",
        TEXT,
        None,
        "the write in the ids of `messageId=auto`: with the same name a batch job that runs again makes the same ids. "
        "Without a name each write makes new ones",
        _ROWS,
    ),
    Option(
        "maxMessageBytes",
        SIZE,
        16 << 20,
        "a longer body is a bad row; 16 MiB is the limit of RabbitMQ 4",
        _ROWS,
    ),
    Option(
        "maxInFlight",
        COUNT,
        Limits.max_in_flight,
        "the most messages of a task that are sent and not yet confirmed",
        _PACE,
    ),
    Option("maxInFlightBytes", SIZE, Limits.max_in_flight_bytes, "the most bytes of such messages", _PACE),
    Option(
        "ordering",
        one_of("none", "per-key"),
        "none",
        "`per-key`: a refused message fails the task, since later ones would overtake it; refuses `spark.speculation`",
        _PACE,
    ),
    Option(
        "badRows",
        one_of("fail", "skip"),
        "fail",
        "what to do with rows that AMQP cannot carry, such as a null key or a value that is too long",
        _TROUBLE,
    ),
    Option(
        "onUnroutable",
        one_of("fail", "skip"),
        "fail",
        "what to do with rows that the broker returns because no queue takes them",
        _TROUBLE,
    ),
    Option(
        "confirmTimeout",
        SECONDS,
        Limits.confirm_timeout_s,
        "time without a sent byte or a confirm after which the connection is given up",
        _TROUBLE,
    ),
    Option(
        "blockedTimeout",
        SECONDS,
        Limits.blocked_timeout_s,
        "time for which the broker may block publishers, in all unless something moves between; 0 fails at once",
        _TROUBLE,
    ),
    Option(
        "reconnectTimeout",
        SECONDS,
        Retries.reconnect_timeout_s,
        "time to try to connect, at the start and after a loss; a confirm renews it; 0 gives up at once",
        _TROUBLE,
    ),
    Option(
        "maxReconnects",
        WHOLE,
        Retries.max_reconnects,
        "the most failed attempts in a row, as a further bound; 0 gives up at once",
        _TROUBLE,
    ),
    Option(
        "reconnectBackoff",
        SECONDS,
        Retries.backoff_s,
        "time before the first attempt; it doubles each time, up to 5 s",
        _TROUBLE,
    ),
    Option(
        "nackRetries",
        WHOLE,
        Retries.nack_retries,
        "the most repeats of a message that the broker refuses while it confirms no other",
        _TROUBLE,
    ),
    Option(
        "preflight",
        FLAG,
        True,
        "whether broker and exchange are checked before the first task, once for each write or stream",
        _TROUBLE,
    ),
    Option(
        "onSpeculation",
        one_of("warn", "fail", "ignore"),
        "warn",
        "what to do if `spark.speculation` is on, whose copies of tasks publish rows twice",
        _TROUBLE,
    ),
    Option(
        "ring",
        TEXT,
        None,
        "JSON of a `HashRing` or a `SlotTable`, or the path of a file with it; rows are then counted by queue",
        _PLACE,
    ),
    Option(
        "ringVia",
        TEXT,
        None,
        "instead of `ring`: the command prefix by which the driver reads the ring with `rabbitmqctl`, before the write, and again "
        "after it if connections were lost or `routing` is `client`: `docker exec NAME`, `kubectl exec POD --`; `env` on the "
        "broker's own machine",
        _PLACE,
    ),
    Option(
        "routing",
        one_of("exchange", "client"),
        "exchange",
        "`client`: straight to the queue that the ring names, through the default exchange; needs `ringVia`. See below what "
        "that gives up",
        _PLACE,
    ),
    Option(
        "localityMap",
        JSON_OBJECT,
        None,
        "`host:port` by queue, as `queue_addresses` finds it; a task whose rows go to one queue connects there first",
        _PLACE,
    ),
    Option(
        "connectionName",
        TEXT,
        "spark:{app}:{stage}.{partition}.{attempt}",
        "name of the connection in the management UI; `{write}` and `{batch}` are possible as well",
        _SEEING,
    ),
    Option(
        "reportPath",
        TEXT,
        None,
        "file or folder on the driver for the report as JSON; a stream needs a folder, which is created",
        _SEEING,
    ),
)


class OptionValues(TypedDict):
    """The value of every option by its name; None if it is not given and has no default."""

    url: str | None
    host: str | None
    port: int | None
    vhost: str | None
    username: str | None
    password: str | None
    passwordEnv: str | None
    passwordFile: str | None
    tls: bool | None
    tlsCaFile: str | None
    tlsCertFile: str | None
    tlsKeyFile: str | None
    tlsVerify: bool | None
    connectTimeout: float | None
    heartbeat: float | None
    exchange: str | None
    allowExchangeColumn: bool
    routingKey: str | None
    ignoreUnknownColumns: bool
    mandatory: bool
    persistent: bool
    headersConst: dict[str, Any] | None
    messageId: str
    writeName: str | None
    maxMessageBytes: int
    maxInFlight: int
    maxInFlightBytes: int
    ordering: str
    badRows: str
    onUnroutable: str
    confirmTimeout: float
    blockedTimeout: float
    reconnectTimeout: float
    maxReconnects: int | None
    reconnectBackoff: float
    nackRetries: int
    preflight: bool
    onSpeculation: str
    ring: str | None
    ringVia: str | None
    routing: str
    localityMap: dict[str, Any] | None
    connectionName: str
    reportPath: str | None


#: Options that Spark itself adds.
_INJECTED = frozenset({"path", "checkpointlocation"})
_KNOWN = {option.name.lower(): option for option in OPTIONS}


def read_options(options: Mapping[str, str]) -> OptionValues:
    """Return the value of every option; an empty text counts as not given.

    Args:
        options: texts by name; names in any case.

    Raises:
        InputError: an option is unknown, or its text cannot be read.
    """
    given = {name.lower(): text for name, text in options.items() if name.lower() not in _INJECTED}
    for name in given:
        if name not in _KNOWN:
            raise InputError(f"unknown option {name!r}: {_hint(name)}")
    values = {option.name: _value(option, given.get(option.name.lower())) for option in OPTIONS}
    return cast("OptionValues", values)


def _value(option: Option, text: str | None) -> Any:  # noqa: ANN401  # each option has its own type
    return option.kind.value(option.name, text) if text else option.default_value


def _hint(name: str) -> str:
    nearest = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.5)
    if nearest:
        return f"did you mean {_KNOWN[nearest[0]].name!r}?"
    return f"known are {', '.join(option.name for option in OPTIONS)}"
