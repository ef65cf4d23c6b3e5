"""The load of the slots of a live exchange: from a file of keys, or from traced traffic."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rabbit_chx.analysis import Hashing, SlotLoad
from rabbit_chx.broker.live_exchange import read_exchange, read_ring, read_slots
from rabbit_chx.cli.arguments import FIELD_TYPES
from rabbit_chx.cli.input_files import claim_stdin, file_name, read_batches
from rabbit_chx.cli.live_options import LiveBroker, trace_options, traced_messages
from rabbit_chx.cli.notation import plural
from rabbit_chx.cli.option_groups import Command, HashedKeys, with_options
from rabbit_chx.cli.rehearse_sample import traced_sample
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import ChannelClosedError, InputError, MismatchError
from rabbit_chx.rendering import sign_of_life
from rabbit_chx.routing import ConsistentHashExchange, Place, SlotTable
from rabbit_chx.topology.reading import PublishRates, rates_read

if TYPE_CHECKING:
    from rabbit_chx.amqp.fields import FieldType
    from rabbit_chx.cli.outcome import Outcome
    from rabbit_chx.topology.upgrade_exchange import SampledMessage

__all__ = ["AskedLoad", "LiveTable", "SlotSample", "live_table", "load_options"]

_STDIN = "-"
_TRACED = "traced traffic"


@dataclass(frozen=True, slots=True)
class LiveTable:
    """The slots of a live exchange.

    Attributes:
        exchange: the exchange's name.
        vhost: its vhost.
        arguments: its arguments that decide what is hashed.
        slots: its slots, and who has which.
        rates: what is published to it and its queues.
    """

    exchange: str
    vhost: str
    arguments: Mapping[str, str]
    slots: SlotTable
    rates: PublishRates

    def hashing(self, field_type: FieldType | None) -> Hashing:
        """Return what the exchange hashes.

        Args:
            field_type: the wire type of keys where it hashes a header.

        Raises:
            InputError: there is a type, and the exchange hashes no header.
        """
        header = self.arguments.get("hash-header")
        if field_type is not None and header is None:
            raise InputError(
                f"--type {field_type} is the type of a header, and exchange {self.exchange!r} hashes none: leave it out"
            )
        return Hashing(header, self.arguments.get("hash-property"), field_type=field_type)


def live_table(broker: LiveBroker, exchange: str) -> LiveTable:
    """Read the slots of a live exchange.

    Args:
        broker: the broker.
        exchange: the exchange's name.

    Raises:
        InputError: there is no management URL.
        MismatchError: the exchange has no slots, or a slot has two queues.
        RabbitChxError: the broker cannot be asked.
    """
    management = broker.management("only the management API tells which queue has which slot")
    vhost = broker.settings.vhost
    live = read_exchange(management, vhost, exchange)
    slots = read_slots(management, live, read_ring(live, broker.ring_source)).table()
    if not slots.slots:
        raise MismatchError(
            f"exchange {exchange!r} in vhost {vhost!r} has no slots: its ring has {plural(len(slots.destinations), 'destination')}, "
            "and none is an internal fanout exchange that leads to a queue; for its ring use ring show",
            exchange=exchange,
        )
    return LiveTable(exchange, vhost, live.arguments, slots, management.run(rates_read(vhost, exchange)))


@dataclass(frozen=True, slots=True)
class SlotSample:
    """The load of slots, and where it comes from.

    Attributes:
        load: the load.
        messages: how many messages were counted.
        source: the file of keys, or that it was traced.
    """

    load: SlotLoad
    messages: int
    source: str

    @classmethod
    def of_file(cls, table: LiveTable, path: str, field_type: FieldType | None) -> SlotSample:
        """Count the keys of a file, one on each line for each message. Its memory does not grow with the file.

        Args:
            table: the slots.
            path: the file; ``-`` is stdin.
            field_type: the wire type of the keys where the exchange hashes a header.

        Raises:
            InputError: the file cannot be read or has no keys, or a key is no value of the type.
        """
        if path == _STDIN:
            claim_stdin("the keys")
        keys = HashedKeys(table.hashing(field_type))
        with sign_of_life(f"reading {file_name(path)}"):
            load = SlotLoad.of_keys(
                table.slots,
                (list(map(keys.value, batch)) for _, batch in read_batches(path)),
                hashing=keys.hashing,
            )
        return cls._counted(load, file_name(path))

    @classmethod
    def traced(cls, broker: LiveBroker, table: LiveTable, *, seconds: float, messages: int) -> SlotSample:
        """Count real traffic, and say on stderr if it went to other queues than the slots tell.

        Args:
            broker: the broker.
            table: the slots.
            seconds: the longest time, in seconds.
            messages: the most messages.

        Raises:
            InputError: no message came.
            RabbitChxError: the broker cannot be asked.
        """
        management = broker.management("the tracer is switched over the management API")
        found = traced_messages(broker, management, table.exchange, seconds, messages)
        if not found:
            raise InputError(
                f"no message came to {table.exchange!r} in {seconds:g} s: trace for longer, or give --keys FILE",
                exchange=table.exchange,
            )
        mirror = ConsistentHashExchange(table.exchange, table.slots.ring, table.arguments)
        sample = traced_sample(mirror.hashed_on, found)
        places = [_place(mirror, message) for message in sample]
        elsewhere = sum(
            isinstance(queue := table.slots.queue_of(place), str) and queue not in message.queues
            for place, message in zip(places, found, strict=True)
        )
        if elsewhere:
            say(
                f"{elsewhere:,} of {plural(len(found), 'message')} went to another queue than the slots of {table.exchange!r} tell: "
                "the load of each slot is not sure; read the ring with --ring-via, and look for slots that change hands"
            )
        counts = Counter((message.key, place) for message, place in zip(sample, places, strict=True))
        routed = ((key, place, count) for (key, place), count in counts.most_common())
        return cls._counted(SlotLoad.of_routed(routed), _TRACED)

    @classmethod
    def _counted(cls, load: SlotLoad, source: str) -> SlotSample:
        counted = int(sum(load.messages.values()))
        if not counted:
            raise InputError(
                f"{source} has no message that comes to a slot: give a sample of the exchange's own keys"
            )
        return cls(load, counted + load.nowhere, source)


@dataclass(frozen=True, slots=True)
class AskedLoad:
    """The sample that the options ask for, not yet read.

    Attributes:
        key_file: a file of keys, or ``-`` for stdin; None where none was given.
        field_type: the wire type of its keys, where the exchange hashes a header; None where none was given.
        passive: whether to trace.
        seconds: how long to trace at most, in seconds.
        messages: how many messages to trace at most.

    Raises:
        InputError: the options contradict each other.
    """

    key_file: str | None
    field_type: FieldType | None
    passive: bool
    seconds: float
    messages: int

    def __post_init__(self) -> None:
        if self.passive and self.key_file is not None:
            raise InputError("--passive takes real traffic as the sample: leave --keys out")
        if self.field_type is not None and self.key_file is None:
            raise InputError(f"--type {self.field_type} is the type of the keys of a file: give --keys too")

    @property
    def given(self) -> bool:
        """Whether any sample was asked for."""
        return self.passive or self.key_file is not None

    def read(self, broker: LiveBroker, table: LiveTable) -> SlotSample:
        """Return the sample.

        Args:
            broker: the broker.
            table: the slots.

        Raises:
            RabbitChxError: as in `SlotSample.of_file` and `SlotSample.traced`.
        """
        if self.key_file is not None:
            return SlotSample.of_file(table, self.key_file, self.field_type)
        return SlotSample.traced(broker, table, seconds=self.seconds, messages=self.messages)


def load_options(command: Command) -> Command:
    """Add the options of a sample of the load; the command gets a `load`, an `AskedLoad`."""

    @functools.wraps(command)
    def with_load(
        *,
        key_file: str | None,
        type_: FieldType | None,
        passive: bool,
        seconds: float,
        messages: int,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        return command(load=AskedLoad(key_file, type_, passive, seconds, messages), **others)

    return with_options(
        with_load,
        click.option(
            "--keys",
            "key_file",
            metavar="FILE",
            help="A file with the key of a message on each line, as a sample of the load; - is stdin.",
        ),
        click.option(
            "--type",
            "type_",
            type=click.Choice(FIELD_TYPES),
            metavar="TYPE",
            help="With --keys, where the exchange hashes a header: the AMQP type of the keys.  [default: longstr]",
        ),
        trace_options,
    )


def _place(mirror: ConsistentHashExchange, message: SampledMessage) -> Place:
    try:
        return mirror.route(message.routing_key, headers=message.headers, properties=message.properties)
    except ChannelClosedError:
        return None
