"""The super streams of docs/reference/topology.md, declared from the file, are those that RabbitMQ's own command makes."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace

import pytest
from blocks import page
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType

from rabbit_chx import Broker, StreamPublisher, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import PlanRefusedError
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker, temporary_vhost
from rabbit_chx.testing.containers import skip_unless_ci
from rabbit_chx.topology import check, plan

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=4.0")]

(TEXT,) = re.findall(r"## Super streams\n.*?```toml\n(.*?)```", page("docs/reference/topology.md"), re.DOTALL)
#: The command writes seven days in seconds. To 4.3.6 they are the same, to older releases they are not.
#: Of twelve partitions, the names and the binding keys have different orders.
FILE = Topology.from_toml(TEXT.replace('"7D"', '"604800s"').replace("partitions = 3", "partitions = 12"))


def objects_of(vhost: RunningBroker) -> dict[str, list[str]]:
    """The exchanges, queues and bindings of a vhost, as RabbitMQ exports them."""
    name = ConnectionSettings.from_uri(vhost.url).vhost
    exported = Management(str(vhost.management_url)).request("GET", "definitions", name)
    return {
        kind: sorted(json.dumps(each, sort_keys=True) for each in exported[kind])
        for kind in ("exchanges", "queues", "bindings")
    }


def seen_by_clients(vhost: RunningBroker, name: str) -> tuple[tuple[str, ...], list[str | None]]:
    """The partitions and binding keys, as stream clients read them."""
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        partitions = connection.partitions(name)
        return partitions, list(connection.binding_keys(name, partitions))


def test_they_are_those_of_the_command(broker: RunningBroker) -> None:
    if broker.ring_via is None:
        skip_unless_ci("NOT TRIED: rabbitmq-streams cannot be run without a command prefix of the broker")
    with temporary_vhost(broker) as ours, temporary_vhost(broker) as theirs:
        with Broker(ours.url, ours.management_url) as live:
            live.apply(plan(FILE, live.topology()))
            assert plan(FILE, live.topology()).changes == ()
        vhost = ("--vhost", ConnectionSettings.from_uri(theirs.url).vhost)
        add = ("rabbitmq-streams", "add_super_stream", *vhost)
        broker.run(*add, "orders", "--partitions", "12")
        broker.run(*add, "sales", "--binding-keys", "amer,emea,apac", "--max-age", "P7D")
        assert objects_of(ours) == objects_of(theirs)
        for name in ("orders", "sales"):
            assert seen_by_clients(ours, name) == seen_by_clients(theirs, name)

        with Broker(theirs.url, theirs.management_url) as live:
            assert plan(FILE, live.topology()).changes == (), "the file describes those of the command"
            exported = Topology.from_toml(live.topology().to_toml())
        assert replace(exported, cluster=None) == FILE


def test_one_of_the_stream_protocol_equals_that_of_the_file(vhost: RunningBroker) -> None:
    with StreamPublisher(vhost.stream_url, super_stream="orders", create=3):
        pass
    with Broker(vhost.url, vhost.management_url) as live:
        assert plan(Topology.from_toml(TEXT.partition("\n\n")[0]), live.topology()).changes == ()


def sales(*keys: str) -> Topology:
    return Topology.from_toml(f'[[super_streams]]\nname = "sales"\nbinding_keys = {json.dumps(keys)}\n')


def test_after_each_change_clients_see_the_partitions_of_the_file_once_in_order(vhost: RunningBroker) -> None:
    with Broker(vhost.url, vhost.management_url) as live:
        for keys in ("abc", "adbc", "dcba", "db", "dbaec"):
            made = plan(sales(*keys), live.topology())
            live.apply(made)
            partitions, bound = seen_by_clients(vhost, "sales")
            assert partitions == tuple(f"sales-{key}" for key in keys)
            assert bound == list(keys)
            assert plan(sales(*keys), live.topology()).changes == ()
        assert made.rings["sales"].before.destinations == ("sales-d", "sales-b")
        assert made.rings["sales"].after.destinations == partitions


def test_partitions_that_were_bound_without_numbers_are_refused_or_get_those_of_the_file(
    vhost: RunningBroker, bare_channel: BlockingChannel
) -> None:
    """The order of the stream protocol is that of no list, so a check says that it is not known."""
    bare_channel.exchange_declare(
        "sales", ExchangeType("direct"), durable=True, arguments={"x-super-stream": True}
    )
    for key in "mba":
        stream = f"sales-{key}"
        bare_channel.queue_declare(
            stream, durable=True, arguments={"x-queue-type": "stream", "x-queue-leader-locator": "balanced"}
        )
        bare_channel.queue_bind(stream, "sales", key)
    seen, _ = seen_by_clients(vhost, "sales")
    names = ["m", "b", "a"]
    with Broker(vhost.url, vhost.management_url) as live:
        there = live.topology()
        checked = check(there, sales(*names))
        assert "sales" in checked.unordered
        said = " ".join(finding.message for finding in checked.findings)
        assert "sales -> sales-a (key a) is not in the topology; with other arguments it is: " in said
        assert "do not reach" not in said  # they do
        made = plan(sales(*names), there)
        assert [refusal.allow_with for refusal in made.refusals] == ["--allow moved=1"]
        with pytest.raises(PlanRefusedError):
            live.apply(made)
        assert seen_by_clients(vhost, "sales")[0] == seen
        live.apply(made, allow_moved=1.0)
        assert seen_by_clients(vhost, "sales")[0] == tuple(f"sales-{key}" for key in names)
        numbered = check(live.topology(), sales(*names))
        assert (numbered.sound, numbered.unordered) == (True, {})
