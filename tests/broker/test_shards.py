"""A sharded exchange on a real broker: declared by a topology, read, and shown by ``rabbit-chx shards``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pika
import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.errors import PlanRefusedError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import Topology, check, plan
from rabbit_chx.topology.shards import ShardedExchange, shard_names

pytestmark = pytest.mark.broker

FILE = """
owns = ["*"]
[[exchanges]]
name = "images"
type = "x-modulus-hash"
[[policies]]
name = "shards"
pattern = "^images$"
apply_to = "exchanges"
definition = { shards-per-node = 3, routing-key = "7" }
"""


@pytest.fixture
def live(vhost: RunningBroker) -> Iterator[Broker]:
    with Broker(vhost.url, vhost.management_url) as live:
        yield live


@pytest.fixture
def channel(vhost: RunningBroker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        yield connection.channel()


def applied(live: Broker, text: str) -> ShardedExchange:
    live.apply(plan(Topology.from_toml(text), live.topology()))
    return live.sharding("images")


def test_a_file_declares_it_and_the_plugin_makes_the_shards(live: Broker, channel: BlockingChannel) -> None:
    found = applied(live, FILE)
    assert (found.type, found.policy) == ("x-modulus-hash", "shards")
    assert (found.shards_per_node, found.routing_key) == (3, "7")
    assert found.nodes is not None
    assert [shard.name for shard in found.shards] == list(shard_names("images", found.nodes, 3))
    assert [(shard.keys, shard.messages, shard.consumers) for shard in found.shards] == [(("7",), 0, 0)] * 3
    assert found.missing == ()
    assert [finding.kind for finding in found.findings] == ["unconsumed"]
    now = live.topology()
    assert plan(Topology.from_toml(FILE), now).changes == ()
    assert check(now, Topology.from_toml(FILE)).sound
    assert live.exchange("images").route("k1") in {shard.name for shard in found.shards}

    channel.basic_consume(found.shards[1].name, lambda *_: None)
    channel.confirm_delivery()
    channel.basic_publish("", found.shards[2].name, b"m")
    counted = [(shard.messages, shard.consumers) for shard in live.sharding("images").shards]
    assert counted == [(0, 0), (0, 1), (1, 0)]
    assert {shard.messages for shard in live.sharding("images", counts=False).shards} == {None}


HASHED = FILE.replace("x-modulus-hash", "x-consistent-hash")


def test_a_hash_exchange_under_the_policy_is_refused_beforehand(
    live: Broker, vhost: RunningBroker, channel: BlockingChannel
) -> None:
    """With Khepri the broker closes the connection with 541, which the first lines hold. With Mnesia it accepts the exchange."""
    applied(live, FILE)
    channel.exchange_delete("images")
    is_accepted = live.release.store == "mnesia"
    refused = pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="541")
    with (
        pika.BlockingConnection(pika_parameters(vhost.url)) as connection,
        nullcontext() if is_accepted else refused,
    ):
        connection.channel().exchange_declare("images", CHX, durable=True)
    channel.exchange_delete("images")
    for name in [queue.name for queue in live.topology().queues]:
        channel.queue_delete(name)

    made = plan(Topology.from_toml(HASHED), live.topology())
    if is_accepted:
        assert made.refusals == ()
        assert len(applied(live, HASHED).shards) == 3
        return
    assert ["the policy shards shards it" in refusal.text for refusal in made.refusals] == [True]
    with pytest.raises(PlanRefusedError, match="remove the policy"):
        live.apply(made)
    now = live.topology()
    assert (now.exchanges, now.queues) == ((), ())
    (missing,) = check(now, Topology.from_toml(HASHED)).findings
    assert missing.fix.startswith("remove the policy shards")

    live.apply(plan(Topology.from_toml('owns = ["shards"]'), now), allow_delete=True)
    found = applied(live, HASHED)
    assert (found.type, found.missing) == ("x-consistent-hash", ())
    assert [shard.keys for shard in found.shards] == [("7",)] * 3
