"""``rabbit-chx shards``: the shards of an exchange that the plugin rabbitmq_sharding shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rabbit_chx.cli.live_options import LiveBroker, live_options
from rabbit_chx.cli.notation import plural, release_json
from rabbit_chx.cli.option_groups import TEXT, output_option, show_help
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.rendering import Block, Facts, Table, TableColumn

if TYPE_CHECKING:
    from rabbit_chx.topology import Shard, ShardedExchange

__all__ = ["shards"]


@dataclass(frozen=True, slots=True)
class ShardsReport:
    """The shards of an exchange.

    Attributes:
        exchange: the exchange.
        vhost: its vhost.
    """

    exchange: ShardedExchange
    vhost: str

    def blocks(self) -> Iterator[Block]:
        """Return the exchange and its policy, its shards, and what there is to say about them."""
        asked = f"{plural(self.exchange.shards_per_node, 'shard')} on each node"
        key = f", bound with {self.exchange.routing_key!r}" if self.exchange.routing_key else ""
        nodes = self.exchange.nodes
        yield Facts(
            [
                ("exchange", self.exchange.name),
                ("vhost", self.vhost),
                ("type", self.exchange.type),
                (
                    "policy",
                    "none" if self.exchange.policy is None else f"{self.exchange.policy}: {asked}{key}",
                ),
                (
                    "nodes",
                    "not known: the user lacks the tag monitoring" if nodes is None else ", ".join(nodes),
                ),
                ("release", str(self.exchange.release)),
            ]
        )
        texts = ("shard", "type", "bound")
        yield Table(
            [
                *(TableColumn(heading, numeric=False) for heading in texts),
                TableColumn("messages"),
                TableColumn("consumers"),
            ],
            [_row(shard) for shard in self.exchange.shards],
        )
        if findings := self.exchange.findings:
            yield Facts([pair for one in findings for pair in ((one.kind, one.says), ("", one.cure))])

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        return {
            "format": "rabbit-chx/shards",
            "format_version": 1,
            "exchange": self.exchange.name,
            "vhost": self.vhost,
            "type": self.exchange.type,
            "release": release_json(self.exchange.release),
            "policy": self.exchange.policy,
            "shards_per_node": self.exchange.shards_per_node,
            "routing_key": self.exchange.routing_key,
            "nodes": self.exchange.nodes,
            "shards": [
                {
                    "queue": shard.name,
                    "node": shard.node,
                    "number": shard.number,
                    "type": shard.type,
                    "keys": shard.keys,
                    "messages": shard.messages,
                    "consumers": shard.consumers,
                }
                for shard in self.exchange.shards
            ],
            "missing": self.exchange.missing,
            "findings": [
                {"kind": one.kind, "shards": one.names, "says": one.says, "cure": one.cure}
                for one in self.exchange.findings
            ],
        }


def _row(shard: Shard) -> tuple[object, ...]:
    bound = (
        "no"
        if not shard.keys
        else "yes"
        if shard.keys == ("",)
        else f"with {', '.join(map(repr, shard.keys))}"
    )
    counts = ("not known" if count is None else count for count in (shard.messages, shard.consumers))
    return (shard.name, shard.type or "not known", bound, *counts)


@click.group(
    epilog="Example: rabbit-chx shards show images --management-url http://localhost:15672",
    short_help="The shards of an exchange of rabbitmq_sharding.",
    invoke_without_command=True,
)
@click.pass_context
def shards(context: click.Context) -> None:
    """Inspect an exchange that the plugin rabbitmq_sharding shards."""
    if context.invoked_subcommand is None:
        show_help(context)


@shards.command(
    epilog="Example: rabbit-chx shards show images --management-url http://localhost:15672",
    short_help="Its queues on all nodes, with messages and consumers.",
)
@click.argument("exchange", type=TEXT)
@live_options
@output_option
def show(*, exchange: str, broker: LiveBroker, output: str) -> Outcome:
    """Show the policy that shards EXCHANGE, its shards on all nodes, and what the plugin leaves to you.

    The plugin makes shards and binds them. It removes none, moves none, and gives a consumer of the exchange's name one
    shard of the node that it is connected to. What follows from that here is under the table.

    The exit code is 0.
    """
    broker.management("AMQP alone shows neither policies nor bindings")
    with broker.broker() as opened:
        return Outcome(output, ShardsReport(opened.sharding(exchange), broker.settings.vhost))
