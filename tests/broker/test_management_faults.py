"""A management API of another broker is refused, and long answers are whole. unit/broker/test_management.py has the faults of an API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from declared import BINDINGS
from scripted_api import ScriptedApi, page

from rabbit_chx import Topology, errors
from rabbit_chx.broker import Broker
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


def test_the_api_of_another_broker_is_refused(api: ScriptedApi, vhost: RunningBroker) -> None:
    another = page("200 OK", {"rabbitmq_version": vhost.version, "cluster_name": "rabbit@another-host"})
    says = r"amqp://guest:\*\*\*@.* is .*@.*, and http:.* is rabbit@another-host: pass the addresses of one broker"
    with Broker(vhost.url, api.url) as broker:
        made = plan(Topology.from_toml(WANTED), broker.topology())
        api.scripts |= {"overview": another, "nodes": page("200 OK", [{"name": "rabbit@another-host"}])}
        for use in (broker.topology, lambda: broker.apply(made, allow_moved=1)):
            with pytest.raises(
                errors.MismatchError, match="is rabbit@another-host: pass the addresses of one broker"
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
