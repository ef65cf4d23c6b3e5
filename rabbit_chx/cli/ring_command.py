"""``rabbit-chx ring``: the ring of a live exchange."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rabbit_chx.analysis import Finding, ring_findings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.firehose import infer_live_ring
from rabbit_chx.broker.live_exchange import LiveExchange, read_exchange, read_ring, read_slots
from rabbit_chx.cli.check_commands import check_ring
from rabbit_chx.cli.live_options import LiveBroker, live_options, trace_options, traced
from rabbit_chx.cli.notation import bucket_ranges, exchange_facts, percent, place_text
from rabbit_chx.cli.option_groups import output_option, show_help
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.repair_command import repair
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import MismatchError
from rabbit_chx.rendering import Block, Facts, Table, TableColumn
from rabbit_chx.routing import HashRing, KeyMap, SlotTable, queue_behind, ring_beneath

if TYPE_CHECKING:
    from rabbit_chx.broker.management import Management

__all__ = ["ring"]


@dataclass(frozen=True, slots=True)
class RingReport:
    """The ring of an exchange.

    Attributes:
        exchange: the exchange's name.
        vhost: the exchange's vhost.
        ring: the exchange's ring, or the table of its slots.
        arguments: the exchange's arguments that decide what is hashed; None where they are not known.
    """

    exchange: str
    vhost: str
    ring: KeyMap
    arguments: Mapping[str, str] | None

    def blocks(self) -> Iterator[Block]:
        """Return the exchange, the buckets of each destination, and with slots the share of each queue."""
        yield Facts(exchange_facts(self.exchange, self.vhost, self.arguments, self.ring))
        ring = ring_beneath(self.ring)
        if not ring.buckets:
            return
        slotted = isinstance(self.ring, SlotTable)
        shares, ranges = ring.shares(), bucket_ranges(enumerate(ring.buckets))
        headings = ("destination", "queue", "buckets") if slotted else ("destination", "buckets")
        yield Table(
            [*(TableColumn(heading, numeric=False) for heading in headings), *_COUNTED],
            [
                (
                    place_text(place),
                    *([place_text(queue_behind(self.ring, place))] if slotted else []),
                    text,
                    ring.buckets.count(place),
                    percent(shares.get(place, 0)),
                )
                for place, text in ranges.items()
            ],
        )
        if isinstance(self.ring, SlotTable):
            yield _queues_table(self.ring)

    def as_json(self) -> dict[str, Any]:
        """Return the ring as its `to_json` writes it, with the exchange's arguments."""
        document: dict[str, Any] = json.loads(self.ring.to_json())
        return {**document, "arguments": None if self.arguments is None else dict(self.arguments)}


_COUNTED = (TableColumn("count"), TableColumn("share"))


def _queues_table(slots: SlotTable) -> Table:
    """Return how many slots and which share of the keys each queue has."""
    held = Counter(map(slots.queue_of, slots.slots))
    rows = [(place_text(queue), held[queue], percent(share)) for queue, share in slots.shares().items()]
    return Table([TableColumn("queue", numeric=False), TableColumn("slots"), TableColumn("share")], rows)


@click.group(
    epilog="Example: rabbit-chx ring show orders --ring-via 'docker exec rabbitmq'",
    short_help="The ring of a live exchange.",
    invoke_without_command=True,
)
@click.pass_context
def ring(context: click.Context) -> None:
    """Read the ring of an exchange from a live broker, check and repair it."""
    if context.invoked_subcommand is None:
        show_help(context)


@ring.command(
    epilog="Example: rabbit-chx ring show orders --ring-via 'docker exec rabbitmq'",
    short_help="The buckets of each destination.",
)
@click.argument("exchange")
@live_options
@trace_options
@output_option
def show(
    *, exchange: str, broker: LiveBroker, passive: bool, seconds: float, messages: int, output: str
) -> Outcome:
    """Show the buckets of each destination of EXCHANGE, with the exact share of all keys.

    --ring-via reads the true ring; --passive infers it from real traffic. Without either the ring is assumed
    from the bindings that the management API lists, and the output says so.

    Where the ring has slots, each is shown with its queue, and each queue with its share of all keys. That needs
    --management-url.

    Holes are reported on stderr, and with --management-url also what differs from the bindings. The exit code
    is 0.

    --output json writes the ring as `HashRing.to_json` does, or `SlotTable.to_json`, with the exchange's arguments. Other
    commands read it with --ring.
    """
    vhost = broker.settings.vhost
    if not passive and broker.ring_source is not None and broker.management_url is None:
        with Broker(broker.url, ring_source=broker.ring_source) as live_broker:
            found = live_broker.ring(exchange)
        _say_findings(exchange, ring_findings(found))
        return Outcome(output, RingReport(exchange, vhost, found, None))
    management = broker.management("AMQP alone shows no bindings")
    live = read_exchange(management, vhost, exchange)
    if passive:
        observations = traced(broker, management, live, seconds, messages)
        found = infer_live_ring(management, live, observations).ring(live.release)
    else:
        found = read_ring(live, broker.ring_source)
    _say_findings(exchange, ring_findings(found, live.bindings, live.alternate))
    return Outcome(output, RingReport(exchange, vhost, _with_slots(management, live, found), live.arguments))


def _with_slots(management: Management, live: LiveExchange, ring: HashRing) -> KeyMap:
    """Return the table of the slots; the ring where it has none, or where no table says who has them."""
    try:
        return read_slots(management, live, ring).key_map()
    except MismatchError as error:
        say(str(error))
        return ring


def _say_findings(exchange: str, findings: Iterable[Finding]) -> None:
    for finding in findings:
        say(f"exchange {exchange!r}: {finding.says}")


for command in (check_ring, repair):
    ring.add_command(command)
