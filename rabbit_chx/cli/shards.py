"""``rabbit-chx shards show``: the shards of an exchange of the plugin rabbitmq_sharding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.analysis.wording import finding_as_json
from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, options
from rabbit_chx.rendering import Data, Document, Facts, Table, sign_of_life
from rabbit_chx.topology.rules.shards import Shard
from rabbit_chx.words import plural

if TYPE_CHECKING:
    from rabbit_chx.topology.rules.shards import ShardedExchange


def shards_report(exchange: ShardedExchange, vhost: str) -> Document:
    """Return the exchange and its policy, its shards, and the findings."""
    count = f"{plural(exchange.shards_per_node, 'shard')} on each node"
    key = f", bound with {exchange.routing_key!r}" if exchange.routing_key else ""
    policy = "none" if exchange.policy is None else f"{exchange.policy}: {count}{key}"
    unknown = "not known: the user lacks the tag monitoring"
    findings, nodes = exchange.findings, exchange.nodes
    facts = [
        ("exchange", exchange.name),
        ("vhost", vhost),
        ("type", exchange.type),
        ("policy", policy),
        ("nodes", unknown if nodes is None else ", ".join(nodes)),
        ("release", str(exchange.release)),
        (
            "findings",
            f"{len(findings):,}" if findings else f"none in {plural(len(exchange.shards), 'shard')}",
        ),
    ]
    if nodes is None:
        facts.append(("not checked", "missing shards, and shards of stopped nodes"))
    fields = {
        "exchange": exchange.name,
        "vhost": vhost,
        "type": exchange.type,
        "release": exchange.release,
        "policy": exchange.policy,
        "shards_per_node": exchange.shards_per_node,
        "routing_key": exchange.routing_key,
        "nodes": nodes,
    }
    listed = [finding_as_json(finding, shards=finding.names) for finding in findings]
    shown = [pair for each in findings for pair in ((each.kind, each.message), ("", each.fix))]
    return Document(
        "shards",
        [
            Data(fields),
            Facts(facts),
            Table.of(Shard, exchange.shards, key="shards"),
            Data({"missing": exchange.missing, "findings": listed}),
            *([Facts(shown)] if shown else ()),
        ],
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
        return Outcome(shards_report(opened.sharding(exchange), live.settings.vhost))
