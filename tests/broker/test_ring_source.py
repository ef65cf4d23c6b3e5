"""Reading true rings from a real broker."""

from __future__ import annotations

import pytest
from command_line import ended
from exchange_types import FANOUT
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, DiagnosticsRing, SavedRing
from rabbit_chx.broker.ring_source import eval_expression
from rabbit_chx.errors import NotFoundError, RingSourceError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

HOSTILE = [
    "--help",
    "-p",
    "q'q",
    'q"q',
    "a\\b",
    "$(id)",
    "a;b|c",
    "é☃",
    "{ring,[]}",
    "~p<<1>>.",
    " x ",
    "n" * 255,
    "Ã©",
    "{error,not_found}",
    "Exchange does not exist or is of a different type",
]


@pytest.fixture
def via(broker: RunningBroker) -> tuple[str, ...]:
    """The way to the real tools; that of `vhost` is a quicker one."""
    assert broker.ring_via is not None, "these tests read rings: set RABBIT_CHX_TEST_RING_VIA"
    return broker.ring_via


@pytest.fixture
def vhost_name(vhost_url: str) -> str:
    return ConnectionSettings.from_uri(vhost_url).vhost


@pytest.mark.slow
def test_hostile_names(vhost: RunningBroker, via: tuple[str, ...], vhost_name: str) -> None:
    with Broker(vhost.url) as live:
        for exchange in HOSTILE:
            live.declare(exchange, [(queue, 1) for queue in HOSTILE])

    assert DiagnosticsRing(via).read_all(vhost_name, HOSTILE) == dict.fromkeys(HOSTILE, tuple(HOSTILE))
    for exchange in HOSTILE:
        assert DiagnosticsRing(vhost.ring_via or ()).read(vhost_name, exchange) == tuple(HOSTILE)


def test_a_topology_has_the_default_consumer_timeout_of_the_broker(
    vhost: RunningBroker, via: tuple[str, ...]
) -> None:
    with Broker(vhost.url, vhost.management_url, ring_source=via) as live:
        live.declare("x", [("q", 1)])
        timeout_ms = live.topology().facts.limits.consumer_timeout_ms
    command = [*via, "rabbitmqctl", "-q", "eval", "application:get_env(rabbit, consumer_timeout)."]
    printed = ended(*command).stdout
    assert printed.strip() == f"{{ok,{timeout_ms}}}"


@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_the_locale_of_the_broker_s_tools_makes_no_difference(
    vhost_url: str, via: tuple[str, ...], vhost_name: str, locale: str
) -> None:
    with Broker(vhost_url) as live:
        live.declare("é", [(queue, 1) for queue in HOSTILE])

    in_locale = (*via, "env", f"LC_ALL={locale}")
    assert DiagnosticsRing(in_locale).read(vhost_name, "é") == tuple(HOSTILE)


def test_a_ring_may_be_empty_and_have_an_exchange_of_the_name_of_a_queue(
    vhost_url: str, bare_channel: BlockingChannel, via: tuple[str, ...], vhost_name: str
) -> None:
    bare_channel.exchange_declare("q", FANOUT)
    with Broker(vhost_url) as live:
        live.declare("x", [("q", 2), (ExchangeRef("q"), 1), ("é", 1)])
        live.declare("empty", [])
    read = DiagnosticsRing(via).read_all(vhost_name, ["x", "empty"])
    assert read == {"x": ("q", "q", ExchangeRef("q"), "é"), "empty": ()}


def test_an_exchange_without_a_ring_and_a_missing_vhost_are_not_found(
    via: tuple[str, ...], vhost_name: str
) -> None:
    for exchange in ("-nope", "amq.direct"):
        with pytest.raises(NotFoundError, match="no x-consistent-hash exchange"):
            DiagnosticsRing(via).read(vhost_name, exchange)
    with pytest.raises(NotFoundError, match="'no such vhost'"):
        DiagnosticsRing(via).read("no such vhost", "x")


def test_saved_output_is_the_ring_of_its_exchange_alone(
    vhost: RunningBroker, via: tuple[str, ...], vhost_name: str
) -> None:
    with Broker(vhost.url) as live:
        live.declare("x", [("b", 2), ("a", 1)])
    diagnostics = ["rabbitmq-diagnostics", "consistent_hash_exchange_ring_state", "x", "--vhost", vhost_name]

    for command in (
        diagnostics,
        [*diagnostics, "-q", "--formatter", "json"],
        ["rabbitmqctl", "-q", "eval", eval_expression(vhost_name, "x")],
    ):
        saved = SavedRing(ended(*via, *command).stdout)
        with Broker(vhost.url, ring_source=saved) as live:
            assert live.ring("x").buckets == ("b", "b", "a")
        with pytest.raises(RingSourceError, match="this is the ring of"):
            saved.read("another", "x")
