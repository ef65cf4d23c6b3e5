"""``rabbit-chx shards show``: the shards of an exchange of the plugin rabbitmq_sharding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis.wording import document, finding_as_json
from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, options
from rabbit_chx.rendering import Block, Facts, sign_of_life, table_of
from rabbit_chx.topology.rules.shards import Shard
from rabbit_chx.words import plural

if TYPE_CHECKING:
    from rabbit_chx.topology.rules.shards import ShardedExchange


@dataclass(frozen=True, slots=True)
class ShardsReport:
    """The shards of an exchange."""

    exchange: ShardedExchange
    vhost: str

    def blocks(self) -> Iterator[Block]:
        """Return the exchange and its policy, its shards, and the findings."""
        exchange = self.exchange
        count = f"{plural(exchange.shards_per_node, 'shard')} on each node"
        key = f", bound with {exchange.routing_key!r}" if exchange.routing_key else ""
        policy = "none" if exchange.policy is None else f"{exchange.policy}: {count}{key}"
        unknown = "not known: the user lacks the tag monitoring"
        yield Facts(
            [
                ("exchange", exchange.name),
                ("vhost", self.vhost),
                ("type", exchange.type),
                ("policy", policy),
                ("nodes", unknown if exchange.nodes is None else ", ".join(exchange.nodes)),
                ("release", str(exchange.release)),
                (
                    "findings",
                    f"{len(exchange.findings):,}"
                    if exchange.findings
                    else f"none in {plural(len(exchange.shards), 'shard')}",
                ),
                *(
                    [("not checked", "missing shards, and shards of stopped nodes")]
                    if exchange.nodes is None
                    else ()
                ),
            ]
        )
        yield table_of(Shard, exchange.shards)
        if exchange.findings:
            yield Facts(
                [
                    pair
                    for finding in exchange.findings
                    for pair in ((finding.kind, finding.message), ("", finding.fix))
                ]
            )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        exchange = self.exchange
        return document(
            "shards",
            exchange=exchange.name,
            vhost=self.vhost,
            type=exchange.type,
            release=exchange.release,
            policy=exchange.policy,
            shards_per_node=exchange.shards_per_node,
            routing_key=exchange.routing_key,
            nodes=exchange.nodes,
            shards=exchange.shards,
            missing=exchange.missing,
            findings=[finding_as_json(finding, shards=finding.names) for finding in exchange.findings],
        )


@command(example="rabbit-chx shards show images --management-url http://localhost:15672")
def show(*, exchange: str = argument(type=TEXT), broker: BrokerOptions = options(BrokerOptions)) -> Outcome:
    """Show the shards of EXCHANGE on all nodes, the policy that creates them, and problems.

    The plugin creates and binds shards. It neither deletes nor moves them, and a consumer of the exchange's
    name gets one shard of its own node. Problems are shown below the table, each with a fix.
    """
    live = broker.live()
    live.management("AMQP alone shows neither policies nor bindings")
    with live.open() as opened, sign_of_life("reading the shards"):
        return Outcome(ShardsReport(opened.sharding(exchange), live.settings.vhost))
