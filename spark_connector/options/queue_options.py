"""The options of `drain`: each is stated once, as a field of `QueueOptions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rabbit_chx.amqp.names import check_name
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.errors import InputError
from spark_connector.options.addresses import ADDRESS_OPTIONS, Brokers
from spark_connector.options.kinds import (
    COUNT,
    FLAG,
    SIZE,
    TEXT,
    Kind,
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
    """Which queues to drain, and how. It can be pickled, and shows no password. Sizes are in bytes.

    Attributes:
        brokers: the addresses to connect to, with user and password.
        include: the further columns.
    """

    brokers: Brokers
    queues: tuple[str, ...] = option(
        "queue",
        _QUEUES,
        "the queue to drain, or several with commas between them",
        default=(),
        heading="Queues",
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
        "the most messages of a batch",
        default=10_000,
    )
    max_bytes: int = option(
        "maxBytes", SIZE, "about the most bytes of a batch, up to 1 GiB", default=64 << 20
    )

    @classmethod
    @raising_without_traceback
    def parse(cls, texts: Mapping[str, str]) -> QueueOptions:
        """Return the options; errors have no traceback, which might be shown with the password.

        Args:
            texts: what the user gave; names in any case.

        Raises:
            InputError: an option is unknown, missing, has a text that cannot be used, or contradicts another one.
        """
        values = read_options(QUEUE_OPTIONS, texts)
        options = cls(
            brokers=Brokers.of(values),
            **{name: values[option.name] for name, option in options_of(cls).items()},
        )
        _check(options)
        return options

    @property
    def include(self) -> tuple[str, ...]:
        """The further columns, in their order."""
        wanted = {*self.include_columns, *(("headers",) if self.include_headers else ())}
        return tuple(name for name in FURTHER_COLUMNS if name in wanted)


#: Every option of queues, in the order of the documents.
QUEUE_OPTIONS = (*ADDRESS_OPTIONS, *options_of(QueueOptions).values())


def _check(options: QueueOptions) -> None:
    if not options.queues and options.exchange is None:
        raise InputError("option 'queue' is missing: name the queue to drain, or give exchange")
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
