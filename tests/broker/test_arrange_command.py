"""The slots of a live exchange: read and shown by the commands, against where messages are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pika.exchange_type import ExchangeType
from shop import Shop
from slotted import declare_slots
from taken import taken

from rabbit_chx import ExchangeRef, SlotTable
from rabbit_chx.broker import Broker

pytestmark = pytest.mark.broker

QUEUES = ("e.1", "e.2", "e.3", "e.4")
#: Four heavy keys in slots of one queue, one of another queue, and a tail. None is too hot for a queue.
KEYS = [f"k{n}" for n in range(200)] + ["k18"] * 70 + ["k5"] * 60 + ["k10"] * 50 + ["k13"] * 40 + ["k2"] * 30


@pytest.fixture
def owners(shop: Shop) -> dict[ExchangeRef, str]:
    """An exchange `e` of 16 slots over four queues."""
    return declare_slots(shop.channel, "e", 16, QUEUES)


def published(shop: Shop, keys: Iterable[str]) -> Counter[str]:
    """Publish a message for each key, and return how many come to each queue; they are empty again then.

    A purge over the same channel comes after the messages.
    """
    for key in keys:
        shop.channel.basic_publish("e", key, b"")
    counts = {queue: shop.channel.queue_purge(queue).method.message_count for queue in QUEUES}
    return Counter({queue: count or 0 for queue, count in counts.items()})


def test_the_load_of_a_sample_is_that_of_the_queues(
    shop: Shop, owners: dict[ExchangeRef, str], tmp_path: Path, answer: Callable[..., Any]
) -> None:
    """The heavy keys are named with their slots and queues: a slot is moved in the file."""
    key_file = tmp_path / "keys.txt"
    key_file.write_text("".join(f"{key}\n" for key in KEYS))
    shown = answer("show", "e", "--keys", str(key_file), *shop.live, *shop.via)
    assert shown["slots"] == {slot.name: queue for slot, queue in owners.items()}
    assert sum(member["load"] for member in shown["members"]) == pytest.approx(1)
    assert sum(member["share"] for member in shown["members"]) == pytest.approx(1)
    assert {each["queue"]: round(each["load"] * len(KEYS)) for each in shown["queues"]} == published(
        shop, KEYS
    )
    heaviest = shown["heaviest"][0]
    assert (heaviest["key"], heaviest["least"], heaviest["most"]) == ("k18", 71, 71)
    assert shown["slots"][heaviest["slot"]] == heaviest["queue"]


@pytest.mark.extended
def test_the_table_is_read_and_routes_as_the_broker_does(shop: Shop, owners: dict[ExchangeRef, str]) -> None:
    """Beside the slots there is an exchange that is none, and a slot with two queues is none, either."""
    channel, audit, first = shop.channel, ExchangeRef("audit"), ExchangeRef("e.slot.00")
    channel.queue_declare("e.audit", durable=True)
    channel.exchange_declare(audit.name, ExchangeType("topic"), durable=True)
    channel.queue_bind("e.audit", audit.name, "#")
    channel.exchange_bind(audit.name, "e", "1")
    with Broker(shop.broker.url, shop.broker.management_url, shop.ring_via) as live:
        table = live.slots("e")
        assert table == SlotTable(live.ring("e"), owners, frozenset([audit]))
        assert (table.provenance, table.slots) == ("read", tuple(owners))
        channel.queue_unbind("e.1", first.name, "")
        assert first not in live.slots("e").owners
        for queue in ("e.1", "e.2"):
            channel.queue_bind(queue, first.name, "")
        twice = live.slots("e")
        assert twice.owners == {slot: queue for slot, queue in owners.items() if slot != first}
        assert twice.other_exchanges == {first, audit}
        channel.queue_unbind("e.2", first.name, "")
    channel.confirm_delivery()
    keys = set(KEYS)
    for key in keys:
        channel.basic_publish("e", key, b"", mandatory=True)
    found = {
        method.routing_key: queue for queue in (*QUEUES, "e.audit") for method, _, _ in taken(channel, queue)
    }
    places = {key: table.destination_for(key) for key in keys}
    assert found == {key: "e.audit" if place == audit else place for key, place in places.items()}
