"""A management API that fails while a broker is read and planned: one clear error, and nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from declared import BINDINGS
from scripted_api import ScriptedApi, page

from rabbit_chx import Topology, errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

pytestmark = pytest.mark.broker

WANTED = """
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{ queue = "q3", weight = 2 }, { queue = "q1", weight = 10 }, { queue = "q2" }, { queue = "q4" }]
[[queues]]
name = "q{1..4}"
"""


@pytest.fixture
def api(vhost: RunningBroker) -> Iterator[ScriptedApi]:
    """An API that passes on what is not scripted, of a vhost with the exchange `x`."""
    assert vhost.management_url is not None
    with Broker(vhost.url) as broker:
        broker.declare("x", BINDINGS)
    with ScriptedApi(vhost.management_url) as api:
        yield api


def definitions(vhost: RunningBroker) -> Any:
    name = ConnectionSettings.from_uri(vhost.url).vhost
    return Management(str(vhost.management_url)).request("GET", "definitions", name)


#: Where the API fails, what it does, and what comes of it. The unit tests of `Management` and fuzz/ have other faults.
FAULTS: tuple[Any, ...] = (
    ("queues", page("401 Unauthorized"), errors.AccessRefusedError, "401: check user and password"),
    ("bindings", list, errors.UnreachableError, "that the management plugin is enabled"),
    ("exchanges", page("503 Service Unavailable"), errors.BrokerRefusedError, "503: .* try again later"),
    ("overview", page("200 OK", [{"a": 1}]), errors.BrokerRefusedError, "is not an object"),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[0]}-{fault[3]}")
def test_a_faulty_api_fails_a_read_and_an_apply_and_changes_nothing(
    api: ScriptedApi, vhost: RunningBroker, fault: tuple[str, Any, type[errors.RabbitChxError], str]
) -> None:
    segment, script, kind, says = fault
    before = definitions(vhost)
    with Broker(vhost.url, api.url) as broker:
        made = plan(Topology.from_toml(WANTED), broker.topology())
        api.scripts[segment] = script
        with pytest.raises(kind, match=says):
            broker.topology()
        with pytest.raises(kind, match=says):
            broker.apply(made, allow_moved=1)
        if segment == "exchanges":
            with pytest.raises(kind, match=says):
                broker.exchange("x")
        api.scripts.clear()
        assert definitions(vhost) == before
        assert plan(made.wanted, broker.topology()).checksum == made.checksum  # it can go on


def test_the_api_of_another_broker_is_refused(api: ScriptedApi, vhost: RunningBroker) -> None:
    another = page("200 OK", {"rabbitmq_version": vhost.version, "cluster_name": "rabbit@another-host"})
    says = r"amqp://guest:\*\*\*@.* is .*@.*, and http:.* is rabbit@another-host: pass the URLs of one broker"
    with Broker(vhost.url, api.url) as broker:
        made = plan(Topology.from_toml(WANTED), broker.topology())
        api.scripts["overview"] = another
        for use in (broker.topology, lambda: broker.apply(made, allow_moved=1)):
            with pytest.raises(
                errors.MismatchError, match="is rabbit@another-host: pass the URLs of one broker"
            ):
                use()
    with pytest.raises(errors.MismatchError, match=says), Broker(vhost.url, api.url) as broker:
        assert broker.release
    api.scripts["overview"] = page("200 OK", {"rabbitmq_version": "3.12.1"})
    says = rf"is RabbitMQ {vhost.version}, and http:.* is RabbitMQ 3\.12\.1: pass"
    with pytest.raises(errors.MismatchError, match=says), Broker(vhost.url, api.url) as broker:
        assert broker.release


def test_many_queues_come_in_one_answer(api: ScriptedApi, vhost: RunningBroker) -> None:
    """The broker pages only where it is asked to, by 100 then; a list of pages would be read as a lack of queues."""
    with Broker(vhost.url, api.url) as broker:
        broker.declare("y", [(f"many.{n}", 1) for n in range(120)])
        assert len(broker.topology().queues) == 123
