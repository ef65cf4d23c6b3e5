"""The options of ``format("rabbitmq")`` for queues, which are peeked at, and of `drain`: each is stated once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rabbit_chx.amqp.management_url import ManagementUrl
from rabbit_chx.amqp.names import check_name
from rabbit_chx.errors import InputError
from spark_connector.options.addresses import ADDRESS_OPTIONS, Brokers
from spark_connector.options.kinds import (
    COUNT,
    FLAG,
    SIZE,
    TEXT,
    Kind,
    one_of,
    option,
    options_of,
    read_options,
)
from spark_connector.options.read_options import COLUMNS, FURTHER_COLUMNS, MANAGEMENT
from spark_connector.spark_errors import raising_without_traceback

#: Offsets of Arrow's binary columns have 32 bits.
_MOST_BYTES = 1 << 30


def _queues(text: str) -> tuple[str, ...]:
    queues = tuple(name.strip() for name in text.split(","))
    for queue in queues:
        check_name(queue, "queue")
        if queues.count(queue) > 1:
            raise InputError(f"option 'queue' names {queue!r} twice: give each queue once")
    return queues


_QUEUES = Kind("names", _queues, "the name of a queue, or several with commas between them", ", ".join)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """Which queues to read, and how. It can be pickled, and shows no password. Sizes are in bytes.

    Attributes:
        brokers: the addresses to connect to, with user and password.
        include: the further columns.
    """

    brokers: Brokers
    mode: str | None = option(
        "mode",
        one_of("peek"),
        "`peek` looks at messages, and gives them back. To take messages out, use `spark_connector.drain`, which has no mode",
        heading="Queues",
    )
    queues: tuple[str, ...] = option(
        "queue", _QUEUES, "the queue to read, or several with commas between them", default=()
    )
    exchange: str | None = option(
        "exchange",
        TEXT,
        "instead: all queues that are bound to an exchange, or to exchanges behind it, such as slots; needs `managementUrl`. "
        "Streams among them are left out",
    )
    management_url: ManagementUrl | None = option(
        "managementUrl", MANAGEMENT, "the management API, which tells the bindings of `exchange`"
    )
    include_columns: tuple[str, ...] = option(
        "include", COLUMNS, "further columns: `exchange`, `message_id`, `properties`, `headers`", default=()
    )
    include_headers: bool = option(
        "includeHeaders", FLAG, "whether there is the column `headers`, as `include=headers`", default=False
    )
    max_rows: int = option(
        "maxRows",
        COUNT,
        "the most messages that are held at a time: of each queue with `peek`, which gives no more, and of all queues by a batch "
        "of `drain`",
        default=10_000,
    )
    max_bytes: int = option("maxBytes", SIZE, "the same in bytes, up to 1 GiB", default=64 << 20)
    allow_delivery_count: bool = option(
        "allowDeliveryCount",
        FLAG,
        "whether to peek at quorum queues before RabbitMQ 4.3, which count each look as a failed delivery; at the delivery limit they "
        "drop or dead-letter the message",
        default=False,
    )

    @classmethod
    @raising_without_traceback
    def parse(cls, texts: Mapping[str, str], *, peeks: bool) -> QueueOptions:
        """Return the options; errors have no traceback, which Spark might show with the password.

        Args:
            texts: what the user gave; names in any case.
            peeks: whether they are of a read, and not of `drain`.

        Raises:
            InputError: an option is unknown, missing, has a text that cannot be used, or contradicts another one.
        """
        values = read_options(QUEUE_OPTIONS, texts)
        options = cls(
            brokers=Brokers.of(values),
            **{name: values[option.name] for name, option in options_of(cls).items()},
        )
        _check(options, peeks=peeks)
        return options

    @property
    def include(self) -> tuple[str, ...]:
        """The further columns, in their order."""
        wanted = {*self.include_columns, *(("headers",) if self.include_headers else ())}
        return tuple(name for name in FURTHER_COLUMNS if name in wanted)


#: Every option of queues, in the order of the documents.
QUEUE_OPTIONS = (*ADDRESS_OPTIONS, *options_of(QueueOptions).values())


def is_of_queues(texts: Mapping[str, str]) -> bool:
    """Return whether options of a read ask for queues, and not for streams."""
    return not {"queue", "mode"}.isdisjoint(name.lower() for name in texts)


def _check(options: QueueOptions, *, peeks: bool) -> None:
    if peeks and options.mode is None:
        raise InputError(
            "option 'mode' is missing: spark.read with mode=peek looks at the messages of a queue and gives them back, and "
            "spark_connector.drain takes them out; a streaming query reads streams only, so call drain in a loop instead"
        )
    for name, given in (("mode", options.mode), ("allowDeliveryCount", options.allow_delivery_count)):
        if given and not peeks:
            raise InputError(f"option {name!r} is for spark.read, and drain takes messages out: leave it out")
    if not options.queues and options.exchange is None:
        raise InputError("option 'queue' is missing: name the queue to read, or give exchange")
    if options.queues and options.exchange is not None:
        raise InputError("options 'queue' and 'exchange' are both given: give one of them")
    if (options.exchange is None) != (options.management_url is None):
        names = ("exchange", "managementUrl")
        missing, there = names if options.exchange is None else names[::-1]
        raise InputError(f"option {there!r} needs the option {missing!r}: give both, or neither")
    if options.max_bytes > _MOST_BYTES:
        raise InputError(
            f"option 'maxBytes' is {options.max_bytes:,}: a batch of Arrow holds less than 2 GiB; give 1GiB at most"
        )
