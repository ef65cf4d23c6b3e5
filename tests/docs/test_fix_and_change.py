"""docs/operate/fix-an-exchange.md, docs/operate/change-an-exchange.md and docs/operate/slots.md: the shares on them are those of the library, and the finding is that of a broker."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pika
import pytest
from blocks import check_output, page, run_command
from exchange_types import CHX
from sides import as_live
from slot_files import live_of

from rabbit_chx import HashRing, Topology
from rabbit_chx.testing import RunningBroker
from rabbit_chx.text import percent
from rabbit_chx.topology import plan

PAGE = "docs/operate/fix-an-exchange.md"
CHANGE = page("docs/operate/change-an-exchange.md")


def test_a_new_exchange_is_bound_before_the_old_one_is_unbound() -> None:
    (text,) = re.findall(r"^```toml\n# next.toml\n(.*?)^```$", CHANGE, re.DOTALL | re.MULTILINE)
    assert '`exchange = "parcels.next"`' in CHANGE
    after = text.replace('exchange = "parcels"\n', 'exchange = "parcels.next"\n')
    changes = plan(Topology.from_toml(after), as_live(Topology.from_toml(text))).changes
    assert [(change.action, change.name) for change in changes] == [
        ("bind", "parcels.in -> exchange parcels.next"),
        ("unbind", "parcels.in -> exchange parcels"),
    ]


def test_two_rings_in_the_same_order_give_each_key_queues_of_the_same_number() -> None:
    """docs/choose.md, "Move from queues to streams"; that a fanout passes the keys on: tests/broker/test_stream_commands.py."""
    keys = [f"customer-{number}" for number in range(1_000)]
    queues, streams = (
        HashRing.from_bindings([(f"{name}.{number}", 1) for number in range(1, 5)])
        for name in ("orders", "orders.log")
    )
    assert queues.indices(keys).tolist() == streams.indices(keys).tolist()


def test_the_file_of_slots_is_read() -> None:
    file, lists, without_slots = re.findall(
        r"^```toml\n(.*?)^```$", page("docs/operate/slots.md"), re.DOTALL | re.MULTILINE
    )
    assert Topology.from_toml(file).exchanges[0].slots == 64
    weights = 'members = [{ queue = "events.{1..4}", weight = 1 }]\n'
    assert weights in file
    assert Topology.from_toml(file).slots("events").owners_assumed
    assert not Topology.from_toml(file.replace(weights, lists)).slots("events").owners_assumed
    live = live_of(Topology.from_toml(file.replace("slots = 64", "slots = 8")))
    wanted = Topology.from_toml(f'{without_slots}[[queues]]\nname = "events.{{1..4}}"\ntype = "quorum"\n')
    made = plan(wanted, live)
    ring = made.rings["events"]
    assert (ring.moved, ring.lost_at_worst, percent(ring.moved_at_worst)) == (0.0, 0.0, "74.993%")
    told = [str(change) for change in made.changes]
    assert {"delete exchange events.slot.00", "delete queue events.park"} <= set(told)
    assert {refusal.allow_with for refusal in made.refusals} == {"--allow delete"}


@pytest.mark.broker
def test_a_finding_is_shown_as_the_command_prints_it(vhost: RunningBroker, tmp_path: Path) -> None:
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", CHX, durable=True)
        for number in range(1, 4):
            channel.queue_declare(f"orders.{number}", durable=True)
            channel.queue_bind(f"orders.{number}", "orders", "10")
        channel.queue_bind("orders.2", "orders", "20")
    environment = {
        "AMQP_URL": vhost.url,
        "RABBIT_CHX_MANAGEMENT_URL": str(vhost.management_url),
        "RABBIT_CHX_RING_VIA": shlex.join(vhost.ring_via or ()),
    }
    ran = run_command("rabbit-chx check", 60, tmp_path, **environment)
    assert ran.returncode == 1
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page(PAGE), re.DOTALL | re.MULTILINE)
    check_output(ran.stdout.decode(), f"...\n{shown}")
