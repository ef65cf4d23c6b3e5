"""Stored checks: what a check finds in each scenario, as text in `checks.txt`. Any change of it is a difference to review.

``python tests/unit/topology/checking/test_stored_checks.py`` with tests/support on the path writes the file again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from sides import as_live

from rabbit_chx.analysis.finding_kinds import CHECK_KINDS
from rabbit_chx.cli.printed import in_words
from rabbit_chx.errors import InputError, MismatchError, NotFoundError
from rabbit_chx.routing import Destination, ExchangeRef, Ground, HashRing, Release
from rabbit_chx.routing.arrays import seeds
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.observations import Observation
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    plan,
)
from rabbit_chx.topology.slot_owners import SlotNames
from rabbit_chx.topology.slots import expand

pytestmark = pytest.mark.all_seeds

STORED = Path(__file__).with_name("checks.txt")
RELEASE = Release("4.3.6")


class Scenario(NamedTuple):
    """What is on a broker, and the topology that it is checked against, if any."""

    live: LiveTopology
    wanted: Topology | None = None
    exchange: str | None = None
    file: str = "t.toml"
    observed: tuple[tuple[Any, ...], ...] = ()  # key, queue, number of messages


def stored_text(scenario: Scenario) -> str:
    """Return what is found, and the shares that metrics have."""
    live, wanted, exchange, file, pairs = scenario
    observed = (
        {str(exchange): [Observation(key, str(queue), None, *counts) for key, queue, *counts in pairs]}
        if pairs
        else None
    )
    found = check(live, wanted, exchange=exchange, file=file if wanted else None, observed=observed)
    lines = []
    for finding in found.findings:
        share = "" if finding.share is None else f" {finding.share!r}"
        lines += [
            f"{finding.kind} [{finding.exchange}] [{finding.destination}]{share}",
            f"  {finding.message}",
        ]
        lines += [f"  -> {in_words(finding.fix)}"] if finding.fix else []
    for name in ("unroutable", "misplaced", "parked"):
        figures = {place: figure for place, figure in getattr(found, name).items() if figure}
        lines += [f"{name}: {figures}"] if figures else []
    return "\n".join(lines or ["sound"])


def read(
    topology: Topology,
    rings: Mapping[str, Sequence[Place]] | None = None,
    release: Release = RELEASE,
    **others: Any,
) -> LiveTopology:
    """Return a topology as a broker has it. A ring that is not given has the buckets of its members."""
    plain = expand(topology, LiveTopology())
    buckets: dict[str, Sequence[Place]] = {
        exchange.name: [member.destination for member in exchange.ring for _ in range(int(member.key))]
        for exchange in plain.exchanges
        if exchange.ring is not None
    }
    held = {
        name: HashRing.from_buckets(ring, release, next_bucket=len(ring))
        for name, ring in {**buckets, **(rings or {})}.items()
    }
    return as_live(plain, release=release, **others).with_rings(held)


# -- a ring against its own bindings, and against a file

ORDERS = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q1", weight = 2 }, { queue = "q2" }, { queue = "q3" }]
[[queues]]
name = "q{1..3}"
"""
WANTED = Topology.from_toml(ORDERS)
RING = ("q1", "q1", "q2", "q3")
OF_PROD = replace(WANTED, cluster="rabbit@prod")
HEADER = ORDERS.replace('hash"\n', 'hash"\narguments = { hash-header = "tenant" }\n')
EXTERNAL = ORDERS.replace('hash"\n', 'hash"\nowner = "external"\n')
ALTERNATE = ORDERS.replace('hash"\n', 'hash"\narguments = { alternate-exchange = "amq.fanout" }\n')
UNEVEN = Topology.from_toml(
    '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{ queue = "q1" }, { queue = "q2", weight = 2 }]\n'
    '[[queues]]\nname = "q{1..2}"\n'
)
OTHER_MEMBERS = Topology.from_toml(
    ORDERS.replace('{ queue = "q3" }', '{ queue = "q4" }')
    .replace("weight = 2", "weight = 3")
    .replace("1..3", "1..4")
)
LEADS_ON = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q1" }, { exchange = "slot" }]
[[exchanges]]
name = "slot"
type = "fanout"
[[queues]]
name = "q1"
"""
OBJECTS = """
[[exchanges]]
name = "x.topic"
type = "topic"
[[queues]]
name = "jobs"
arguments = { x-max-length = 5 }
[[bindings]]
source = "x.topic"
queue = "jobs"
routing_key = "a"
[[policies]]
name = "p"
pattern = "none"
definition = { max-length = 1 }
"""
SHORT_LIVED = ORDERS.replace('hash"\n', 'hash"\ndurable = false\nauto_delete = true\n')
COPIED = """
[[exchanges]]
name = "images"
type = "fanout"
[[policies]]
name = "shards"
pattern = "^images$"
apply_to = "exchanges"
definition = { shards-per-node = 4, routing-key = "1" }
"""
TO_OTHERS = (
    '[[queues]]\nname = "theirs"\n[[bindings]]\nsource = "x.topic"\nqueue = "theirs"\nrouting_key = "b"\n'
)
OTHER_OBJECTS = (
    OBJECTS.replace("= 5", "= 6").replace('key = "a"', 'key = "b"').replace('name = "p"', 'name = "o"')
)
OWNED = Topology.from_toml(f'owns = ["x.*", "jobs*"]\ncluster = "rabbit@prod"\n{ORDERS}{OBJECTS}')
EXTRA = '[[queues]]\nname = "jobs.old"\n[[queues]]\nname = "theirs"\n'


def orders(*buckets: Place, text: str = ORDERS, release: Release = RELEASE, **others: Any) -> LiveTopology:
    return read(Topology.from_toml(text), {"orders": buckets} if buckets else None, release, **others)


def fleeting(about: str, durable: str = "true") -> str:
    """Return a file in which q1 has another line, and the exchange may not be durable."""
    return (
        ORDERS.replace("q{1..3}", "q{2..3}").replace(
            'name = "orders"', f'name = "orders"\ndurable = {durable}'
        )
        + f'[[queues]]\nname = "q1"\n{about}\n'
    )


def with_members(*members: RingMember) -> LiveTopology:
    """Return the exchange with other bindings than its ring has buckets for."""
    live = orders()
    return replace(live, exchanges=(replace(live.exchanges[0], ring=members),))


OBJECTS_THERE = replace(orders(text=ORDERS + OTHER_OBJECTS + EXTRA), cluster="rabbit@test")
FANOUT = orders(ExchangeRef("slot"), text=LEADS_ON.replace('{ queue = "q1" }, ', ""))

LINK = ExchangeRef("federation: orders -> rabbit@b A")
LINKED = (
    ORDERS.replace("ring = [", f'ring = [{{ exchange = "{LINK.name}" }}, ')
    + f"""
[[exchanges]]
name = "{LINK.name}"
type = "x-federation-upstream"
auto_delete = true
internal = true
arguments = {{ x-internal-purpose = "federation" }}
[[bindings]]
source = "{LINK.name}"
queue = "{LINK.name.removesuffix(" A")}"
"""
)
RINGS: dict[str, Scenario] = {
    "sound": Scenario(orders(), WANTED),
    "sound without a file": Scenario(orders()),
    "observed keys of the ring": Scenario(
        orders(), exchange="orders", observed=(("a", "q1"), ("b", "q1"), ("b", "q1"))
    ),
    "observed keys that contradict the ring": Scenario(
        orders(), exchange="orders", observed=(("a", "q1"), ("b", "q2"), ("c", "q9"))
    ),
    "observed messages of one key": Scenario(
        orders(), exchange="orders", observed=(("", "q1", 700), ("a", "q1", 300))
    ),
    "observed messages of many keys": Scenario(
        orders(), exchange="orders", observed=(("a", "q1", 500), ("b", "q1", 500))
    ),
    "observed messages of one key, which are few": Scenario(
        orders(), exchange="orders", observed=(("a", "q1", 99),)
    ),
    "observed keys of a header that contradict the ring": Scenario(
        orders(text=HEADER), exchange="orders", observed=(("b", "q2"),)
    ),
    "a federation link": Scenario(orders(text=LINKED), WANTED),
    "a file of a cluster, and its name is not known": Scenario(orders(), OF_PROD),
    "a file of another cluster": Scenario(orders(cluster="rabbit@test"), OF_PROD),
    "a file of this cluster": Scenario(orders(cluster="rabbit@prod"), OF_PROD),
    "another order": Scenario(orders("q2", "q1", "q1", "q3"), WANTED, file="my file.toml"),
    "another order without a file": Scenario(orders("q2", "q1", "q1", "q3")),
    "another order of an external exchange": Scenario(orders("q2", "q1", "q1", "q3"), Topology.from_toml(EXTERNAL)),
    "a ghost": Scenario(orders(*RING, "gone"), WANTED),
    "a ghost and an alternate exchange": Scenario(orders(*RING, "gone", text=ALTERNATE)),
    "a ghost that is an exchange": Scenario(orders(*RING, ExchangeRef("gone")), WANTED),
    "buckets of a queue that exists": Scenario(orders(*RING, "q4", text=ORDERS.replace("1..3", "1..4"))),
    "an empty ring": Scenario(read(WANTED, {"orders": ()}), WANTED),
    "a durable exchange without bindings": Scenario(
        read(Topology.from_toml('[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = []\n'))
    ),
    "buckets of other queues": Scenario(read(UNEVEN, {"x": ("q1", "q1", "q2")}), UNEVEN),
    "other members": Scenario(replace(orders(), queues=OTHER_MEMBERS.queues), OTHER_MEMBERS),
    "an exclusive queue": Scenario(orders(text=fleeting("exclusive = true"))),
    "a transient queue": Scenario(orders(text=fleeting("durable = false"))),
    "an auto-delete queue": Scenario(orders(text=fleeting("auto_delete = true"))),
    "an exclusive queue of 3.10.8": Scenario(orders(text=fleeting("exclusive = true"), release=Release("3.10.8"))),
    "an exclusive queue of 4.3.0": Scenario(orders(text=fleeting("exclusive = true"), release=Release("4.3.0"))),
    "an exclusive queue of a transient exchange": Scenario(orders(text=fleeting("exclusive = true", "false"))),
    "an auto-delete exchange": Scenario(orders(text=SHORT_LIVED)),
    "an auto-delete exchange, as in the file": Scenario(orders(text=SHORT_LIVED), Topology.from_toml(SHORT_LIVED)),
    "an auto-delete exchange, which is durable in the file": Scenario(orders(text=SHORT_LIVED), WANTED),
    "a sharded exchange that does not hash": Scenario(orders(text=ORDERS + COPIED)),
    "a sharded exchange that does not hash, and is not in the file": Scenario(orders(text=ORDERS + COPIED), WANTED),
    "a binding of an owned exchange to a queue that is not owned": Scenario(
        orders(text=ORDERS + OBJECTS + TO_OTHERS), Topology.from_toml(f'owns = ["x.*"]\n{ORDERS}{OBJECTS}')
    ),
    "a queue whose name the broker made": Scenario(
        replace(
            orders("q1", "q1", "amq.gen-x", "q3"),
            exchanges=with_members(RingMember("q1", "2"), RingMember("amq.gen-x"), RingMember("q3")).exchanges,
        )
    ),
    "a second binding": Scenario(
        with_members(RingMember("q1", "2"), RingMember("q2"), RingMember("q3"), RingMember("q2", "5"))
    ),
    "a member that leads nowhere": Scenario(orders("q1", ExchangeRef("slot"), text=LEADS_ON)),
    "a member that leads on": Scenario(
        orders("q1", ExchangeRef("slot"), text=f'{LEADS_ON}[[bindings]]\nsource = "slot"\nqueue = "q1"\n')
    ),
    "a fanout exchange without a binding": Scenario(FANOUT),
    "a fanout exchange to a queue that is left out": Scenario(as_live(FANOUT, sources_left_out=frozenset({"slot"}))),
    "objects that differ": Scenario(OBJECTS_THERE, OWNED),
    "objects that differ are not those of one exchange": Scenario(OBJECTS_THERE, OWNED, "orders"),
    "a missing hash exchange": Scenario(LiveTopology(queues=WANTED.queues, release=RELEASE), WANTED),
    "another hash-header": Scenario(orders(), Topology.from_toml(HEADER)),
    "exchanges of the broker": Scenario(
        LiveTopology(), Topology(tuple(ExchangeDefinition(name, "topic", owner="external") for name in ("amq.topic", "")))
    ),
    "an exchange of another type": Scenario(
        LiveTopology(
            (ExchangeDefinition("orders", "topic"),), (QueueDefinition("q1"),), (BindingDefinition("orders", "q1", "k"),)
        ),
        Topology(
            (ExchangeDefinition("orders", "x-consistent-hash", ring=(RingMember("q1"),)),),
            (QueueDefinition("q1"),),
            owns=("*",),
        ),
    ),
}  # fmt: skip

# -- slots

EVENTS = """
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "events.{1..2}", weight = 1 }]
[[queues]]
name = "events.{1..2}"
"""
SLOTTED = Topology.from_toml(EVENTS)
PLAIN = expand(SLOTTED, LiveTopology())
REFS = SlotNames("events", 8).refs
LISTED = Topology.from_toml(
    EVENTS.replace(
        '{ queue = "events.{1..2}", weight = 1 }',
        '{ queue = "events.1", slots = [0, 1, 2, 3] }, { queue = "events.2", slots = [4, 5, 6, 7] }',
    )
)
EXTERNAL_SLOTS = Topology.from_toml(EVENTS.replace("slots = 8", 'slots = 8\nowner = "external"'))
WITH_AUDIT = Topology.from_toml(
    EVENTS.replace("slots = 8\nmembers", "ring").replace(
        "weight = 1 }]", 'weight = 1 }, { exchange = "audit" }]'
    )
    + '[[exchanges]]\nname = "audit"\ntype = "topic"\n'
    + '[[bindings]]\nsource = "audit"\nqueue = "events.1"\nrouting_key = "#"\n'
)


def slots(*buckets: Place, topology: Topology = PLAIN, **others: Any) -> LiveTopology:
    return read(topology, {"events": buckets or REFS}, **others)


def without(*sources: str, topology: Topology = PLAIN) -> Topology:
    """Return the slots without the bindings of some exchanges."""
    return replace(topology, bindings=tuple(b for b in topology.bindings if b.source not in sources))


def changed(name: str, topology: Topology = PLAIN, **fields: Any) -> Topology:
    """Return the slots with other properties of one exchange or queue."""
    return replace(
        topology,
        exchanges=tuple(replace(e, **fields) if e.name == name else e for e in topology.exchanges),
        queues=tuple(replace(q, **fields) if q.name == name else q for q in topology.queues),
    )


def rebound(queue_of: Callable[[BindingDefinition], Destination], topology: Topology = PLAIN) -> Topology:
    """Return the slots with other queues."""
    return replace(topology, bindings=tuple(replace(b, destination=queue_of(b)) for b in topology.bindings))


def shrunk(ring: int, gone: Sequence[str] = ()) -> Topology:
    """Return the slots of which only the first are members of the ring, and some exchanges are gone."""
    left = without(*gone)
    exchanges = (e for e in left.exchanges if e.name not in gone)
    return replace(left, exchanges=tuple(replace(e, ring=e.ring[:ring]) if e.ring else e for e in exchanges))


TWO_QUEUES = replace(PLAIN, bindings=(*PLAIN.bindings, BindingDefinition("events.slot.00", "events.2")))
TURNED = (*REFS[:3], REFS[4], REFS[3], *REFS[5:])
SWAPPED = {"events.slot.03": "events.2", "events.slot.04": "events.1"}
BARE = changed("events.slot.02", arguments={})

SLOTS: dict[str, Scenario] = {
    "slots": Scenario(slots(), SLOTTED),
    "slots without a file": Scenario(slots()),
    "observed keys behind slots": Scenario(
        slots(),
        exchange="events",
        observed=tuple((key, slots().slots("events").destination_for(key)) for key in "abcdefg"),
    ),
    "observed keys behind slots that contradict them": Scenario(
        slots(), exchange="events", observed=(("a", "events.9"),)
    ),
    "slots of one exchange": Scenario(slots(), exchange="events"),
    "a slot without a queue": Scenario(slots(topology=without("events.slot.03")), SLOTTED),
    "a slot without a queue, without a file": Scenario(slots(topology=without("events.slot.03"))),
    "an external slot without a queue": Scenario(slots(topology=without("events.slot.03")), EXTERNAL_SLOTS),
    "two slots without a queue": Scenario(
        slots(topology=without("events.slot.03", "events.slot.05")), SLOTTED
    ),
    "a slot with two queues": Scenario(slots(topology=TWO_QUEUES), SLOTTED),
    "a slot with two queues, without a file": Scenario(slots(topology=TWO_QUEUES)),
    "all slots at one queue": Scenario(
        slots(topology=rebound(lambda b: "events.1" if ".slot." in b.source else b.destination)), SLOTTED
    ),
    "two queues more in the file": Scenario(slots(), Topology.from_toml(EVENTS.replace("{1..2}", "{1..4}"))),
    "fewer slots in the file": Scenario(
        slots(), Topology.from_toml(EVENTS.replace("slots = 8", "slots = 4"))
    ),
    "listed slots": Scenario(slots(topology=expand(LISTED, LiveTopology())), LISTED),
    "listed slots that are elsewhere": Scenario(
        slots(
            topology=rebound(lambda b: SWAPPED.get(b.source, b.destination), expand(LISTED, LiveTopology()))
        ),
        LISTED,
    ),
    "a slot without an alternate exchange": Scenario(slots(topology=BARE), SLOTTED),
    "a slot without an alternate exchange, without a file": Scenario(slots(topology=BARE)),
    "a slot without a queue and without an alternate exchange": Scenario(
        slots(topology=without("events.slot.02", topology=BARE)), SLOTTED
    ),
    "a park without a queue": Scenario(slots(topology=without("events.park")), SLOTTED),
    "a parked message": Scenario(slots(messages={"events.park": 1, "events.1": 5}), SLOTTED),
    "parked messages": Scenario(slots(messages={"events.park": 1200}), SLOTTED),
    "a parked message, without a file": Scenario(slots(messages={"events.park": 1})),
    "slots that are missing": Scenario(
        slots(*REFS[:6], topology=shrunk(6, ("events.slot.06", "events.slot.07"))), SLOTTED
    ),
    "a slot that differs": Scenario(slots(topology=changed("events.slot.02", durable=False)), SLOTTED),
    "a ring that has no slots yet": Scenario(
        read(Topology.from_toml(EVENTS.replace("slots = 8\n", "").replace("members", "ring"))), SLOTTED
    ),
    "another order of slots": Scenario(slots(*TURNED), SLOTTED),
    "another order of slots, without a file": Scenario(slots(*TURNED)),
    "another order of slots of one queue": Scenario(slots(REFS[2], REFS[1], REFS[0], *REFS[3:]), SLOTTED),
    "an auto-delete queue of slots": Scenario(slots(topology=changed("events.2", auto_delete=True))),
    "an exchange in the ring that is not a slot": Scenario(read(WITH_AUDIT), WITH_AUDIT),
    # The exchange of the last slot still leads to its queue, and some of its keys reach that queue by other slots.
    "a ring without its last slot": Scenario(slots(*REFS[:7], topology=shrunk(7)), SLOTTED),
}

# -- queues that lose messages, and queues that differ from the others

FOUR = {f"q{n}": "" for n in range(1, 5)}


def queues(
    lines: dict[str, str], *policies: PolicyDefinition, release: Release = RELEASE, **others: Any
) -> Scenario:
    """Return a ring of queues, each with further lines of its entry in a topology file."""
    ring = ", ".join(f'{{ queue = "{name}" }}' for name in lines)
    entries = "".join(f'[[queues]]\nname = "{name}"\n{more}\n' for name, more in lines.items())
    text = f'[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ring}]\n{entries}'
    return Scenario(read(Topology.from_toml(text), None, release, policies=policies, **others))


def alike(lines: str, *policies: PolicyDefinition, release: Release = RELEASE, **others: Any) -> Scenario:
    """Return a ring of two queues with the same lines."""
    return queues({"q1": lines, "q2": lines}, *policies, release=release, **others)


def policy(
    pattern: str = "^q", name: str = "limits", priority: int = 0, **definition: object
) -> PolicyDefinition:
    named = {key.replace("_", "-"): value for key, value in definition.items()}
    return PolicyDefinition(name, pattern, "queues", named, priority)


TTL = 'arguments = { x-message-ttl = 0, x-dead-letter-exchange = "late" }'
LIMITED = 'type = "{}"\narguments = {{ x-max-length = 5 }}'
EXPLICIT = 'type = "{}"\narguments = {{ x-max-length = 5, x-overflow = "reject-publish" }}'
UNLIMITED = 'type = "quorum"\narguments = { x-delivery-limit = -1 }'
ODD = 'type = "quorum"\narguments = { x-single-active-consumer = true }'
DEAD = {
    f"q{n}": f'arguments = {{ x-dead-letter-exchange = "dead.{n}", x-dead-letter-routing-key = "q{n}.dead" }}'
    for n in range(1, 5)
}
LIMITS = policy("^q1$", message_ttl=9_000, max_length=50, expires=10)
SKIPPED = (policy(name="skipped", priority=9, delivery_limit=5), policy(message_ttl=9_000))
DELAYED = 'type = "quorum"\narguments = { x-delayed-retry-type = "all", x-delayed-retry-min = 1000 }'
SHORT = 'type = "quorum"\narguments = { x-consumer-timeout = 5000 }'
PARKING = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "q{1..3}" }]
[[queues]]
name = "q{1..2}"
[[queues]]
name = "q3"
type = "quorum"
arguments = { x-message-ttl = 5000 }
[[queues]]
name = "orders.park"
arguments = { x-max-length = 5, x-message-ttl = 5 }
"""

QUEUES: dict[str, Scenario] = {
    "a TTL": queues({**FOUR, "q2": "arguments = { x-message-ttl = 5000 }"}),
    "a TTL and a dead-letter exchange": alike(TTL),
    "a TTL and the default exchange": alike(TTL.replace('"late"', '""')),
    "a queue that expires": queues({**FOUR, "q1": "arguments = { x-expires = 60_000 }"}),
    "a limit of messages": alike("arguments = { x-max-length = 1000 }"),
    "a limit of bytes": alike("arguments = { x-max-length-bytes = 1000 }"),
    **{
        f"{overflow} by a policy for {type_} queues": alike(LIMITED.format(type_), policy(overflow=overflow))
        for type_ in ("classic", "quorum")
        for overflow in ("drop-head", "reject-publish", "reject-publish-dlx")
    },
    # The argument decides for classic queues, and the policy for quorum queues.
    **{
        f"drop-head by a policy and reject-publish by an argument of {type_} queues": alike(
            EXPLICIT.format(type_), policy(overflow="drop-head")
        )
        for type_ in ("classic", "quorum")
    },
    "drop-head by an argument": alike(
        EXPLICIT.format("classic").replace("reject-publish", "drop-head"), policy(overflow="drop-head")
    ),
    "limits of a policy": queues(FOUR, LIMITS),
    "the smaller limit of an operator policy": queues(
        FOUR, LIMITS, operator_policies=(policy("^q1$", "caps", message_ttl=7_000),)
    ),
    "the smaller limit of an argument": alike("arguments = { x-message-ttl = 6000 }", LIMITS),
    "a policy with a key of other queues above": queues(FOUR, *SKIPPED),
    "the policy that the broker names": queues(FOUR, *SKIPPED, applied_policies={"q1": "limits", "q2": None}),
    "limits of a stream": alike(
        'type = "stream"\narguments = { x-max-length-bytes = 5 }', policy(message_ttl=5, max_length_bytes=5)
    ),
    "a TTL of quorum queues before 3.10": alike(
        'type = "quorum"', policy(message_ttl=5), release=Release("3.9.29")
    ),
    "a TTL of quorum queues since 3.10": alike(
        'type = "quorum"', policy(message_ttl=5), release=Release("3.10.0")
    ),
    "priorities": queues({**FOUR, "q2": "arguments = { x-max-priority = 5 }"}),
    "no priorities": queues({**FOUR, "q2": "arguments = { x-max-priority = 0 }"}),
    "priorities in use": queues(
        dict.fromkeys(FOUR, 'type = "quorum"'), priorities={"q1": (0, 4, 9), "q2": (4,), "q3": (7,)}
    ),
    "a delayed retry": alike(DELAYED),
    "a delayed retry by a policy": alike(
        'type = "quorum"', policy(delayed_retry_type="failed", delayed_retry_min=1000)
    ),
    "a delayed retry that is disabled": alike('type = "quorum"', policy(delayed_retry_type="disabled")),
    "arguments that the broker ignores": queues(
        {
            "q1": "arguments = { x-ttl = 1 }",
            "q2": "arguments = { x-ttl = 2 }",
            "q3": "arguments = { x-ttl = 2, x-singel-active-consumer = true }",
        }
    ),
    "a negative delivery limit before 4.0": alike(UNLIMITED, release=Release("3.10.8")),
    "no delivery limit from 4.0 on": alike(UNLIMITED, release=Release("4.0.5")),
    "a delayed retry before 4.3": alike(DELAYED, release=Release("4.2.0")),
    "a delayed retry of 4.3.0": alike(DELAYED, release=Release("4.3.0")),
    "a short consumer timeout": alike(SHORT),
    "a short consumer timeout by a policy": alike('type = "quorum"', policy(consumer_timeout=60_000)),
    "a consumer timeout of half an hour": alike(SHORT.replace("5000", "1_800_000")),
    "a consumer timeout that is a text": alike('type = "quorum"', policy(consumer_timeout="soon")),
    "a short consumer timeout before 4.3": alike(SHORT, release=Release("4.2.0")),
    "a short consumer timeout of classic queues": alike(SHORT.replace("quorum", "classic")),
    "an odd member": queues({**dict.fromkeys(FOUR, ODD), "q3": "arguments = { x-max-priority = 5 }"}),
    "two kinds of queues": queues({"q1": "", "q2": 'type = "quorum"'}),
    "queues whose names are in their type": queues(dict.fromkeys(("a", "b"), "")),
    "three kinds of queues": queues(
        dict(zip(FOUR, ("", "", 'type = "quorum"', 'type = "stream"'), strict=True))
    ),
    "arguments that count up, and a place": queues(
        {**DEAD, "q1": DEAD["q1"].replace("{ ", '{ x-queue-leader-locator = "balanced", ')}
    ),
    "an argument that does not count up": queues({**DEAD, "q4": DEAD["q4"].replace("q4.dead", "lost")}),
    "queues of slots, and their park": Scenario(read(Topology.from_toml(PARKING))),
}

# -- the bindings of exchanges that hash modulo their number

BILLS = '[[exchanges]]\nname = "bills"\ntype = "x-modulus-hash"\n'
BILLED = '[[queues]]\nname = "b.{1..4}"\n'


def bills(
    *keys: str,
    release: Release = RELEASE,
    rows: Mapping[str, str] | None = None,
    lines: Mapping[str, str] | None = None,
    type_: str = "classic",
) -> LiveTopology:
    """Return an exchange with a binding for each key, ``2:b`` is the key b of the queue b.2, and the arguments of some queues."""
    bindings = (BindingDefinition("bills", f"b.{key[0]}", key[2:]) for key in keys)
    queues = "".join(
        f'[[queues]]\nname = "b.{n}"\ntype = "{type_}"\n{(lines or {}).get(n, "")}\narguments = {{ {(rows or {}).get(n, "")} }}\n'
        for n in "1234"
    )
    return as_live(replace(Topology.from_toml(f"{BILLS}{queues}"), bindings=tuple(bindings)), release=release)


LISTED = Topology.from_toml(f'{BILLS}queues = ["b.{{1..3}}"]\n{BILLED}')
THREE = ("1:", "2:", "3:")
MODULI: dict[str, Scenario] = {
    "a sound modulus": Scenario(bills(*THREE), LISTED),
    "a modulus without a file": Scenario(bills(*THREE)),
    "a queue bound twice to a modulus": Scenario(bills(*THREE, "2:again")),
    "keys of a modulus that look like weights": Scenario(bills("1:10", "2:10", "3:5")),
    "keys of a modulus that number its bindings": Scenario(bills("1:10", "2:11", "3:12")),
    "a modulus whose order nobody knows": Scenario(bills(*THREE, release=Release("4.1.0", "khepri")), LISTED),
    "one more queue of a modulus than listed": Scenario(bills(*THREE, "4:"), LISTED),
    "one queue of a modulus less than listed": Scenario(bills("1:", "3:"), LISTED),
    "one more queue of a modulus, as bindings": Scenario(bills(*THREE, "4:"), bills(*THREE).objects),
    "queues of a modulus that lose messages": Scenario(
        bills(
            "1:",
            "2:",
            "3:",
            "4:",
            rows={"1": "x-message-ttl = 5000", "2": "x-max-length = 9", "3": "x-expires = 6000"},
        )
    ),
    "queues of a modulus that break the order": Scenario(
        as_live(
            bills(
                *THREE,
                rows={
                    "1": 'x-delayed-retry-type = "all"',
                    "2": "x-consumer-timeout = 5000",
                    "4": "x-expires = 6000",
                },
                type_="quorum",
            ),
            priorities={"b.3": (0, 4)},
        )
    ),
    "queues of a modulus under a short default timeout of the broker": Scenario(
        as_live(
            bills(*THREE, rows={"1": "x-consumer-timeout = 3600000"}, type_="quorum"),
            consumer_timeout_ms=60_000,
        )
    ),
    "a queue of an unordered modulus that expires": Scenario(
        bills(*THREE, rows={"1": "x-expires = 6000"}, release=Release("4.1.0", "khepri"))
    ),
    "an auto-delete queue of a modulus": Scenario(bills(*THREE, lines={"2": "auto_delete = true"})),
    "a modulus that the file does not have": Scenario(
        bills("1:", "1:b", rows={"1": "x-message-ttl = 5000"}), Topology.from_toml(BILLED)
    ),
    "other keys of a modulus on 4.3": Scenario(bills("1:a", "2:a", "3:a"), LISTED),
}

SCENARIOS = {**RINGS, **SLOTS, **QUEUES, **MODULI}


def stored() -> dict[str, str]:
    """Return the stored text of each scenario."""
    parts = re.split(r"^## (.*)\n", STORED.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (text.rstrip("\n") for text in parts[2::2]), strict=True))


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_findings_are_as_stored(name: str) -> None:
    assert stored_text(SCENARIOS[name]) == stored()[name], "write it again, and review the difference"


def test_each_stored_check_has_a_scenario() -> None:
    assert list(stored()) == list(SCENARIOS)
    assert len(SCENARIOS) == len(RINGS) + len(SLOTS) + len(QUEUES) + len(MODULI)


def test_each_kind_of_finding_is_stored() -> None:
    found = re.findall(r"^([a-z-]+) \[", STORED.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(found) == set(CHECK_KINDS)


def test_of_a_sound_ring_only_the_shares_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count more takes a second a ring, and `ring list` checks all rings of a broker."""

    def count(*_: object) -> None:
        pytest.fail("more is counted")

    monkeypatch.setattr(HashRing, "indices_of_all_seeds", count)
    monkeypatch.setattr(seeds, "stays_of_seeds", count)
    found = check(orders())
    assert found.sound
    assert found.unroutable == {"orders": 0.0}


@pytest.mark.parametrize("provenance", ["assumed", "replayed", None])
def test_a_ring_that_was_not_read_is_refused(provenance: Literal["assumed", "replayed"] | None) -> None:
    ring = HashRing.from_bindings([("q1", 2), ("q2", 1), ("q3", 1)], RELEASE)
    rings = {} if provenance is None else {"orders": replace(ring, ground=Ground(provenance))}
    unread = as_live(orders(), rings=rings)
    for wanted in (WANTED, None):
        with pytest.raises(InputError, match=r"prove nothing: pass ring_source=PREFIX, such as"):
            check(unread, wanted)


def test_one_exchange_is_checked_by_name_or_refused_by_its_type() -> None:
    there = orders()
    assert check(there, exchange="orders").sound
    with pytest.raises(NotFoundError, match="there is no exchange 'other'"):
        check(there, exchange="other")
    plain = Topology.from_toml(ORDERS + '[[exchanges]]\nname = "x"\n')
    with pytest.raises(MismatchError, match="type direct"):
        check(as_live(plain), exchange="x")
    for name, type_ in (("amq.direct", "direct"), ("amq.topic", "topic"), ("", "direct")):
        with pytest.raises(
            MismatchError, match=f"exchange '{name}' is of type {type_}, not x-consistent-hash"
        ):
            check(there, exchange=name)
    with pytest.raises(NotFoundError, match=r"there is no exchange 'amq\.other'"):
        check(there, exchange="amq.other")


def test_several_exchanges_are_checked_by_name() -> None:
    other = ORDERS.replace('"orders"', '"other"').partition("[[queues]]")[0]
    there = orders(text=ORDERS + other)
    assert check(there, exchange=["other", "orders", "other"]).exchanges == ("other", "orders")
    assert check(there).exchanges == ("orders", "other")


def test_a_queue_that_only_slots_name_is_expected_and_kept() -> None:
    wanted = Topology.from_toml('owns = ["events.*"]\n' + EVENTS.partition("[[queues]]")[0])
    assert plan(wanted, slots()).changes == ()
    assert check(slots(), wanted).findings == ()


if __name__ == "__main__":
    texts = (f"## {name}\n{stored_text(scenario)}\n" for name, scenario in SCENARIOS.items())
    STORED.write_text("\n".join(texts), encoding="utf-8")
