"""``rabbit-chx ring show``: the ring of a live exchange."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis import ring_findings
from rabbit_chx.analysis.wording import percent
from rabbit_chx.broker.firehose import infer_live_ring
from rabbit_chx.broker.live_exchange import read_exchange, read_ring, read_slots
from rabbit_chx.cli.broker_options import BrokerOptions, TraceOptions
from rabbit_chx.cli.command import Outcome, argument, command, options
from rabbit_chx.cli.report import bucket_ranges, exchange_facts, numbers, place_text, texts
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import MismatchError
from rabbit_chx.rendering import Block, Facts, Table
from rabbit_chx.routing import KeyMap, SlotTable, queue_behind, ring_beneath

if TYPE_CHECKING:
    from rabbit_chx.routing import HashRing


@dataclass(frozen=True, slots=True)
class RingReport:
    """The ring of an exchange, or the table of its slots. What it hashes is None where that is not known."""

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
        yield Table(
            [
                *texts("destination", *(["queue"] if slotted else []), "buckets"),
                *numbers("count", "share"),
            ],
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
            held = Counter(map(self.ring.queue_of, self.ring.slots))
            yield Table(
                [*texts("queue"), *numbers("slots", "share")],
                [
                    (place_text(queue), held[queue], percent(share))
                    for queue, share in self.ring.shares().items()
                ],
            )

    def as_json(self) -> dict[str, Any]:
        """Return the ring as its `to_json` writes it, with the exchange's arguments."""
        arguments = None if self.arguments is None else dict(self.arguments)
        return {**json.loads(self.ring.to_json()), "arguments": arguments}


@command(example="rabbit-chx ring show orders --ring-via 'docker exec rabbitmq'")
def show(
    *,
    exchange: str = argument(),
    broker: BrokerOptions = options(BrokerOptions),
    trace: TraceOptions = options(TraceOptions),
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
    at = broker.live()
    vhost, key_map, arguments = at.settings.vhost, None, None
    ring: HashRing
    if not trace.passive and at.ring_source is not None and at.management_url is None:
        with at.broker() as opened:
            ring = opened.ring(exchange)
        findings = ring_findings(ring)
    else:
        management = at.management("AMQP alone shows no bindings")
        live = read_exchange(management, vhost, exchange)
        if trace.passive:
            observations = trace.observed(at, management, live)
            ring = infer_live_ring(management, live, observations).ring(live.release)
        else:
            ring = read_ring(live, at.ring_source)
        findings, arguments = ring_findings(ring, live.bindings, live.alternate), live.arguments
        try:
            key_map = read_slots(management, live, ring).key_map()
        except MismatchError as error:  # no table says who has the slots
            say(str(error))
    for finding in findings:
        say(f"exchange {exchange!r}: {finding.says}")
    return Outcome(RingReport(exchange, vhost, key_map or ring, arguments))
