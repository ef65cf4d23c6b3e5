"""The report of an exchange, with members, shares, slots, shards and record; and the list of the exchanges that hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rabbit_chx.analysis import SlotLoad
from rabbit_chx.analysis.findings import CHECK_KINDS, SHARD_KINDS, Severity, place_text, rounded
from rabbit_chx.analysis.key_routing import SampleSize
from rabbit_chx.analysis.reports import (
    HeavyRow,
    bucket_ranges,
    draw_map,
    draw_slots,
    hashes_text,
    heaviest_keys,
    heaviest_table,
    name_or_none,
    rate_text,
    ring_text,
    slot_text,
)
from rabbit_chx.broker.live_routing import find_live_exchange, key_map_of
from rabbit_chx.broker.recording import record_of
from rabbit_chx.checking.check import TopologyCheck
from rabbit_chx.checking.group_status import uneven_traffic
from rabbit_chx.planning.refusals import know_rings, learn_command
from rabbit_chx.records.live_rings import (
    WaysToLearn,
    evidence_of,
    find_live_ring,
    find_recorded,
    none_lasts,
    read_without_record,
    record_command,
)
from rabbit_chx.records.ring_records import record_arguments
from rabbit_chx.rendering.document import Block, Document, Facts, Line, Section, Table
from rabbit_chx.result_fields import ABSENT, Absent, shown, to_json
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.bindings import LISTED_CONDITION, RECORD_CONDITION, Destination, Place, Provenance
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.modulus_exchange import ModulusFields
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.ring import RingFields
from rabbit_chx.routing.super_stream import SuperStreamFields
from rabbit_chx.text import command_text, grouped, percent, percent_or_blank, plural
from rabbit_chx.topology.model import LiveTopology, PublishRates
from rabbit_chx.topology.modulus import hashes, modulo_map_of
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    ExchangeDefinition,
    order_of_name,
    order_of_place,
)
from rabbit_chx.topology.plugin_objects import Shard, ShardedExchange
from rabbit_chx.topology.slots import view_slots

#: The backlog of a place that is no queue.
_NO_BACKLOG = (None, None, None)


def exchange_facts(
    exchange: str, vhost: str, arguments: Mapping[str, str] | None, ring: KeyMap, ways_to_learn: WaysToLearn
) -> list[tuple[str, str]]:
    """Return the facts in the heading of a report about the ring of a live exchange; `ways_to_learn` are those of the user."""
    facts = [
        ("exchange", exchange),
        ("vhost", vhost),
        ("hashes", hashes_text(arguments)),
        ("ring", ring_text(ring)),
    ]
    if ring.is_determined:
        return facts
    if not ring.is_sole:
        facts.append(("not determined", f"the queue of a key: {know_rings({exchange: ring}, ways_to_learn)}"))
    if ring.hashing.has_order and ring.has_shares:
        facts.append(("shares", LISTED_CONDITION))
    return facts


@dataclass(frozen=True, slots=True)
class PlaceFigures:
    """What a queue or another member has of the keys and of the messages.

    Attributes:
        share: The share of the keys.
        load: The share of the messages of the sample.
        rate: Messages per second.
        traffic: The share of the messages of the last minute, in the pages of `ui`.
        state: The state of a queue that does not run.
    """

    share: float | None = field(
        metadata=shown("share", percent_or_blank, number=True, as_json=rounded, sparse=True)
    )
    load: float | None = field(metadata=shown("of the load", percent_or_blank, number=True, sparse=True))
    rate: float | None = field(metadata=shown("messages/s", rate_text, number=True, sparse=True))
    traffic: float | None = field(
        default=None,
        metadata=shown("of the traffic", percent_or_blank, number=True, sparse=True, optional=True),
    )
    state: str | None = field(default=None, metadata=shown("state", lambda state: state or "", sparse=True))
    ready: int | None = field(default=None, metadata=shown("ready", number=True, sparse=True, optional=True))
    unacked: int | None = field(
        default=None, metadata=shown("unacked", number=True, sparse=True, optional=True)
    )
    consumers: int | None = field(
        default=None, metadata=shown("consumers", number=True, sparse=True, optional=True)
    )


def _weights_text(keys: Sequence[str] | None) -> str:
    return " and ".join(keys or ())


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of an exchange.

    Attributes:
        queue: The queue of a slot.
        weights: Its binding keys; null over AMQP alone.
        places: the ranges of its buckets.
        buckets: The number of its buckets.
    """

    destination: Place = field(metadata=shown("member", place_text))
    queue: str | None = field(metadata=shown("queue", sparse=True))
    weights: Sequence[str] | None = field(metadata=shown("weight", _weights_text, number=True, sparse=True))
    places: str | None = field(metadata=shown("buckets", sparse=True, json=None))
    buckets: int | None = field(metadata=shown("count", number=True, sparse=True))
    figures: PlaceFigures = field(metadata=shown(group=PlaceFigures))


@dataclass(frozen=True, slots=True)
class SlotRow(MemberRow):
    """A member that is a slot."""

    destination: Place = field(metadata=shown("slot", slot_text))


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue of slots, or those without one; `slots` is their number."""

    queue: str | None = field(metadata=shown("queue", place_text))
    slots: int = field(metadata=shown("slots", number=True))
    figures: PlaceFigures = field(metadata=shown(group=PlaceFigures))


@dataclass(frozen=True, slots=True)
class ShardFinding:
    """What is wrong with some shards."""

    kind: str = field(metadata=shown(values=SHARD_KINDS))
    severity: Severity
    shards: Sequence[str]
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class ShardingFields:
    """The shards of an exchange, and the policy that makes them.

    Attributes:
        nodes: Null without the tag `monitoring`.
        missing: Shards of the policy that do not exist.
    """

    type: str
    policy: str | None
    shards_per_node: int
    routing_key: str
    nodes: Sequence[str] | None
    shards: Sequence[Shard]
    missing: Sequence[str] | None
    findings: Sequence[ShardFinding]

    @classmethod
    def of(cls, exchange: ShardedExchange) -> ShardingFields:
        """Return the fields of an exchange."""
        findings = [
            ShardFinding(each.kind, each.severity, each.names, each.message, each.fix)
            for each in exchange.findings
        ]
        return cls(
            exchange.type,
            exchange.policy,
            exchange.shards_per_node,
            exchange.routing_key,
            exchange.nodes,
            exchange.shards,
            exchange.missing,
            findings,
        )


def _map_as_json(key_map: KeyMap) -> dict[str, Any]:
    """Return a map as in its own JSON, without its format."""
    fields: dict[str, Any] = to_json(key_map)
    return {name: value for name, value in fields.items() if not name.startswith("format")}


@dataclass(frozen=True, slots=True)
class ShownFields:
    """What programs read of an exchange.

    Attributes:
        determined: False if something depends on an order or a hashed value that is not known; it is null.
        learn: The command that learns the order which is not known; null if no command does.
        arguments: Those that determine the hashed value; null over AMQP alone.
        record: The record that this ring makes; if its order is not known, when and by whom that of the broker was written, and why it is void.
        rate: Messages per second.
        queues: The queues of slots.
        heaviest: The heaviest keys of the sample.
    """

    key_map: KeyMap | None = field(
        metadata=shown(group=RingFields | ModulusFields | SuperStreamFields, as_json=_map_as_json)
    )
    release: Release | None = field(metadata=shown(optional=True))
    determined: bool
    learn: str | Absent | None
    exchange: str
    vhost: str
    cluster: str | None
    arguments: Mapping[str, str] | None
    record: Mapping[str, Any] | None
    rate: float | None
    sample: SampleSize | None
    members: Sequence[MemberRow]
    queues: Sequence[QueueRow] | Absent
    heaviest: Sequence[HeavyRow] | Absent | None
    sharding: ShardingFields | None = field(metadata=shown(optional=True))


@dataclass(frozen=True, slots=True)
class ShownExchanges:
    """What programs read of several exchanges, by name."""

    exchanges: Mapping[str, ShownFields]

    @property
    def determined(self) -> bool:
        """True if all of them are."""
        return all(shown.determined for shown in self.exchanges.values())


@dataclass(frozen=True, slots=True)
class ShownExchange:
    """What is known about an exchange.

    Attributes:
        map: its ring with the slots, or its other map of keys; None if it does not hash.
        arguments: those that determine the hashed value; None over AMQP alone.
        keys: the binding keys of each member; empty over AMQP alone.
        rates: the publish rates of the exchange and its queues, and the queues that do not run.
        record: what is known about the record on the broker; empty over AMQP alone.
        record_arguments: the record that this ring makes; if its order is not known, when and by whom that of the broker was written, and why it is
            void; None without one.
        sharding: its shards; None if it has none.
        sample: the load of a sample of keys.
        cluster: the name of the broker's cluster.
        ways_to_learn: those of the user, if the order of the ring is not known.
    """

    name: str
    vhost: str
    map: KeyMap | None
    arguments: Mapping[str, str] | None = None
    keys: Mapping[Destination, Sequence[str]] | None = None
    rates: PublishRates = field(default_factory=lambda: PublishRates(None, {}))
    record: str = ""
    record_arguments: Mapping[str, Any] | None = None
    sharding: ShardedExchange | None = None
    sample: SlotLoad | None = None
    cluster: str | None = None
    ways_to_learn: WaysToLearn = field(default_factory=WaysToLearn)

    @classmethod
    def of(
        cls,
        live: LiveTopology,
        name: str,
        *,
        rates: PublishRates | None = None,
        sharding: ShardedExchange | None = None,
    ) -> ShownExchange:
        """Return an exchange of a live topology.

        Args:
            live: the topology.
            name: the exchange's name.
            rates: the publish rates of the last seconds; None: those of the last minute, if the topology has them.
            sharding: its shards; None if it has none, or they are not shown.

        Raises:
            NotFoundError: it does not exist.
            MismatchError: it does not hash, and has no shards.
        """
        exchange = find_live_exchange(live, name)
        bound = [binding.member for binding in live.bindings if binding.source == name]
        bound += [member.binding for member in exchange.ring or ()]
        usage = live.facts.usage
        if rates is None:
            rates = PublishRates(None, {}) if usage is None else usage.rates_of(name)
        recorded = find_recorded(live, name)
        return cls(
            name,
            live.vhost or "/",
            _map_of(live, exchange, sharding),
            exchange.hash_arguments,
            grouped(bound),
            rates,
            "" if recorded is None else f"of {recorded.about}",
            sharding=sharding,
            ways_to_learn=evidence_of(live).ways_to_learn,
        )

    def with_record(self, live: LiveTopology) -> ShownExchange:
        """Return the exchange with the cluster and with what its broker keeps of the order of its ring, or could keep."""
        if self.name not in live.rings:
            return replace(self, cluster=live.cluster)
        return replace(
            self,
            cluster=live.cluster,
            record=_record_text(live, self.name),
            record_arguments=_record(live, self.name),
        )

    @property
    def is_determined(self) -> bool:
        """True unless the order of its map is not known."""
        return self.map is None or self.map.is_determined

    def fields(self) -> ShownFields:
        """Return what programs read of it."""
        key_map = self.map
        released = self.sharding if key_map is None else key_map
        slots = None if key_map is None or key_map.slots is None else key_map
        learn: str | Absent | None = ABSENT
        heaviest: list[HeavyRow] | Absent | None = ABSENT
        if key_map is not None:
            heaviest = None if self.sample is None else heaviest_keys(key_map, self.sample)
            if not self.is_determined:
                learn = learn_command({self.name: key_map}, self.ways_to_learn)
        return ShownFields(
            key_map=key_map,
            release=None if released is None else released.release,
            determined=self.is_determined,
            learn=learn,
            exchange=self.name,
            vhost=self.vhost,
            cluster=self.cluster,
            arguments=self.arguments,
            record=self.record_arguments,
            rate=self.rates.exchange,
            sample=None if self.sample is None else self.sample.counts,
            members=list(self._members()),
            queues=ABSENT if slots is None else list(self._queues(slots)),
            heaviest=heaviest,
            sharding=None if self.sharding is None else ShardingFields.of(self.sharding),
        )

    def parts(self, fields: ShownFields) -> list[Block]:
        """Return what people see of it: the exchange, its members, the queues of its slots, the heaviest keys of the sample, and its shards."""
        parts: list[Block] = [Facts(list(self._facts()))]
        key_map = self.map
        if fields.members:
            kind = MemberRow if fields.queues is ABSENT else SlotRow
            traffic = self.traffic or None
            members = Table.of(kind, fields.members)
            parts.append(
                replace(members, pictures=lambda: () if key_map is None else draw_map(key_map, traffic))
            )
        if key_map is not None and fields.queues is not ABSENT:
            load = None if self.sample is None else self.sample.messages
            queues = Table.of(QueueRow, fields.queues)
            parts.append(replace(queues, pictures=lambda: [draw_slots(key_map, load)]))
        if fields.heaviest is not ABSENT and fields.heaviest is not None:
            parts.append(heaviest_table(fields.heaviest))
        if self.sharding is not None:
            parts += _sharding_parts(self.sharding)
        return parts

    def _facts(self) -> Iterator[tuple[str, str]]:
        if self.map is not None:
            yield from exchange_facts(self.name, self.vhost, self.arguments, self.map, self.ways_to_learn)
        elif self.sharding is not None:
            yield from (("exchange", self.name), ("vhost", self.vhost), ("type", self.sharding.type))
        if self.record:
            yield "record", self.record
        if self.rates.exchange is not None:
            period = "minute" if self.rates.backlogs else "seconds"
            yield "published", f"{rate_text(self.rates.exchange)} messages/s in the last {period}"
        if self.sample is not None:
            yield "sample", self.sample.text("member")

    def _members(self) -> Iterator[MemberRow]:
        """Yield the members in the order of the ring; those without a bucket are last."""
        if self.map is None:
            return
        ring = self.map.underlying
        shares = ring.shares() if ring.has_shares else {}
        counts = Counter(ring.buckets)
        is_known = ring.is_determined
        ranges = bucket_ranges(enumerate(ring.buckets)) if is_known else {}
        places = dict.fromkeys((*ranges, *(self.keys or ())))
        for place in places if is_known else sorted(places, key=order_of_place):
            weights = None
            if self.keys is not None:
                weights = self.keys.get(place, ()) if place else ()
            yield MemberRow(
                destination=place,
                queue=None if self.map.slots is None else name_or_none(self.map.queue_of(place)),
                weights=weights,
                places=ranges.get(place, "") if is_known else None,
                buckets=counts[place] if is_known else None,
                figures=self._figures(place, (place,), shares.get(place, 0.0 if is_known else None)),
            )

    def _queues(self, slots: KeyMap) -> Iterator[QueueRow]:
        """Yield the queues in the order of their names; None, for the slots without a queue, is last."""
        shares = slots.shares() if slots.has_shares else {}
        held = Counter(map(slots.queue_of, slots.slots or ()))
        named = sorted((queue for queue in slots.destinations if isinstance(queue, str)), key=order_of_name)
        for queue in (*named, *([None] if held[None] else [])):
            places = [place for place in slots.underlying.destinations if slots.queue_of(place) == queue]
            share = shares.get(queue, 0.0 if slots.is_determined else None)
            yield QueueRow(queue, held[queue], self._figures(queue, places, share))

    @property
    def traffic(self) -> dict[str, float]:
        """The share of the last messages that each queue got, by whatever exchange; empty if none were published to this one."""
        return {} if self.map is None else _traffic(self.map, self.rates)

    @property
    def consumers(self) -> int:
        """The number of consumers of its queues."""
        queues = () if self.map is None else self.map.destinations
        return sum(self.rates.backlogs.get(str(queue), _NO_BACKLOG)[2] or 0 for queue in queues)

    @property
    def most_loaded(self) -> str:
        """The queue with the most traffic, and its share of the keys; empty without traffic."""
        if self.map is None or not self.traffic:
            return ""
        queue, share = max(self.traffic.items(), key=lambda each: each[1])
        if not self.is_determined:
            return f"{queue} has {percent(share, 1)} of the traffic"
        shares = {place: share for place, share in self.map.shares().items() if isinstance(place, str)}
        found = uneven_traffic(self.name, shares, self.rates)
        more = ", more than its share" if any(queue == each.destination for each in found) else ""
        keys = percent(shares.get(queue, 0.0), 1)
        return f"{queue} has {percent(share, 1)} of the traffic and {keys} of the keys{more}"

    @property
    def sentence(self) -> str:
        """What the exchange is and does, in a sentence or two."""
        if self.map is None:
            return f"{self.name} does not hash."
        hashes = hashes_text(self.arguments)
        members = len(self.map.destinations)
        if not members:
            return f"Nothing is bound, so no member gets a message ({hashes})."
        known = self.map.order.text if self.is_determined else f"not known ({self.map.order.doubt})"
        order = f", in an order that is {known}" if self.map.underlying.hashing.has_order else ""
        through = f" through {plural(len(self.map.slots), 'slot')}" if self.map.slots else ""
        share = "members share" if members > 1 else "member gets"
        said = f"{members:,} {share} the keys ({hashes}){through}{order}."
        if not self.rates.exchange:
            return said
        return f"{said} {rate_text(self.rates.exchange)} messages/s: {self.most_loaded}."

    def _figures(self, place: Place, places: Sequence[Place], share: float | None) -> PlaceFigures:
        """Return the figures of a place, which has the load of `places` in the ring, and a share of the keys."""
        sample = self.sample
        rates = self.rates
        load = None
        if sample is not None:
            counts = [sample.messages.get(each, 0) for each in places if each is not None]
            load = rounded(sum(map(sample.share, counts)))
        if not isinstance(place, str):
            rate = None if load is None or rates.exchange is None else load * rates.exchange
            return PlaceFigures(share, load, rate)
        ready, unacked, consumers = rates.backlogs.get(place, _NO_BACKLOG)
        return PlaceFigures(
            share,
            load,
            rate=rates.queues.get(place),
            traffic=rounded(self.traffic.get(place)) if rates.backlogs else None,
            state=rates.states.get(place),
            ready=ready,
            unacked=unacked,
            consumers=consumers,
        )


def _traffic(key_map: KeyMap, rates: PublishRates) -> dict[str, float]:
    places = key_map.destinations if rates.exchange else ()
    return rates.traffic([place for place in places if isinstance(place, str)])


def _map_of(
    live: LiveTopology, exchange: ExchangeDefinition, sharding: ShardedExchange | None
) -> KeyMap | None:
    """Return the map of an exchange; None of one that does not hash, whose shards are all there is."""
    if sharding is not None and not hashes(exchange):
        return None
    return key_map_of(live, exchange.name)


def _sharding_parts(exchange: ShardedExchange) -> Iterator[Block]:
    """Yield the policy that shards an exchange, the shards, and the findings."""
    count = f"{plural(exchange.shards_per_node, 'shard')} on each node"
    key = f", bound with {exchange.routing_key!r}" if exchange.routing_key else ""
    findings = exchange.findings
    nodes = exchange.nodes
    facts = [
        ("policy", "none" if exchange.policy is None else f"{exchange.policy}: {count}{key}"),
        ("nodes", "not known: the user lacks the tag monitoring" if nodes is None else ", ".join(nodes)),
        (
            "findings",
            f"{len(findings):,}" if findings else f"none in {plural(len(exchange.shards), 'shard')}",
        ),
    ]
    if nodes is None:
        facts.append(("not checked", "missing shards, and shards of stopped nodes"))
    yield Facts(facts)
    yield Table.of(Shard, exchange.shards)
    if findings:
        yield Facts([pair for each in findings for pair in ((each.kind, each.message), ("", each.fix))])


def _record(live: LiveTopology, name: str) -> Mapping[str, Any] | None:
    """Return the record that a ring makes, or what is known about a void one."""
    order = live.rings[name].order
    if order.is_certain:
        return record_arguments(record_of(live, name))
    stored = evidence_of(live).records.get(name)
    if stored is None:
        return None
    return {"written": stored.written, "writer": stored.writer, "void": order.doubt}


def _record_text(live: LiveTopology, name: str) -> str:
    """Return what is known about the record of a ring, and how to store one that fits."""
    evidence = evidence_of(live)
    record = evidence.records.get(name)
    stored = "none" if record is None else f"of {record.about}"
    if name not in read_without_record(live):
        return "" if record is None else stored
    fault = "" if record is None else ", which does not fit the ring"
    if evidence.ways_to_learn.voids:
        return f"{stored}{fault}; {none_lasts(evidence.ways_to_learn)}"
    remedy = "store it with" if record is None else "if the present order is right, replace it with"
    return f"{stored}{fault}: {remedy} {record_command(name)}"


def show_report(exchanges: Mapping[str, ShownExchange]) -> Document:
    """Return what is known about some exchanges; in JSON those of several are by name."""
    fields = {name: exchange.fields() for name, exchange in exchanges.items()}
    if len(exchanges) == 1:
        ((name, exchange),) = exchanges.items()
        parts = exchange.parts(fields[name])
        return Document("show", parts, fields[name], title=name, lead=exchange.sentence)
    sections = [Section(name, exchange.parts(fields[name])) for name, exchange in exchanges.items()]
    return Document("show", sections, ShownExchanges(fields), title=", ".join(exchanges))


class _Found(NamedTuple):
    """The kinds of the findings of an exchange, and whether what depends on its order was checked, too."""

    kinds: tuple[str, ...]
    is_determined: bool

    @classmethod
    def of(cls, found: TopologyCheck, exchange: str, *, is_determined: bool) -> _Found:
        return cls(tuple(each.kind for each in found.findings if each.exchange == exchange), is_determined)

    @property
    def text(self) -> str:
        """Their number and their kinds."""
        if not self.kinds:
            return "none" if self.is_determined else "none, without the order"
        return f"{len(self.kinds):,}: {', '.join(dict.fromkeys(self.kinds))}"


def _kinds(found: _Found) -> tuple[str, ...]:
    return found.kinds


def _blank_if_unknown(count: int | None) -> object:
    return "" if count is None else count


@dataclass(frozen=True, slots=True)
class ListedRing:
    """An x-consistent-hash exchange in a list.

    Attributes:
        members: The number of the queues that share its keys.
        buckets: The number of its buckets; null if it depends on an order that is not known.
        slots: The number of its slots.
        provenance: The source of the ring.
        condition: What must be true for a recorded ring to be that of the broker, and for the shares of a ring whose order is not known; else null.
        determined: False if something depends on an order or a hashed value that is not known; it is null.
        findings: The kinds of the findings.
    """

    vhost: str = field(metadata=shown("vhost"))
    exchange: str = field(metadata=shown("exchange"))
    members: int = field(metadata=shown("members", number=True))
    buckets: int | None = field(metadata=shown("buckets", _blank_if_unknown, number=True))
    slots: int = field(metadata=shown("slots", lambda count: count or "", number=True))
    provenance: Provenance | None = field(metadata=shown("ring"))
    condition: str | None
    determined: bool
    findings: _Found = field(
        metadata=shown("findings", lambda found: found.text, as_json=_kinds, values=CHECK_KINDS)
    )


@dataclass(frozen=True, slots=True)
class ListedModulus:
    """An x-modulus-hash exchange in a list: the numbers of its members and its bindings, the kinds of its findings, and the share of each binding."""

    vhost: str
    exchange: str
    members: int
    bindings: int
    findings: _Found = field(metadata=shown(as_json=_kinds, values=CHECK_KINDS))
    share: str = field(metadata=shown(json=None))

    def text(self, where: str) -> str:
        """Return the exchange in a sentence; `where` says in which vhost it is."""
        return (
            f"{self.exchange}{where} is of type x-modulus-hash, without a ring: "
            f"{plural(self.members, 'member')}, {plural(self.bindings, 'binding')}{self.share}; findings {self.findings.text}"
        )


@dataclass(frozen=True, slots=True)
class ListedExchanges:
    """The exchanges that hash.

    Attributes:
        determined: False if something depends on an order or a hashed value that is not known; it is null.
    """

    determined: bool
    exchanges: Sequence[ListedRing]
    modulus: Sequence[ListedModulus] = field(metadata=shown(optional=True))


def list_report(
    vhosts: Sequence[str],
    rings: Sequence[ListedRing],
    moduli: Sequence[ListedModulus] = (),
    *,
    checks: Iterable[TopologyCheck] = (),
    unrecorded: Sequence[str] = (),
    all_vhosts: bool = False,
) -> Document:
    """Return the x-consistent-hash exchanges, and a line for each x-modulus-hash exchange, which has no ring.

    Args:
        vhosts: the vhosts.
        rings: the exchanges with a ring.
        moduli: the x-modulus-hash exchanges.
        checks: the checks of the vhosts, for the findings about other objects.
        unrecorded: sentences about the rings that were read, and that no record on the broker fits.
        all_vhosts: whether the exchanges are those of all vhosts.
    """
    parts: list[Block] = []
    if rings:
        parts.append(Table.of(ListedRing, rings, skip=0 if all_vhosts else 1))
    else:
        parts.append(Line(f"no x-consistent-hash exchanges in {', '.join(map(repr, vhosts))}"))
    for modulus in moduli:
        where = f" of vhost {modulus.vhost}" if all_vhosts else ""
        parts.append(Line(modulus.text(where)))
    others = sum(
        finding.exchange not in (*check.exchanges, *check.without_ring)
        for check in checks
        for finding in check.findings
    )
    if others:
        shown = f"{command_text('check')} (`rabbit_chx.topology.check(broker.topology())`)"
        parts.append(Line(f"{plural(others, 'finding')} about other objects: {shown}"))
    if any(ring.condition == RECORD_CONDITION for ring in rings):
        parts.append(Line(f"a recorded ring is {RECORD_CONDITION}"))
    is_known = all(ring.determined for ring in rings)
    return Document("rings", [*parts, *map(Line, unrecorded)], ListedExchanges(is_known, rings, moduli))


def list_moduli(vhost: str, topology: LiveTopology, found: TopologyCheck) -> Iterator[ListedModulus]:
    """Yield the x-modulus-hash exchanges."""
    of_source = grouped((each.source, each) for each in topology.bindings)
    for exchange in topology.exchanges:
        if exchange.type != MODULUS_EXCHANGE:
            continue
        bound = of_source.get(exchange.name, [])
        own = modulo_map_of(exchange, bound, topology.release, "read")
        assert own is not None  # it is of the type
        yield ListedModulus(
            vhost,
            exchange.name,
            members=len({binding.destination for binding in bound}),
            bindings=len(bound),
            findings=_Found.of(found, exchange.name, is_determined=own.is_determined),
            share=f", each with 1/{len(bound)} of the keys" if bound else "",
        )


def list_rings(vhost: str, topology: LiveTopology, found: TopologyCheck) -> Iterator[ListedRing]:
    """Yield the x-consistent-hash exchanges."""
    for exchange in topology.exchanges:
        if exchange.type != HASH_EXCHANGE:
            continue
        ring = find_live_ring(topology, exchange, exchange.name).ring
        checked = found.rings.get(exchange.name)
        if isinstance(checked, HashRing):
            ring = checked
        slots = view_slots(exchange.name, ring, topology.exchanges, topology.bindings).queues
        members = {queue for queues in slots.values() for queue in queues} | {*ring.destinations} - {*slots}
        yield ListedRing(
            vhost,
            exchange.name,
            members=len(members),
            buckets=len(ring.buckets) if ring.is_determined else None,
            slots=len(slots),
            provenance=ring.provenance,
            condition=ring.condition,
            determined=ring.is_determined,
            findings=_Found.of(found, exchange.name, is_determined=ring.is_determined),
        )


def why_nothing_hashes(
    user: str,
    vhosts: Sequence[str],
    types: Iterable[Mapping[str, Any]],
    exchanges: Iterable[Mapping[str, Any]],
) -> str:
    """Return why no exchange of some vhosts hashes: the permissions of the user, the plugin, or the vhosts; with the remedy.

    Args:
        user: the name of the user.
        vhosts: the vhosts that the user may access.
        types: the exchange types of the broker, as ``GET /api/overview`` lists them.
        exchanges: all exchanges that the user may list.
    """
    if not vhosts:
        return f"the user {user!r} may access no vhost: grant it permissions with rabbitmqctl set_permissions"
    names = {type_["name"] for type_ in types}
    if names and HASH_EXCHANGE not in names:
        return (
            f"the broker does not have the exchange type {HASH_EXCHANGE}: enable its plugin with rabbitmq-plugins enable "
            "rabbitmq_consistent_hash_exchange"
        )
    where = f"vhost {vhosts[0]} has" if len(vhosts) == 1 else f"the {len(vhosts)} vhosts of the user have"
    why = f"{where} no exchange of type {HASH_EXCHANGE} or {MODULUS_EXCHANGE}"
    others = sorted({str(entry["vhost"]) for entry in exchanges if entry.get("type") == HASH_EXCHANGE})
    return f"{why}: pass the vhost {others[0]!r}, which has one" if others else f"{why}: declare one"
