"""The super streams of docs/topology.md, declared from the file, are those that RabbitMQ's own command makes."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace

import pytest
from blocks import page

from rabbit_chx import Broker, StreamPublisher, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker, temporary_vhost
from rabbit_chx.testing.broker_search import skip_unless_ci
from rabbit_chx.topology import plan

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=4.0")]

(TEXT,) = re.findall(r"## Super streams\n.*?```toml\n(.*?)```", page("docs/topology.md"), re.DOTALL)
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
