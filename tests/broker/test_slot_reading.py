"""The slots of a live exchange, read, and shown by the commands, against where messages are."""

from __future__ import annotations

from typing import Any

import pytest
from pika.exchange_type import ExchangeType
from shop import Shop
from slotted import declare_slots

from rabbit_chx import ExchangeRef, SlotTable
from rabbit_chx.broker import Broker, DiagnosticsRing
from rabbit_chx.errors import ManagementNeededError, NotFoundError

pytestmark = pytest.mark.broker

SLOTS = [ExchangeRef(f"e.slot.{n:02}") for n in range(8)]
QUEUES = ("e.1", "e.2", "e.3")
OWNERS = {slot: QUEUES[n % 3] for n, slot in enumerate(SLOTS)}
AUDIT = ExchangeRef("audit")
KEYS = [f"key-{n}" for n in range(90)]


@pytest.fixture
def slotted(shop: Shop) -> Shop:
    """The shop, with an exchange `e` of eight slots over three queues, and beside the slots an exchange that is none."""
    channel = shop.channel
    assert declare_slots(channel, "e", 8, QUEUES) == OWNERS
    channel.queue_declare("e.audit", durable=True)
    channel.exchange_declare(AUDIT.name, ExchangeType("topic"), durable=True)
    channel.queue_bind("e.audit", AUDIT.name, "#")
    channel.exchange_bind(AUDIT.name, "e", "1")
    return shop


def queues_of_messages(shop: Shop) -> dict[str, str]:
    """Publish a message for each key, and return the queue that it is in."""
    shop.channel.confirm_delivery()
    for key in KEYS:
        shop.channel.basic_publish("e", key, key.encode(), mandatory=True)
    found = {}
    for queue in (*QUEUES, "e.audit"):
        while (body := _body(shop, queue)) is not None:
            found[body.decode()] = queue
    return found


def _body(shop: Shop, queue: str) -> Any:
    """The body of the next message; None where there is none. The stubs of pika take it for text."""
    return shop.channel.basic_get(queue, auto_ack=True)[2]


def test_the_table_is_read_and_routes_as_the_broker_does(slotted: Shop) -> None:
    with Broker(slotted.broker.url, slotted.broker.management_url, DiagnosticsRing(slotted.ring_via)) as live:
        table = live.slots("e")
        assert table == SlotTable(live.ring("e"), OWNERS, frozenset([AUDIT]))
        assert (table.provenance, table.slots) == ("read", tuple(SLOTS))
        assert live.slots("orders").owners == {ExchangeRef("slot"): "q4"}
        with pytest.raises(NotFoundError, match="there is no exchange 'nowhere'"):
            live.slots("nowhere")
        slotted.channel.queue_unbind("e.2", "e.slot.01", "")
        assert SLOTS[1] not in live.slots("e").owners
        slotted.channel.queue_bind("e.1", "e.slot.01", "")
        slotted.channel.queue_bind("e.2", "e.slot.01", "")
        twice = live.slots("e")
        assert twice.owners == {slot: queue for slot, queue in OWNERS.items() if slot != SLOTS[1]}
        assert twice.other_exchanges == {SLOTS[1], AUDIT}
        slotted.channel.queue_unbind("e.1", "e.slot.01", "")
    assert queues_of_messages(slotted) == {
        key: "e.audit" if place == AUDIT else place for key in KEYS for place in [table.destination_for(key)]
    }


def test_what_is_parked_is_counted_at_once(slotted: Shop) -> None:
    slotted.channel.queue_unbind("e.2", "e.slot.01", "")
    found = queues_of_messages(slotted)
    parked = len(set(KEYS) - set(found))
    with Broker(slotted.broker.url, slotted.broker.management_url) as live:
        assert live.topology().facts.messages["e.park"] == parked > 0
        slotted.channel.queue_purge("e.park")
        assert live.topology().facts.messages["e.park"] == 0


def test_without_the_management_api_the_queues_are_unknown(slotted: Shop) -> None:
    with (
        Broker(slotted.broker.url, ring_source=DiagnosticsRing(slotted.ring_via)) as live,
        pytest.raises(ManagementNeededError, match="pass management_url="),
    ):
        live.slots("e")
