"""Every kind of change: planned, applied and compared, on every release, with pika and with aio-pika."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import aio_pika
import pytest
from changed_site import ChangedSite, changed_site
from exchange_types import CHX
from few_seeds import few_seeds
from plan_scenarios import SCENARIOS
from slotted import declare_slots

from rabbit_chx import HashRing, Topology
from rabbit_chx.errors import ApplyError, PlanRefusedError
from rabbit_chx.planning.slot_layout import collapse
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    check,
    healed,
    plan,
)
from rabbit_chx.topology.reach import select_reached
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

# The stored scenarios whose live side a broker has when its rings are bound in order.
DONE = (
    "02-everything-is-new",
    "04-a-queue-is-added-in-the-middle",
    "06-the-first-of-ten-goes-and-too-much-moves",
    "08-a-weight-changes",
    "11-the-only-member-changes",
    "21-what-is-owned-is-deleted",
    "22-what-is-not-owned-stays",
    "24-another-type-of-queue-in-the-ring",
    "25-another-hash-header",
    "29-a-policy-changes",
    "30-a-binding-changes",
    "34-an-exchange-that-is-a-member-is-replaced",
    "35-a-direct-exchange-becomes-a-hash-exchange",
)
REFUSED = (
    "20-another-cluster",
    "27-an-external-queue-is-missing",
    "31-a-queue-that-nobody-declares",
    "33-slots",
)
NAMES = (
    "a/b",
    "ü€😀",
    "%2F",
    "q?x=1&y",
    "#",
    "..",
    '"',
    "it's",
    "back\\slash",
    "tab\tq",
    "\x01",
    "x" * 255,
    "~",
)
EVERY_KIND = """
[[exchanges]]
name = "news"
type = "headers"
arguments = { alternate-exchange = "lost" }
[[exchanges]]
name = "lost"
type = "fanout"
internal = true
[[exchanges]]
name = "once"
auto_delete = true
durable = false
[[queues]]
name = "classic"
arguments = { x-max-length = 5, x-dead-letter-exchange = "lost" }
[[queues]]
name = "quorum"
type = "quorum"
[[queues]]
name = "stream"
type = "stream"
arguments = { x-max-length-bytes = 1000000 }
[[queues]]
name = "passing"
durable = false
auto_delete = true
[[bindings]]
source = "news"
queue = "quorum"
arguments = { x-match = "any", size = 5, far = 5000000000, hot = true, tags = "a" }
[[bindings]]
source = "news"
exchange = "lost"
arguments = { size = %d }
[[bindings]]
source = "once"
queue = "passing"
routing_key = "k"
[[bindings]]
source = "amq.topic"
queue = "stream"
routing_key = "#"
"""


@pytest.fixture(scope="module")
def site(rabbit: Rabbit) -> Iterator[ChangedSite]:
    """A vhost that is as it was after each test."""
    with few_seeds(), changed_site(rabbit.broker) as made:
        yield made


@pytest.fixture(autouse=True)
def _clean(site: ChangedSite) -> Iterator[None]:
    """Delete what a test has made, by a plan."""
    yield
    live = site.live()
    names = (
        [exchange.name for exchange in live.exchanges]
        + [queue.name for queue in live.queues]
        + [policy.name for policy in live.policies]
    )
    ours = tuple(name for name in names if not name.startswith("theirs"))
    site.apply(Topology(owns=ours), allow_loss=True)
    site.check_theirs()


@pytest.mark.parametrize("name", DONE)
def test_a_stored_scenario_is_applied_as_planned(site: ChangedSite, name: str) -> None:
    wanted, live = SCENARIOS[name]
    site.apply(replace(live.as_wanted(), cluster=None))
    planned = site.planned(wanted)
    done = site.apply(planned)
    assert done.changes == planned.changes
    assert {name: ring.buckets for name, ring in done.rings.items()} == {
        name: ring.after.buckets for name, ring in planned.rings.items() if ring.steps and name in done.rings
    }
    site.check_done(wanted)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_scenario_changes_nothing(site: ChangedSite, name: str) -> None:
    wanted, live = SCENARIOS[name]
    site.apply(replace(live.as_wanted(), cluster=None))
    before = site.exported()
    with pytest.raises(PlanRefusedError):
        site.apply(wanted)
    assert site.exported() == before


def ring_of(members: str) -> Topology:
    """A hash exchange with weights behind colons."""
    parts = [part.partition(":") for part in members.split()]
    ring = tuple(RingMember(name, weight or "1") for name, _, weight in parts)
    return Topology(
        (ExchangeDefinition("h", CHX, ring=ring),), tuple(QueueDefinition(f"q{n}") for n in range(8))
    )


def test_a_ring_is_as_planned_on_its_way_through_many_others(site: ChangedSite) -> None:
    ways = ("q0 q1 q2 q3 q4", "q0 q1 q3 q4", "q0 q1:3 q4 q3:2", "q4 q3 q1 q0", "q7 q3 q1:2 q6 q5", "", "q2:4")
    for way in ways:
        wanted = ring_of(way)
        planned = site.planned(wanted)
        after = site.apply(planned).rings["h"]
        assert after.buckets == planned.rings["h"].after.buckets
        members = [member.binding for member in wanted.exchanges[0].ring or ()]
        assert after.buckets == HashRing.from_bindings(members, after.release).buckets
        again = site.planned(wanted)
        assert (again.changes, again.refusals) == ((), ())


def test_objects_of_every_kind_come_change_and_go(rabbit: Rabbit, site: ChangedSite) -> None:
    denies_transient = rabbit.release.numbers >= (4, 3, 0)

    def read(text: str) -> Topology:
        if denies_transient:
            text = text.replace('name = "passing"\ndurable = false', 'name = "passing"')
        return Topology.from_toml(text)

    there = read(EVERY_KIND % 1)
    assert len(site.apply(there).changes) == 11
    site.check_done(there)

    owns = ("news", "lost", "classic", "quorum", "passing")
    text = (
        (EVERY_KIND % 2)
        .replace("x-max-length = 5", "x-max-length = 6")
        .replace('"quorum"\n[', '"classic"\n[')
    )
    wanted = replace(read(text), owns=owns)
    with pytest.raises(PlanRefusedError, match="allow_delete=True"):
        site.apply(wanted, allow_delete=False)
    done = site.apply(wanted)
    assert [change.name for change in done.changes if change.action == "replace"] == ["classic", "quorum"]
    site.check_done(wanted)


def test_names_with_any_character(site: ChangedSite) -> None:
    there = Topology(
        (
            ExchangeDefinition("h/#", CHX, ring=tuple(map(RingMember, NAMES))),
            ExchangeDefinition("e ü/%", "headers"),
        ),
        tuple(map(QueueDefinition, NAMES)),
        tuple(BindingDefinition("e ü/%", name, name, {"n": name}) for name in NAMES),
        (PolicyDefinition("p/ü %", "^none$", definition={"max-length": 5}),),
    )
    assert there.problems == ()
    site.apply(there)
    site.check_done(there)
    fewer = replace(
        there,
        exchanges=(replace(there.exchanges[0], ring=(there.exchanges[0].ring or ())[1:]), there.exchanges[1]),
        bindings=there.bindings[1:],
        owns=("e ü/%", *NAMES),
    )
    site.apply(fewer)
    site.check_done(fewer)


def test_bindings_whose_arguments_json_does_not_tell(site: ChangedSite) -> None:
    """aio-pika sends numbers in the smallest type that takes them, pika in others."""

    async def bound() -> None:
        async with await aio_pika.connect(site.broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q", durable=True)
            exchange = await channel.declare_exchange("x", aio_pika.ExchangeType.HEADERS, durable=True)
            tables: list[Any] = [{"n": 5}, {"n": 300}, {"n": None}, {"n": [1, {"n": 2}]}]
            for n, arguments in enumerate(tables):
                await queue.bind(exchange, f"key {n}~", arguments=arguments)

    asyncio.run(bound())
    wanted = Topology.from_toml(
        'owns = ["x", "q"]\n[[exchanges]]\nname = "x"\ntype = "headers"\n[[queues]]\nname = "q"'
    )
    assert len(site.apply(wanted).changes) == 4
    site.check_done(wanted)


def test_what_pika_cannot_send_is_refused_before_anything_is_changed(site: ChangedSite) -> None:
    wanted = Topology(queues=(QueueDefinition("a"), QueueDefinition("b", arguments={"rate": 1.5})))
    before = site.exported()
    with pytest.raises(PlanRefusedError, match="pika sends no floats"):
        site.apply(wanted)
    assert site.exported() == before


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_with_messages_is_not_deleted(site: ChangedSite, kind: str) -> None:
    site.apply(Topology(queues=(QueueDefinition("used", kind), QueueDefinition("unused"))))
    other = Topology(owns=("used", "unused"))
    channel = site.channel.connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "used", b"")
    with pytest.raises(ApplyError, match="queue used still has 1 message and no consumers"):
        site.apply(other)
    assert [change.name for change in site.planned(other).changes] == ["used"]

    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("used", lambda *_: None)
    with pytest.raises(ApplyError, match="queue used still has 1 message and 1 consumer after 2 s"):
        site.apply(other, drain_s=2)
    assert len(site.apply(other, allow_loss=True).changes) == 1
    site.check_done(other)


def test_a_stream_is_not_deleted(site: ChangedSite) -> None:
    site.apply(Topology(queues=(QueueDefinition("used", "stream"), QueueDefinition("unused"))))
    other = Topology(owns=("used", "unused"))
    before = site.exported()
    with pytest.raises(PlanRefusedError, match="queue used is to be deleted") as refused:
        site.apply(other)
    assert [refusal.allow_with for refusal in refused.value.refusals] == ["--allow loss"]
    assert site.exported() == before
    assert len(site.apply(other, allow_loss=True).changes) == 2
    site.check_done(other)


def test_a_replaced_queue_keeps_its_place_and_the_bindings_of_others(site: ChangedSite) -> None:
    text = '[[exchanges]]\nname = "h"\ntype = "x-consistent-hash"\nring = [{{ queue = "q{{1..3}}", weight = 2 }}]\n'
    text += '[[queues]]\nname = "q1"\n[[queues]]\nname = "q3"\n[[queues]]\nname = "q2"\ntype = "{}"\n'
    site.apply(Topology.from_toml(text.format("classic")))
    site.channel.queue_bind("q2", "theirs.news", "k", {"x-match": "any", "site": "b"})
    bindings = site.live().bindings
    before = site.live().rings["h"]

    wanted = Topology.from_toml(text.format("quorum"))
    site.apply(wanted)
    live = site.live()
    assert live.rings["h"] == before
    assert set(live.bindings) == set(bindings)
    assert [queue.type for queue in live.queues if queue.name == "q2"] == ["quorum"]
    site.check_done(wanted)


def test_second_bindings_are_mended(site: ChangedSite) -> None:
    wanted = ring_of("q0 q1 q2")
    site.apply(wanted)
    site.channel.queue_bind("q1", "h", "5")
    assert site.planned(wanted).changes
    site.channel.queue_unbind("q1", "h", "1")
    site.apply(wanted)
    site.check_done(wanted)


def test_a_default_queue_type_of_the_vhost_decides_nothing(rabbit: Rabbit, site: ChangedSite) -> None:
    if rabbit.release.numbers < (3, 11):
        pytest.skip("a vhost of that release has no default queue type")
    site.request("PUT", "vhosts", body={"default_queue_type": "quorum"})
    site.channel.queue_declare("asked", durable=True)
    site.channel.queue_declare("said", durable=True, arguments={"x-queue-type": "classic"})
    text = (
        '[[queues]]\nname = "asked"\ntype = "quorum"\n[[queues]]\nname = "said"\n[[queues]]\nname = "new"\n'
    )
    wanted = Topology.from_toml(text)
    assert [change.name for change in site.apply(wanted).changes] == ["new"]
    site.check_done(wanted)


def test_slots_are_exported_checked_and_repaired(site: ChangedSite) -> None:
    owners = declare_slots(site.channel, "events", 16, [f"events.{n}" for n in range(1, 6)])
    live = site.live()
    wanted = Topology.from_toml(collapse(select_reached(live, ["events"]))[0].to_toml())
    (exported,) = wanted.exchanges
    assert (exported.slots, wanted.bindings) == (16, ())
    assert (site.planned(wanted).changes, check(live, wanted).findings) == ((), ())

    with site.connected() as broker:
        before = broker.slots("events")
    assert before.owners == owners
    for slot in ("events.slot.03", "events.slot.01"):
        site.channel.exchange_unbind(slot, "events", "1")
        site.channel.exchange_bind(slot, "events", "1")
    live = site.live()
    with site.connected() as broker:
        share = broker.slots("events").share_moved(before)
    for found in (check(live, wanted), check(live, exchange="events")):
        assert [(finding.kind, finding.share) for finding in found.findings] == [("order", share)]
    repair = plan(healed(live, "events"), live)
    assert repair.rings["events"].moved == share
    site.apply(repair)
    site.check_done(wanted)
    assert check(site.live(), wanted).sound


def test_slots_that_are_removed_leave_no_buckets(site: ChangedSite) -> None:
    """RabbitMQ 4.3 before 4.3.6 keeps the buckets of a destination exchange that is deleted while it is bound (rabbitmq-server #17255)."""
    declare_slots(site.channel, "events", 8, ["events.1", "events.2"])
    site.apply(Topology(owns=("events.slot.*",)))
    live = site.live()
    assert live.rings["events"].buckets == ()
    assert [exchange.name for exchange in live.exchanges if exchange.name.startswith("events.slot")] == []


def test_a_change_that_the_broker_refuses_is_reported_and_the_rest_applied_later(
    site: ChangedSite,
) -> None:
    user = {"password": "some", "tags": "management"}
    management: Any = site._management
    management.request("PUT", "users", "some", body=user)
    may = {"configure": "^(?!q5$)", "write": ".*", "read": ".*"}
    site.request("PUT", "permissions", "some", body=may)
    url = site.broker.url.replace("guest:guest", "some:some")
    limited = ChangedSite(replace(site.broker, url=url), site.channel)
    wanted = ring_of("q0 q1 q2")
    with pytest.raises(
        ApplyError, match=r"configure on queue q5.*no ring was changed: the same command does"
    ):
        limited.apply(wanted)
    assert "h" not in site.live().rings or not site.live().rings["h"].buckets
    site.admin("DELETE", "users", "some")
    site.apply(wanted)
    site.check_done(wanted)
