"""A plan rejects what the broker would reject, or what would lose messages, before anything is declared."""

from __future__ import annotations

from typing import Any

import pytest
from topology_commands import Topologies

from rabbit_chx.broker import Broker
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Release

pytestmark = pytest.mark.broker

QUEUE = '[[queues]]\nname = "first"\n'
TYPE = '[[exchanges]]\nname = "x"\ntype = "{}"\n'
LIMIT = '[[queues]]\nname = "q"\ntype = "quorum"\narguments = { x-delivery-limit = -1 }\n'


def rejected(topologies: Topologies, text: str) -> dict[str, Any]:
    """Return the only refusal of a plan, which `apply` refuses, too, without a change."""
    file = topologies.file(QUEUE + text)
    (refusal,) = topologies.document("plan", file, code=4)["refusals"]
    before = topologies.definitions()  # with the record of the ring, which the plan has read
    assert "Apply it with" not in topologies.run("plan", file, code=4)[0]
    topologies.run("apply", file, "--yes", "--allow-delete", "--allow-moved", "1", code=4)
    assert topologies.definitions() == before
    found: dict[str, Any] = refusal
    return found


def test_a_type_without_its_plugin_or_of_a_later_release_is_refused(topologies: Topologies) -> None:
    release = Release(topologies.shop.broker.version)
    policy = '[[policies]]\nname = "p"\npattern = "^none$"\ndefinition = {{ {} = 60000 }}\n'
    refusal = rejected(topologies, TYPE.format("x-recent-history"))
    assert "is of type x-recent-history, and the broker has no exchanges of this type" in refusal["message"]
    assert "rabbitmq-plugins enable rabbitmq_recent_history_exchange" in refusal["fix"]
    for text, since in (
        (TYPE.format("x-local-random"), (4, 0, 0)),
        (policy.format("consumer-disconnected-timeout"), (4, 3, 0)),
    ):
        if release.numbers < since:
            assert release.version in rejected(topologies, text)["message"]
        else:
            assert topologies.document("plan", topologies.file(QUEUE + text), code=1)["refusals"] == []


def test_a_delivery_limit_that_loses_messages(topologies: Topologies) -> None:
    """RabbitMQ before 4.0 accepts it, and drops each message that is returned."""
    shop, file = topologies.shop, topologies.file(LIMIT)
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    before = topologies.definitions()
    with Broker(shop.broker.url, shop.broker.management_url) as broker:
        if broker.release.numbers >= (4, 0, 0):
            assert len(broker.declare("y", {"y.1": 1}, queue_arguments=arguments).created) == 2
            topologies.run("apply", file, "--yes")
            assert topologies.document("check", file)["findings"] == []
            return
        with pytest.raises(
            InputError, match=r"queue 'y\.1': x-delivery-limit is -1, .* declare the queue without it"
        ):
            broker.declare("y", {"y.1": 1}, queue_arguments=arguments)
    assert topologies.definitions() == before
    assert "drops each message that is returned" in rejected(topologies, LIMIT)["message"]
    shop.channel.queue_declare("q", durable=True, arguments=arguments)
    (finding,) = topologies.document("check", topologies.file(LIMIT), code=1)["findings"]
    assert (finding["kind"], finding["destination"]) == ("dropping-destination", "q")
