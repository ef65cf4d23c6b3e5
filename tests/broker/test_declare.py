"""Declaring rings on a real broker, and what it refuses."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pika
import pytest
from pika.exchange_type import ExchangeType

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, DiagnosticsRing, pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.operations import check_exchange
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    InputError,
    MismatchError,
    NotFoundError,
)
from rabbit_chx.routing import ExchangeRef, HashRing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    from rabbit_chx.routing import Destination
    from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

BINDINGS: list[tuple[Destination, int | str]] = [("q3", 2), ("q1", "10"), ("q2", 1)]


@pytest.fixture
def channel(vhost_url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        yield connection.channel()


@pytest.fixture
def live(vhost: RunningBroker) -> Iterator[Broker]:
    assert vhost.ring_via is not None, "these tests read rings: set RABBIT_CHX_TEST_RING_VIA"
    with Broker(vhost.url, ring_source=DiagnosticsRing(vhost.ring_via)) as live:
        yield live


def test_the_release_is_the_broker_s(live: Broker, vhost: RunningBroker) -> None:
    assert live.release.version == vhost.version


def test_the_ring_has_the_order_of_the_bindings_and_declaring_again_changes_nothing(live: Broker) -> None:
    live.declare("x", BINDINGS)
    first = live.ring("x")
    live.declare("x", BINDINGS)

    assert first.buckets == ("q3",) * 2 + ("q1",) * 10 + ("q2",)
    assert first.provenance == "read"
    assert first == HashRing.from_bindings(BINDINGS, release=live.release)
    assert live.ring("x") == first


def test_what_was_done_is_told(live: Broker) -> None:
    done = live.declare("x", dict(BINDINGS))
    assert done.created == (ExchangeRef("x"), "q3", "q1", "q2")
    assert done.bound == (("q3", "2"), ("q1", "10"), ("q2", "1"))
    assert (done.ring, done.ring.provenance) == (live.ring("x"), "replayed")

    again = live.declare("x", BINDINGS)
    assert (again.created, again.bound) == ((), ())
    assert (again.ring, again.ring.provenance) == (done.ring, "read")

    more = live.declare("x", [*BINDINGS, ("q4", 1)])
    assert (more.created, more.bound) == (("q4",), (("q4", "1"),))
    assert more.ring == live.ring("x") == HashRing.from_bindings([*BINDINGS, ("q4", 1)], live.release)
    assert more.ring.provenance == "read"


OTHERS: dict[str, Any] = {
    "another order": [("q1", "10"), ("q3", 2), ("q2", 1)],
    "a subset": [("q3", 2), ("q1", "10")],
    "the end": [("q2", 1)],
    "another weight": [("q3", 2), ("q1", "10"), ("q2", 2)],
    "a new one in front": [("q0", 1), *BINDINGS],
    "nothing": [],
}


@pytest.mark.parametrize("bindings", OTHERS.values(), ids=OTHERS)
def test_another_ring_is_refused_and_nothing_changed(
    live: Broker, channel: BlockingChannel, bindings: Any
) -> None:
    live.declare("x", BINDINGS)
    with pytest.raises(
        MismatchError, match=r"'x' has the ring <HashRing read, .*>, not <HashRing replayed, .*>"
    ):
        live.declare("x", bindings)

    assert live.ring("x") == HashRing.from_bindings(BINDINGS, live.release)
    if bindings and bindings[0][0] == "q0":
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'q0'"):
            channel.queue_declare("q0", passive=True)


@pytest.mark.parametrize("bindings", [["a1", "b2"], ["orders.1"], "a1", [("q", 1, 2)], {("q", 1)}, [5], None])
def test_what_are_no_bindings(live: Broker, bindings: Any) -> None:
    with pytest.raises(InputError, match=r"give (a list of )?\(destination, weight\) pairs"):
        live.declare("x", bindings)
    with pytest.raises(NotFoundError):
        live.ring("x")


def test_a_binding_without_buckets_is_noticed(live: Broker, channel: BlockingChannel) -> None:
    """Two bindings of one queue, and one of them removed: the other stays listed, and has no bucket."""
    live.declare("x", [("a", 1), ("q", 1)])
    channel.queue_bind("q", "x", "2")
    channel.queue_unbind("q", "x", "1")
    ring = live.ring("x")
    assert "q" not in ring.destinations

    with pytest.raises(MismatchError, match=r"has the ring|had a binding without buckets"):
        live.declare("x", [("a", 1), ("q", 2)])
    assert live.ring("x") == ring


def test_with_both_a_listed_binding_without_buckets_is_refused_beforehand(
    vhost: RunningBroker, channel: BlockingChannel
) -> None:
    with Broker(vhost.url, vhost.management_url, vhost.ring_via) as broker:
        broker.declare("x", [("a", 1), ("q", 1)])
        channel.queue_bind("q", "x", "2")
        channel.queue_unbind("q", "x", "1")
        before = broker.ring("x")
        with pytest.raises(MismatchError, match=r"has the ring|has bindings without buckets"):
            broker.declare("x", [("a", 1), ("q", 2)])
        assert broker.ring("x") == before


def test_a_queue_that_is_gone_and_has_buckets(vhost: RunningBroker) -> None:
    class Ghost:
        """A ring source with a ghost, which no broker here can be made to have on every release."""

        def read(self, vhost: str, exchange: str) -> tuple[Destination | None, ...]:
            assert (vhost, exchange) == (ConnectionSettings.from_uri(url).vhost, "x")
            return "gone", "q"

    url = vhost.url
    with Broker(url) as broker:
        broker.declare("x", [("q", 1)])
    with (
        Broker(url, ring_source=Ghost()) as broker,
        pytest.raises(MismatchError, match="queue 'gone' does not exist, and has buckets of exchange 'x'"),
    ):
        broker.declare("x", [("gone", 1), ("q", 1)])


# ---- without a ring source


def test_without_anything_to_compare_an_exchange_that_exists_is_refused(vhost_url: str, live: Broker) -> None:
    with Broker(vhost_url) as broker:
        fresh = broker.declare("x", BINDINGS)
        assert (len(fresh.bound), fresh.ring.provenance) == (3, "replayed")
        with pytest.raises(
            InputError, match=r"'x' exists.* ring_source or a management_url .*allow_existing=True"
        ):
            broker.declare("x", [("q3", 5)])
        assert live.ring("x") == fresh.ring

        again = broker.declare("x", BINDINGS, allow_existing=True)
    assert (again.created, len(again.bound), again.ring.provenance) == ((), 3, "assumed")
    assert again.ring.buckets == live.ring("x").buckets == fresh.ring.buckets


@pytest.fixture
def managed(vhost: RunningBroker) -> Iterator[Broker]:
    assert vhost.management_url is not None
    with Broker(vhost.url, management_url=vhost.management_url) as broker:
        yield broker


def test_the_management_api_tells_what_is_bound(managed: Broker, live: Broker) -> None:
    managed.declare("x", BINDINGS)
    again = managed.declare("x", BINDINGS)
    assert (again.created, again.bound, again.ring.provenance) == ((), (), "assumed")
    more = managed.declare("x", [*BINDINGS, ("q4", 1)])
    assert (more.created, more.bound) == (("q4",), (("q4", "1"),))
    assert more.ring.buckets == live.ring("x").buckets

    others: tuple[list[tuple[Destination, int | str]], ...] = (
        [("q3", 2)],
        [*BINDINGS, ("q4", 2)],
        [("q3", "02"), ("q1", "10"), ("q2", 1), ("q4", 1)],
    )
    for bindings in others:
        with pytest.raises(MismatchError, match=r"'x' has the bindings q1=10, q2=1, q3=2, q4=1, not "):
            managed.declare("x", bindings)
    assert live.ring("x").buckets == more.ring.buckets


def test_the_management_api_tells_what_is_hashed(managed: Broker) -> None:
    managed.declare("x", BINDINGS, arguments={"hash-header": "tenant"})
    managed.declare("x", BINDINGS, arguments={"hash-header": "tenant"})
    with pytest.raises(MismatchError, match=r"has the arguments \{'hash-header': 'tenant'\}, not \{\}"):
        managed.declare("x", BINDINGS)


def test_the_management_api_tells_the_store_and_the_bindings(managed: Broker, vhost: RunningBroker) -> None:
    assert (managed.release.version, managed.release.store_known) == (vhost.version, True)
    managed.declare("x", BINDINGS)
    ring = managed.ring("x")
    assert (ring.provenance, set(ring.bindings or ())) == (
        "assumed",
        {("q3", "2"), ("q1", "10"), ("q2", "1")},
    )


def test_a_management_url_of_another_vhost_s_broker(vhost: RunningBroker) -> None:
    assert vhost.management_url is not None
    wrong = with_login(vhost.management_url, "guest", "c4nary")
    with Broker(vhost.url, management_url=wrong) as broker:
        with pytest.raises(AccessRefusedError, match="401") as caught:
            broker.declare("x", BINDINGS)
        assert "c4nary" not in str(caught.value) + repr(broker)


# ---- without `with`


def test_open_and_close(vhost_url: str) -> None:
    broker = Broker(vhost_url).open()
    assert broker.open() is broker
    assert broker.release.version
    broker.declare("x", BINDINGS)
    broker.close()
    broker.close()
    with pytest.raises(InputError, match="not connected"):
        broker.declare("x", BINDINGS)
    with broker.open() as again:
        assert again.release.version


def test_arguments_reach_the_broker(live: Broker, channel: BlockingChannel) -> None:
    live.declare("x", [("q", 1)], arguments={"hash-header": "tenant"}, queue_arguments={"x-max-length": 1})

    channel.confirm_delivery()
    for body in (b"old", b"new"):
        channel.basic_publish("x", "k", body, pika.BasicProperties(headers={"tenant": "t"}), mandatory=True)
    assert channel.queue_declare("q", passive=True).method.message_count == 1


def test_an_exchange_of_another_type(live: Broker, channel: BlockingChannel) -> None:
    channel.exchange_declare("x", ExchangeType("direct"), durable=True)

    with pytest.raises(MismatchError, match=r"inequivalent arg 'type' for exchange 'x'") as caught:
        live.declare("x", BINDINGS)

    assert (caught.value.exchange, caught.value.reply_code) == ("x", 406)
    with pytest.raises(MismatchError, match="not of type x-consistent-hash"):
        live.ring("x")


def test_an_exchange_of_other_durability(live: Broker) -> None:
    live.declare("x", BINDINGS, durable=False)

    with pytest.raises(MismatchError, match="inequivalent arg 'durable'"):
        live.declare("x", BINDINGS)


def test_the_broker_does_not_compare_hash_header(live: Broker) -> None:
    live.declare("x", BINDINGS)
    live.declare("x", BINDINGS, arguments={"hash-header": "tenant"})  # a management URL would tell

    assert len(live.ring("x").buckets) == 13


def test_a_queue_with_other_arguments_stops_all_before_anything_is_made(
    live: Broker, channel: BlockingChannel
) -> None:
    channel.queue_declare("q2", durable=True, arguments={"x-max-length": 5})

    with pytest.raises(MismatchError, match=r"inequivalent arg 'x-max-length' for queue 'q2'") as caught:
        live.declare("x", BINDINGS)

    assert caught.value.queue == "q2"
    with pytest.raises(NotFoundError):
        live.ring("x")


def test_a_destination_exchange_must_be_there(live: Broker, channel: BlockingChannel) -> None:
    bindings: list[tuple[Destination, int | str]] = [("q", 1), (ExchangeRef("slot"), 2)]
    with pytest.raises(NotFoundError, match="slot"):
        live.declare("x", bindings)

    channel.exchange_declare("slot", ExchangeType("fanout"), durable=True, internal=True)
    live.declare("x", bindings)

    assert live.ring("x").buckets == ("q", ExchangeRef("slot"), ExchangeRef("slot"))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"exchange": ""}, "exchange"),
        ({"exchange": "a\nb"}, "line break"),
        ({"bindings": [("a\nb", 1)]}, "line break"),
        ({"bindings": [("q", 0)]}, "at least 1"),
        ({"bindings": [("q", "heavy")]}, "whole number"),
        ({"arguments": {"x": object()}}, "cannot be sent"),
        ({"arguments": {"hash_header": "tenant"}}, "did you mean 'hash-header'"),
        ({"queue_arguments": {"x": 1.5}}, "cannot be sent"),
        ({"arguments": {"n" * 256: 1}}, "cannot be sent"),
    ],
)
def test_bad_input_is_refused_here_and_the_connection_goes_on(
    live: Broker, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        live.declare(**{"exchange": "x", "bindings": BINDINGS, **values})

    live.declare("fine", BINDINGS)


def test_a_reserved_name(live: Broker) -> None:
    with pytest.raises(AccessRefusedError, match=r"amq\.mine"):
        live.declare("amq.mine", BINDINGS)


def with_login(url: str, username: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{quote(username, safe='')}:{quote(password, safe='')}@{rest.rpartition('@')[2]}"


def test_a_refused_password(vhost_url: str) -> None:
    start = time.monotonic()
    with (
        pytest.raises(AccessRefusedError, match="refuses the login") as caught,
        Broker(with_login(vhost_url, "guest", "c4nary")),
    ):
        pass

    assert "c4nary" not in str(caught.value)
    assert time.monotonic() - start < 5


def test_a_mechanism_that_is_not_offered(vhost_url: str) -> None:
    with (
        pytest.raises(AccessRefusedError, match="EXTERNAL"),
        Broker(f"{vhost_url}?auth_mechanism=external"),
    ):
        pass
    with Broker(f"{vhost_url}?auth_mechanism=external&auth_mechanism=plain") as live:
        assert live.release


def test_an_unknown_vhost(vhost_url: str) -> None:
    with pytest.raises(NotFoundError, match=r"no vhost '[^']*-gone'"), Broker(f"{vhost_url}-gone"):
        pass


@pytest.fixture
def stranger(vhost: RunningBroker) -> Iterator[tuple[Management, str]]:
    """A user without permissions, and the management to give some."""
    assert vhost.management_url is not None
    management = Management(vhost.management_url)
    name = f"stranger-{time.time_ns()}"
    management.request("PUT", "users", name, body={"password": "pw", "tags": ""})
    yield management, name
    management.request("DELETE", "users", name)


def test_permissions(stranger: tuple[Management, str], vhost_url: str) -> None:
    management, name = stranger
    url = with_login(vhost_url, name, "pw")
    with pytest.raises(AccessRefusedError, match="refuses the vhost"), Broker(url):
        pass

    vhost = ConnectionSettings.from_uri(vhost_url).vhost
    nothing = {"configure": "^$", "write": "^$", "read": "^$"}
    management.request("PUT", "permissions", vhost, name, body=nothing)
    with Broker(url) as live, pytest.raises(AccessRefusedError, match="exchange 'x'"):
        live.declare("x", BINDINGS)


def settings_through(port: int, url: str) -> ConnectionSettings:
    scheme, _, rest = url.partition("://")
    login, _, place = rest.rpartition("@")
    return ConnectionSettings.from_uri(f"{scheme}://{login}@127.0.0.1:{port}/{place.partition('/')[2]}")


def test_a_broker_that_goes_silent(proxy: Callable[..., Any], vhost_url: str) -> None:
    way = proxy()
    connection = PikaConnection(settings_through(way.port, vhost_url), reply_timeout_s=0.5)
    connection.run(check_exchange("here", "amq.direct"))
    way.freeze()

    start = time.monotonic()
    with pytest.raises(BrokerTimeoutError, match=r"no answer within 0\.5 s"):
        connection.run(check_exchange("here", "amq.direct"))
    with pytest.raises(ConnectionLostError):
        connection.run(check_exchange("here", "amq.direct"))
    connection.close()

    assert time.monotonic() - start < 5


def test_a_connection_that_is_cut(proxy: Callable[..., Any], vhost_url: str) -> None:
    way = proxy()
    connection = PikaConnection(settings_through(way.port, vhost_url))
    connection.run(check_exchange("here", "amq.direct"))
    way.cut()

    with pytest.raises(ConnectionLostError, match="connect anew"):
        connection.run(check_exchange("here", "amq.direct"))
    connection.close()
    connection.close()


def test_what_is_missing_is_no_warning_in_the_log(live: Broker, caplog: pytest.LogCaptureFixture) -> None:
    live.declare("quiet", BINDINGS)
    assert not caplog.records


def test_a_destination_of_two_weights(live: Broker) -> None:
    with pytest.raises(InputError, match="'d1' is bound twice, with the weights 1 and 2"):
        live.declare("new", [("d1", 1), ("d1", 2)])


def test_a_ring_source_that_is_none(vhost_url: str) -> None:
    with pytest.raises(InputError, match="cannot be split into words"):
        Broker(vhost_url, ring_source="docker exec 'x")
    with pytest.raises(InputError, match="ring_source is of type bytes"):
        Broker(vhost_url, ring_source=b"docker exec x")  # type: ignore[arg-type]


def test_after_the_connection_is_gone(vhost_url: str, proxy: Callable[..., Any]) -> None:
    way = proxy()
    with Broker(re.sub(r":\d+/", f":{way.port}/", vhost_url)) as broker:
        way.cut()
        with pytest.raises(ConnectionLostError):
            broker.declare("x", BINDINGS)
        with pytest.raises(ConnectionLostError, match="the connection was lost before: connect anew"):
            broker.declare("x", BINDINGS)
        assert broker.release.version
