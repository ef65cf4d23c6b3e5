"""Rings by their records on a real broker: as ``rabbitmqctl`` reads them, whenever an apply ends."""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter

import pytest
from bounded import until
from broker_faults import faults_of
from changed_site import ChangedSite
from dying_applier import DyingApplier, dying_applier
from found_broker import need
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_prefix

from rabbit_chx import Broker, Topology, UnknownOrderError
from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker, docker_broker
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember, check, plan

# The file is among the slow ones for its extended tests.
pytestmark = [pytest.mark.broker, pytest.mark.core]

#: More by `make long WHAT=apply`.
PLANS = int(os.environ.get("APPLY_PLANS", "8"))
QUEUES = [f"h.{n}" for n in range(6)]


def drawn(random_: random.Random) -> Topology:
    """Return a topology of one or two rings."""
    exchanges = []
    for name in ("h", "h2")[: random_.randint(1, 2)]:
        chosen = random_.sample(QUEUES, random_.randint(1, 5))
        ring = tuple(RingMember(queue, random_.choice(["1", "1", "2"])) for queue in chosen)
        exchanges.append(ExchangeDefinition(name, "x-consistent-hash", ring=ring))
    used = {member.destination for exchange in exchanges for member in exchange.ring or ()}
    queues = [
        QueueDefinition(queue, arguments=random_.choice([{}, {}, {}, {"x-max-length": 5}]))
        for queue in QUEUES
        if queue in used
    ]
    return Topology(tuple(exchanges), tuple(queues), owns=("h*",))


def changed(old: Topology, new: Topology, random_: random.Random) -> Topology:
    """Return a wanted topology that has much in common with the old one, or nothing."""
    kind = random_.randrange(4)
    (first, *_) = old.exchanges
    members = [*(first.ring or ())]
    if kind == 0:
        members.pop(random_.randrange(len(members)))
    elif kind == 1:
        members.append(RingMember("h.new"))
    elif kind == 2:
        random_.shuffle(members)
    else:
        return new
    queues = [*old.queues, QueueDefinition("h.new")]
    exchanges = (ExchangeDefinition(first.name, first.type, ring=tuple(members)), *old.exchanges[1:])
    return Topology(exchanges, tuple(queues), owns=old.owns)


def test_one_exchange_and_its_vhost_tell_the_same_ring(
    vhost: RunningBroker, managed: Broker, bare_channel: BlockingChannel
) -> None:
    """The order is unknown, recorded, doubtful by a binding that differs in arguments only, and known after one bind and one unbind."""
    told = []

    def tell() -> None:
        whole = managed.topology().rings["x"]
        if whole.order.is_known:
            alone = managed.ring("x")
            assert (alone, alone.bindings, alone.order) == (whole, whole.bindings, whole.order)
        else:
            with pytest.raises(UnknownOrderError):
                managed.ring("x")
        told.append(whole.provenance)

    managed.declare("x", {}, records=False)
    for queue in ("a", "b", "c"):
        bare_channel.queue_declare(queue, durable=True)
    for queue in ("b", "a"):
        bare_channel.queue_bind(queue, "x", "1")
    tell()
    with Broker(vhost.url, vhost.management_url, quick_prefix(vhost)) as reading:
        reading.record(reading.topology().rings)
    tell()
    bare_channel.queue_bind("b", "x", "1", {"by": "others"})
    tell()
    bare_channel.queue_unbind("b", "x", "1", {"by": "others"})
    bare_channel.queue_bind("c", "x", "2")
    tell()
    bare_channel.queue_unbind("a", "x", "1")
    tell()
    assert told == [None, "recorded", None, None, None]


@pytest.mark.slow
@pytest.mark.timeout(40 * PLANS + 300)
def test_a_recorded_ring_is_the_one_that_is_read_whenever_an_apply_is_killed(site: ChangedSite) -> None:
    """Each plan is killed before each of its operations, by SIGKILL, and the next apply does it with the same file.

    In the first plan a queue is left to delete in the end, so the plan after that has no steps of rings.
    """
    random_ = random.Random(43)  # noqa: S311
    old = Topology.from_toml(owned({"h": ["h.1", "h.0", "h.2"]}))
    new = Topology.from_toml(owned({"h": ["h.0", "h.2"], "h2": ["h.4", "h.2"]}))
    seen: Counter[str] = Counter()
    with dying_applier(site, reads=False) as applier:
        killed_at_each_operation(site, applier, old, new, seen)
        for _ in range(PLANS):
            old = drawn(random_)
            new = changed(old, drawn(random_), random_)
            killed_at_each_operation(site, applier, old, new, seen)
    assert seen["recorded"] > PLANS, seen
    assert seen["resumed"] >= PLANS // 2, seen


@pytest.mark.extended
@pytest.mark.parametrize("changed_too", [True, False])
def test_a_change_of_one_exchange_keeps_the_evidence_of_another(
    site: ChangedSite, *, changed_too: bool
) -> None:
    """Another program binds a member of `h` again. Its record shows that, also after an apply of a file that has only `h2`."""
    site.apply(Topology.from_toml(owned({"h": ["h.0", "h.1", "h.2"], "h2": ["h.3", "h.4"]})))
    site.channel.queue_unbind("h.0", "h", "1")
    site.channel.queue_bind("h.0", "h", "1")
    ring = ["h.3", "h.4", "h.5"] if changed_too else ["h.3", "h.4"]
    one = Topology.from_toml(owned({"h2": ring}).replace('owns = ["h*"]\n', ""))
    assert bool(site.apply(one).changes) is changed_too
    for _ in range(2):
        (finding,) = check(site.live(), exchange="h").findings
        assert finding.kind == "order"
        site.apply(one)


def owned(rings: dict[str, list[str]]) -> str:
    """Return a file that owns everything, with exchanges by their queues."""
    exchanges = [
        f'[[exchanges]]\nname = "{name}"\ntype = "x-consistent-hash"\n'
        f"ring = [{', '.join(f'{{ queue = {queue!r} }}' for queue in queues)}]\n"
        for name, queues in rings.items()
    ]
    names = sorted({queue for queues in rings.values() for queue in queues})
    return "".join(['owns = ["h*"]\n', *exchanges, *(f'[[queues]]\nname = "{name}"\n' for name in names)])


def killed_at_each_operation(
    site: ChangedSite, applier: DyingApplier, old: Topology, new: Topology, seen: Counter[str]
) -> None:
    """Compare the recorded rings with those that are read after each death, and apply again, which is what was reviewed before the first run."""
    for before in range(200):
        site.apply(Topology(owns=("h*",)), allow_loss=True)
        site.apply(old)
        with Broker(site.broker.url, site.broker.management_url) as live:
            reviewed = plan(new, live.topology())
        if not applier.killed(new, before):
            break
        seen["kills"] += 1
        site.wait_until_unlocked()
        read = site.live()
        with Broker(site.broker.url, site.broker.management_url) as live:  # without rabbitmqctl
            recorded = live.topology()
            for name, ring in recorded.rings.items():
                seen[str(ring.provenance)] += 1
                if ring.order.is_certain:
                    assert (name, ring.buckets) == (name, read.rings[name].buckets)
                else:
                    assert "has not ended" in ring.order.doubt, (name, ring.order)
            again = plan(new, recorded)
            if again.changes:
                assert again.checksum == reviewed.checksum, (str(reviewed.changes), str(again.changes))
                assert {name: ring.moments for name, ring in again.rings.items() if ring.is_moving} == {
                    name: reviewed.rings[name].moments for name, ring in again.rings.items() if ring.is_moving
                }
                seen["resumed"] += bool(again.resumes)
            left = reviewed if again.changes else again
            live.apply(left, allow_moved=1.0, allow_delete=True, allow_loss=True)
            after = live.topology()
            assert not plan(new, after).changes
            assert {ring.provenance for ring in after.rings.values()} == {"recorded"}
    site.check_done(new)


WAYS = ("stop_app", "restart", "kill")


@pytest.mark.docker
@pytest.mark.restarts
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("series", ["4.3", "3.10"])
def test_a_record_holds_only_on_the_broker_and_since_the_start_that_its_mark_shows(series: str) -> None:
    """With Khepri a record holds after each restart; with Mnesia it is void, also after another ring is recorded anew."""
    need("docker")
    with docker_broker(series) as broker:
        reading = broker.management_url, broker.ring_via
        assert broker.management_url is not None
        api = Management(broker.management_url)
        with Broker(broker.url, *reading) as first:
            for name in ("x", "y"):
                first.declare(name, [("c", 1), ("a", 2), ("b", 1)])
            keeps = first.release.store == "khepri"
            assert told(broker) == {"x": True, "y": True}
            copy_vhost(api, "/", "copy")
        with Broker(f"{broker.url.rpartition('/')[0]}/copy", broker.management_url) as copied:
            doubts = {name: ring.order.doubt for name, ring in copied.topology().rings.items()}
        assert doubts["x"].endswith("it is of the vhost /, and this is copy")
        for way in WAYS:
            if way == "stop_app":
                assert broker.ring_via is not None
                for command in ("stop_app", "start_app"):
                    subprocess.run(
                        [*broker.ring_via, "rabbitmqctl", command],
                        check=True,
                        capture_output=True,
                    )
            else:
                getattr(faults_of(broker), way)()
                faults_of(broker).start()
            assert told(broker) == {"x": keeps, "y": keeps}, way
            with Broker(broker.url, *reading) as after:
                after.record({"x": after.topology().rings["x"]})
            assert told(broker) == {"x": True, "y": keeps}, way
            with Broker(broker.url, *reading) as after:
                after.record({"y": after.topology().rings["y"]})
            assert told(broker) == {"x": True, "y": True}, way
        api.put(
            "policies",
            "/",
            "short",
            body={"pattern": "mark", "apply-to": "queues", "definition": {"max-length": 0}},
        )
        with Broker(broker.url, broker.management_url) as managed:
            until(lambda: not managed.topology().rings["x"].order.is_known, "the mark is empty")
            assert (
                managed.topology()
                .rings["x"]
                .order.doubt.endswith(
                    "is empty, because of policy short (max-length): it was imported, copied or purged"
                )
            )


def told(broker: RunningBroker) -> dict[str, bool]:
    """Return whether the ring of each exchange is recorded; then it is the one that is read."""
    with Broker(broker.url, broker.management_url, broker.ring_via) as reading:
        read = reading.topology().rings
    with Broker(broker.url, broker.management_url) as managed:
        rings = managed.topology().rings
    for name, ring in rings.items():
        assert ring.provenance != "recorded" or ring.buckets == read[name].buckets
    return {name: ring.provenance == "recorded" for name, ring in rings.items()}


def copy_vhost(api: Management, vhost: str, other: str) -> None:
    """Make a vhost with the exchanges and the definitions of another."""
    api.put("vhosts", other, body={})
    api.put("permissions", other, "guest", body=dict.fromkeys(("configure", "write", "read"), ".*"))
    for exchange in api.get_list("exchanges", vhost, fields={"name": str}):
        if exchange["name"] and not exchange["name"].startswith("amq."):
            fields = ("type", "durable", "auto_delete", "internal", "arguments")
            api.put("exchanges", other, exchange["name"], body={field: exchange[field] for field in fields})
    api.request("POST", "definitions", other, body=api.get("definitions", vhost))
