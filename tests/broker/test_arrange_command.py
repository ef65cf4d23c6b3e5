"""The slots of a live exchange: read, shown and balanced by the commands, against where messages are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from exchange_types import CHX
from pika.exchange_type import ExchangeType
from shop import Shop
from slotted import declare_slots
from taken import taken

from rabbit_chx import ExchangeRef, SlotTable
from rabbit_chx.broker import Broker
from rabbit_chx.cli import main
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember, Topology

pytestmark = pytest.mark.broker

QUEUES = ("e.1", "e.2", "e.3", "e.4")
#: Four heavy keys in slots of one queue, one of another queue, and a tail. None is too hot for a queue.
KEYS = [f"k{n}" for n in range(200)] + ["k18"] * 70 + ["k5"] * 60 + ["k10"] * 50 + ["k13"] * 40 + ["k2"] * 30


@pytest.fixture
def owners(shop: Shop) -> dict[ExchangeRef, str]:
    """An exchange `e` of 16 slots over four queues."""
    return declare_slots(shop.channel, "e", 16, QUEUES)


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "keys.txt"
    path.write_text("".join(f"{key}\n" for key in KEYS))
    return str(path)


def published(shop: Shop, keys: Iterable[str]) -> Counter[str]:
    """Publish a message for each key, and return how many come to each queue; they are empty again then.

    A purge over the same channel comes after the messages.
    """
    for key in keys:
        shop.channel.basic_publish("e", key, b"")
    counts = {queue: shop.channel.queue_purge(queue).method.message_count for queue in QUEUES}
    return Counter({queue: count or 0 for queue, count in counts.items()})


def test_the_busiest_queue_is_under_the_target_once_the_proposal_is_applied(
    shop: Shop, owners: dict[ExchangeRef, str], key_file: str, tmp_path: Path, answer: Callable[..., Any]
) -> None:
    """The load is that of the queues. Proposal, file, plan, apply, and the same load again."""
    live = (*shop.live, *shop.via)
    shown = answer("show", "e", "--keys", key_file, *live)
    assert shown["slots"] == {slot.name: queue for slot, queue in owners.items()}
    assert sum(member["load"] for member in shown["members"]) == pytest.approx(1)
    assert sum(member["share"] for member in shown["members"]) == pytest.approx(1)
    file = tmp_path / "topology.toml"
    members = tuple(map(RingMember, QUEUES))
    wanted = ExchangeDefinition("e", CHX, slots=16, members=members)
    file.write_text(Topology((wanted,), tuple(map(QueueDefinition, QUEUES))).to_toml())
    made = answer("arrange", str(file), "--write", "--keys", key_file, *live)["balance"]
    before = published(shop, KEYS)
    for name, document in (("load", shown), ("before", made)):
        assert {each["queue"]: round(each[name] * len(KEYS)) for each in document["queues"]} == before
    assert max(before.values()) > 0.3 * len(KEYS)
    assert made["state"] == "proposed"
    assert len(made["moves"]) == 2

    (ring,) = answer("plan", str(file), *live, code=1)["rings"]
    assert ring["moved"] == pytest.approx(made["moved"]["keys"])
    answer("apply", str(file), "--yes", *live)

    after = published(shop, KEYS)
    assert {queue["queue"]: round(queue["after"] * len(KEYS)) for queue in made["queues"]} == after
    assert max(after.values()) <= 0.3 * len(KEYS)
    answer("plan", str(file), *live)


@pytest.mark.usefixtures("owners")
def test_a_sample_needs_the_true_ring_and_one_exchange_with_slots(
    shop: Shop, key_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("plain", CHX, durable=True)
    shop.channel.queue_bind("e.1", "plain", "1")
    queues, live = tuple(map(QueueDefinition, QUEUES)), (*shop.live, *shop.via)

    def file(name: str, **of: int) -> str:
        made = [
            ExchangeDefinition(one, CHX, slots=count, members=(RingMember("e.1"),))
            for one, count in of.items()
        ]
        path = tmp_path / name
        path.write_text(Topology(tuple(made), queues).to_toml())
        return str(path)

    one, sample = file("one.toml", e=16), ("--keys", key_file)
    for arguments, says in (
        ((one, *sample, *shop.live), "pass --ring-via"),
        ((one, "--target", "1.1", *live), "--target has no effect without --keys"),
        ((one, "--weight", "e.1=2", *live), "--weight has no effect without --keys"),
        ((file("none.toml"), *sample, *live), "has slots for no exchange"),
        ((file("two.toml", e=16, f=16), *sample, *live), "has slots for e, f"),
        ((file("new.toml", f=16), *sample, *live), "f is not on the broker"),
        ((file("plain.toml", plain=16), *sample, *live), "does not have slots"),
        ((file("fewer.toml", e=8), *sample, *live), "e has 16 slots, and 8 in"),
        ((one, *sample, "--weight", "e.1", *live), "write QUEUE=WEIGHT"),
        ((one, *sample, "--weight", "e.11=0", *live), "e.11 is not a member of e: pass one of e.1"),
    ):
        assert main(["arrange", *arguments]) == 2, (says, capsys.readouterr())
        assert says in capsys.readouterr().err


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
