"""The records of rings that `Broker.declare` makes, on a real broker: they are the rings that ``rabbitmqctl`` reads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest
from canary import CANARY, canary_user
from declared import BINDINGS, with_login
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import AccessRefusedError, MismatchError
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def managed(vhost: RunningBroker) -> Iterator[Broker]:
    """The broker as somebody without rabbitmqctl knows it."""
    with Broker(vhost.url, vhost.management_url) as broker:
        yield broker


@pytest.fixture
def channel(vhost_url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        yield connection.channel()


def test_a_declared_ring_and_its_additions_are_recorded(managed: Broker, live: Broker) -> None:
    made = managed.declare("x", BINDINGS)
    assert (made.ring.provenance, made.unrecorded) == ("recorded", ())
    assert managed.ring("x").provenance == "recorded"
    more = managed.declare("x", [*BINDINGS, ("q4", 1), ("q0", 2)])
    assert more.bound == (("q4", "1"), ("q0", "2"))
    assert managed.ring("x") == more.ring == live.ring("x")
    assert managed.ring("x").provenance == more.ring.provenance == "recorded"


def test_a_record_shows_another_order(managed: Broker, live: Broker) -> None:
    managed.declare("x", BINDINGS)
    with pytest.raises(MismatchError, match="'x' has the ring <HashRing recorded, "):
        managed.declare("x", [*BINDINGS[::-1], ("q4", 1)])
    assert live.ring("x").buckets == managed.ring("x").buckets == ("q3",) * 2 + ("q1",) * 10 + ("q2",)


def test_bindings_after_unknown_ones_delete_the_old_record(
    managed: Broker, live: Broker, channel: BlockingChannel
) -> None:
    managed.declare("x", [("a", 1), ("b", 1)])
    for queue in ("d", "c"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "x", "1")
    assert managed.ring("x").provenance == "assumed"

    done = managed.declare("x", [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)])
    assert done.bound == (("e", "1"),)
    assert "it was not known before" in done.unrecorded[0]
    assert managed.topology().facts.records == {}
    assert live.ring("x").buckets == ("a", "b", "d", "c", "e")


def test_programs_that_declare_at_the_same_time_wait_for_each_other(
    vhost: RunningBroker, live: Broker
) -> None:
    def declare(_: int) -> str:
        with Broker(vhost.url, vhost.management_url) as broker:
            return broker.declare("x", BINDINGS).ring.provenance

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(declare, range(4))] == ["recorded"] * 4
    with Broker(vhost.url, vhost.management_url) as broker:
        assert broker.ring("x") == live.ring("x")


def test_a_user_without_the_permission_declares_and_is_told(vhost: RunningBroker) -> None:
    management, name = Management(str(vhost.management_url)), ConnectionSettings.from_uri(vhost.url).vhost
    with canary_user(management, name) as user:
        rights = "^(q.*|x|y)$"
        management.request("PUT", "users", user, body={"password": CANARY, "tags": "management"})
        body = {"configure": rights, "write": rights, "read": rights}
        management.request("PUT", "permissions", name, user, body=body)
        urls = (with_login(url, user, CANARY) for url in (vhost.url, str(vhost.management_url)))
        with Broker(*urls) as broker:
            done = broker.declare("x", BINDINGS)
            assert (done.ring.provenance, len(done.bound)) == ("replayed", 3)
            assert "may not declare queue rabbit-chx.apply" in done.unrecorded[0]

            with Broker(vhost.url, vhost.management_url) as admin:
                admin.declare("y", BINDINGS)
            with pytest.raises(AccessRefusedError, match=r"rabbit-chx\.apply"):
                broker.declare("y", [*BINDINGS, ("q4", 1)])
            assert broker.declare("y", BINDINGS).bound == ()
