"""``rabbit-chx ring``: the ring of a live exchange."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rabbit_chx.analysis import ring_findings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.firehose import infer_live_ring
from rabbit_chx.broker.live_exchange import read_exchange, read_ring
from rabbit_chx.cli.live_options import LiveBroker, live_options, trace_options, traced
from rabbit_chx.cli.notation import bucket_ranges, exchange_facts, percent, place_text
from rabbit_chx.cli.option_groups import output_option, show_help
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.stderr import say
from rabbit_chx.rendering import Column, Facts, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rabbit_chx.analysis import RingFinding
    from rabbit_chx.rendering import Block
    from rabbit_chx.routing import HashRing

__all__ = ["ring"]


@dataclass(frozen=True, slots=True)
class RingReport:
    """A ring, shown.

    Attributes:
        exchange: whose.
        vhost: where that is.
        ring: it.
        arguments: those of the exchange that decide what is hashed; None where they are not known.
    """

    exchange: str
    vhost: str
    ring: HashRing
    arguments: Mapping[str, str] | None

    def blocks(self) -> Iterator[Block]:
        """Whose ring it is, and who has which buckets."""
        yield Facts(exchange_facts(self.exchange, self.vhost, self.arguments, self.ring))
        if not self.ring.buckets:
            return
        shares, ranges = self.ring.shares(), bucket_ranges(enumerate(self.ring.buckets))
        columns = [Column("destination", numeric=False), Column("buckets", numeric=False)]
        yield Table(
            [*columns, Column("count"), Column("share")],
            [
                (place_text(place), text, self.ring.buckets.count(place), percent(shares.get(place, 0)))
                for place, text in ranges.items()
            ],
        )

    def as_json(self) -> dict[str, Any]:
        """The ring as `HashRing.to_json` writes it, and the exchange's arguments."""
        document: dict[str, Any] = json.loads(self.ring.to_json())
        return {**document, "arguments": None if self.arguments is None else dict(self.arguments)}


@click.group(
    epilog="Example: rabbit-chx ring show orders --ring-via 'docker exec rabbitmq'",
    short_help="The ring of a live exchange.",
    invoke_without_command=True,
)
@click.pass_context
def ring(context: click.Context) -> None:
    """The ring of an exchange of a live broker."""
    if context.invoked_subcommand is None:
        show_help(context)


@ring.command(
    epilog="Example: rabbit-chx ring show orders --ring-via 'docker exec rabbitmq'",
    short_help="Who has which buckets.",
)
@click.argument("exchange")
@live_options
@trace_options
@output_option
def show(
    *, exchange: str, broker: LiveBroker, passive: bool, seconds: float, messages: int, output: str
) -> Outcome:
    """Show which destination has which buckets of EXCHANGE, with the exact share of all keys.

    The true ring is read by --ring-via, or inferred from real traffic with --passive. Without either it is assumed
    from the bindings that the management API lists, and labelled so.

    Holes, and with --management-url what differs from the bindings, are told on stderr; the exit code is 0.

    With --output json the ring is written as `HashRing.to_json` does, with the exchange's arguments, for the
    --ring of other commands.
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
    return Outcome(output, RingReport(exchange, vhost, found, live.arguments))


def _say_findings(exchange: str, findings: Iterable[RingFinding]) -> None:
    for finding in findings:
        say(f"exchange {exchange!r}: {finding.says}")
