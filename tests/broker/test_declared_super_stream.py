"""The super stream of docs/topology.md, declared from the file, is the one that RabbitMQ's own command makes."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest
from blocks import page

from rabbit_chx import Broker, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker, temporary_vhost
from rabbit_chx.testing.broker_search import skip_unless_ci
from rabbit_chx.topology import plan

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=4.0")]

(TEXT,) = re.findall(r"## Super streams\n.*?```toml\n(.*?)```", page("docs/topology.md"), re.DOTALL)
FILE = Topology.from_toml(TEXT)


def objects_of(vhost: RunningBroker) -> dict[str, list[dict[str, Any]]]:
    """The exchanges, queues and bindings of a vhost, as RabbitMQ exports them."""
    assert vhost.management_url is not None
    name = ConnectionSettings.from_uri(vhost.url).vhost
    exported = Management(vhost.management_url).request("GET", "definitions", name)
    return {
        kind: sorted(exported[kind], key=lambda each: str(sorted(each.items())))
        for kind in ("exchanges", "queues", "bindings")
    }


def seen_by_clients(vhost: RunningBroker) -> tuple[tuple[str, ...], list[str | None]]:
    """The partitions and binding keys, as stream clients read them."""
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        partitions = connection.partitions("orders")
        return partitions, list(connection.binding_keys("orders", partitions))


def test_it_is_that_of_the_command(broker: RunningBroker) -> None:
    if broker.ring_via is None:
        skip_unless_ci("NOT TRIED: rabbitmq-streams cannot be run without a command prefix of the broker")
    with temporary_vhost(broker) as ours, temporary_vhost(broker) as theirs:
        with Broker(ours.url, ours.management_url) as live:
            live.apply(plan(FILE, live.topology()))
            assert plan(FILE, live.topology()).changes == ()
        name = ConnectionSettings.from_uri(theirs.url).vhost
        command = ("add_super_stream", "orders", "--partitions", "3", "--vhost", name)
        broker.run("rabbitmq-streams", *command)
        assert objects_of(ours) == objects_of(theirs)
        assert seen_by_clients(ours) == seen_by_clients(theirs)

        with Broker(theirs.url, theirs.management_url) as live:
            assert plan(FILE, live.topology()).changes == (), "the file describes that of the command"
            exported = live.topology().to_toml()
        assert Topology.from_toml(exported).bindings == FILE.bindings
