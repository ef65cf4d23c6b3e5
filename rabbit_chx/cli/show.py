"""``rabbit-chx show``: the exchanges that hash, a line each; or some of them with members, shares, slots and record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis import ring_findings
from rabbit_chx.analysis.wording import place_text, rounded
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, option, options, say
from rabbit_chx.cli.printed import to_type
from rabbit_chx.cli.read_rings import how_to_record, read_without_record
from rabbit_chx.cli.report import bucket_ranges, exchange_facts, say_doubts
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering import Data, Document, Facts, Line, Part, Section, Table, sign_of_life
from rabbit_chx.result_fields import Shown, to_json
from rabbit_chx.routing import SlotTable
from rabbit_chx.routing.bindings import Destination, Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology import LiveTopology, check
from rabbit_chx.topology.live.reading import PublishRates
from rabbit_chx.topology.live.recording import record_of
from rabbit_chx.topology.live_rings import find_live_ring
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, MODULUS_EXCHANGE, order_of_name
from rabbit_chx.topology.ring_records import record_arguments
from rabbit_chx.topology.slots.slot_view import view_slots
from rabbit_chx.words import percent, plural

if TYPE_CHECKING:
    from rabbit_chx.topology.live.reading import LiveExchange

#: How a RING begins or ends that is no exchange of the broker.
_OF_FILES = (".toml", ".json")
_OF_TYPES = ("modulus:", "super-stream:")


@command(
    example="rabbit-chx show orders --management-url http://localhost:15672 --ring-via 'docker exec rabbitmq'",
    plot_help="Plot the share of each member, or the slots of each queue, into this file.",
)
def show(
    *,
    exchanges: tuple[str, ...] = argument(nargs=-1, type=TEXT, metavar="[EXCHANGE]..."),
    all_vhosts: bool = option(
        is_flag=True, help="List the exchanges of every vhost that the user may access."
    ),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
) -> Outcome:
    """List the exchanges that hash; or show the members of each EXCHANGE, the exact shares, the slots and the record.

    --ring-via reads the true ring. Without it the ring is that of the record on the broker, or assumed from the
    bindings. The list has the kinds of findings of `check`; assumed rings are not checked.

    Nothing is changed. If no exchange hashes, the exit code is 2, and stderr says whether the plugin, the vhost or
    a permission is missing.
    """
    _refuse_rings(exchanges)
    at = broker.live()
    if not exchanges:
        return Outcome(_list_exchanges(at, all_vhosts=all_vhosts))
    if all_vhosts:
        raise InputError(
            f"--all-vhosts lists exchanges, and {exchanges[0]} is of one vhost: leave one of them out"
        )
    shown = {name: ShownExchange.read(at, name) for name in exchanges}
    first = shown[exchanges[0]]
    plot = ("slots" if isinstance(first.map, SlotTable) else "shares", first.map)
    return Outcome(show_report(shown), plot=plot, plotted=f"Exchange {first.name}, vhost {first.vhost}")


def _refuse_rings(names: Sequence[str]) -> None:
    """Refuse what is a RING of other commands, and no exchange of a broker."""
    for name in names:
        if name.partition("#")[0].endswith(_OF_FILES):
            remedy = to_type("check", name.partition("#")[0], offline=True)
            raise InputError(
                Fix(f"{name!r} is a file, and show reads exchanges of the broker: check it with ", remedy)
            )
        if "=" in name or name.startswith(_OF_TYPES):
            raise InputError(
                Fix(
                    f"{name!r} are bindings, and show reads exchanges of the broker: for their shares use ",
                    to_type("compare", name),
                )
            )


# -- some exchanges


@dataclass(frozen=True, slots=True)
class ShownExchange:
    """What is known about an exchange.

    Attributes:
        map: its ring with the slots, or its other map of keys.
        arguments: those that determine the hashed value; None over AMQP alone.
        keys: the binding keys of each member; empty over AMQP alone.
        rates: the publish rates of the exchange and its queues, and the queues that do not run.
        record: what is known about the record on the broker; empty over AMQP alone.
        record_arguments: the record that this ring makes; None if it is assumed.
    """

    name: str
    vhost: str
    map: KeyMap
    arguments: Mapping[str, str] | None = None
    keys: Mapping[Destination, Sequence[str]] | None = None
    rates: PublishRates = field(default_factory=lambda: PublishRates(None, {}))
    record: str = ""
    record_arguments: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, at: BrokerAddresses, name: str) -> ShownExchange:
        """Read an exchange, and write its defects to stderr."""
        if at.ring_source is not None and at.management_url is None:
            with at.open() as opened, sign_of_life("reading the ring"):
                ring = opened.ring(name)
            findings, shown = ring_findings(ring), cls(name, at.settings.vhost, ring)
        else:
            with sign_of_life("reading the exchange"):
                live = at.exchange(name, "AMQP alone does not show bindings")
                shown = cls._of(live)
            findings = []
            if live.type == HASH_EXCHANGE:
                findings = ring_findings(live.ring, live.bindings, live.alternate)
                for fault in live.slots.faults.values():
                    say(fault)
        say_doubts({name: shown.map})
        for finding in findings:
            say(f"exchange {name!r}: {finding.message}")
        return shown

    @classmethod
    def _of(cls, live: LiveExchange) -> ShownExchange:
        key_map, keys = live.key_map(), dict[Destination, list[str]]()
        for destination, key in live.bindings:
            keys.setdefault(destination, []).append(key)
        is_certain = live.type == HASH_EXCHANGE and live.ring.ground.is_certain
        return cls(
            live.name,
            live.vhost,
            key_map,
            live.hash_arguments,
            keys,
            live.publish_rates(),
            _record_text(live) if live.type == HASH_EXCHANGE else "",
            record_arguments(record_of(live)) if is_certain else None,
        )

    def parts(self) -> Iterator[Part]:
        """Yield the exchange, its members, and the queues of its slots."""
        facts = exchange_facts(self.name, self.vhost, self.arguments, self.map)
        if self.record:
            facts.append(("record", self.record))
        if self.rates.exchange is not None:
            facts.append(("published", f"{_rate(self.rates.exchange)} messages/s in the last seconds"))
        of_map: dict[str, Any] = to_json(self.map)
        yield Data(
            {
                **{name: value for name, value in of_map.items() if not name.startswith("format")},
                **({} if self.map.release is None else {"release": self.map.release}),
                "exchange": self.name,
                "vhost": self.vhost,
                "arguments": self.arguments,
                "record": self.record_arguments,
                "rate": self.rates.exchange,
            }
        )
        yield Facts(facts)
        members = list(self._members())
        yield Table.of(_MEMBERS, members, key="members").for_people(members)
        if isinstance(self.map, SlotTable):
            yield Table.of(_QUEUES, self._queues(self.map), key="queues")

    def _members(self) -> Iterator[tuple[object, ...]]:
        """Yield the members in the order of the ring; those without a bucket are last."""
        buckets, shares = self.map.beneath.buckets, self.map.beneath.shares()
        ranges = bucket_ranges(enumerate(buckets))
        counts, owners = Counter(buckets), self.map if isinstance(self.map, SlotTable) else None
        for place in dict.fromkeys((*ranges, *(self.keys or ()))):
            keys = () if self.keys is None or place is None else self.keys.get(place, ())
            yield (
                place,
                None if owners is None else _text_or_none(owners.queue_of(place)),
                keys,
                ranges.get(place, ""),
                counts[place],
                shares.get(place, 0.0),
                self.rates.queues.get(place) if isinstance(place, str) else None,
                self.rates.states.get(place) if isinstance(place, str) else None,
            )

    def _queues(self, slots: SlotTable) -> Iterator[tuple[object, ...]]:
        """Yield the queues in the order of their names; None, for the slots without a queue, is last."""
        shares, held = slots.shares(), Counter(slots.owners.get(slot) for slot in slots.slots)
        named = sorted((queue for queue in slots.destinations if isinstance(queue, str)), key=order_of_name)
        for queue in (*named, *([None] if held[None] else [])):
            name = queue or ""
            rate, state = self.rates.queues.get(name), self.rates.states.get(name)
            yield queue, held[queue], shares.get(queue, 0.0), rate, state


def _record_text(live: LiveExchange) -> str:
    """Return what is known about the record of a ring, and how to store one that fits."""
    stored = "none" if live.record is None else f"of {live.record.about}"
    if live.ring.provenance != "read" or live.is_recorded:
        return stored if live.record is not None else ""
    fault = "" if live.record is None else ", which does not fit the ring"
    return Fix(f"{stored}{fault}: store it with ", to_type("record", live.name))


def _text_or_none(place: Place) -> str | None:
    return None if place is None else str(place)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}"


_SHARED = {
    "share": Shown("share", percent, number=True, as_json=rounded),
    "rate": Shown("messages/s", _rate, number=True, sparse=True),
    "state": Shown("state", sparse=True),
}
_MEMBERS = {
    "destination": Shown("member", place_text),
    "queue": Shown("queue", sparse=True),
    "weights": Shown("weight", " and ".join, number=True, sparse=True),
    "places": Shown("buckets", json=None),
    "buckets": Shown("count", number=True),
    **_SHARED,
}
_QUEUES = {"queue": Shown("queue", place_text), "slots": Shown("slots", number=True), **_SHARED}


def show_report(exchanges: Mapping[str, ShownExchange]) -> Document:
    """Return what is known about some exchanges; in JSON those of several are by name."""
    if len(exchanges) == 1:
        return Document("show", [part for shown in exchanges.values() for part in shown.parts()])
    sections = [Section(name, list(shown.parts()), key=name) for name, shown in exchanges.items()]
    return Document("show", [Section("", sections, key="exchanges")])


# -- the list


def _verdict(findings: tuple[str, ...] | None) -> str:
    return "not checked" if findings is None else ", ".join(dict.fromkeys(findings)) or "none"


_RINGS = {
    "vhost": Shown("vhost"),
    "exchange": Shown("exchange"),
    "members": Shown("members", number=True),
    "buckets": Shown("buckets", number=True),
    "slots": Shown("slots", lambda count: count or "", number=True),
    "provenance": Shown("ring"),
    "findings": Shown("findings", _verdict),
}
_MODULI = dict.fromkeys(("vhost", "exchange", "members", "bindings"), Shown())


def list_report(
    vhosts: Sequence[str],
    rings: Sequence[Sequence[object]],
    moduli: Sequence[tuple[str, str, int, int]] = (),
    *,
    unrecorded: Mapping[str, Sequence[str]] | None = None,
    all_vhosts: bool = False,
) -> Document:
    """Return the x-consistent-hash exchanges, and a line for each x-modulus-hash exchange, which has no ring and is not checked.

    Args:
        vhosts: the vhosts.
        rings: the vhost and the name of each exchange with a ring; the queues that share its keys, its buckets and its slots; the origin of
            its ring; and the kinds of a check's findings, or None if the ring was not read, so that it cannot be checked.
        moduli: the vhost and the name of each x-modulus-hash exchange, its members, and its bindings, each with the same share of the keys.
        unrecorded: of each vhost the exchanges whose rings were read, and that no record on the broker fits.
        all_vhosts: whether the exchanges are those of all vhosts.
    """
    table = Table.of(_RINGS, rings, key="exchanges", skip=0 if all_vhosts else 1)
    parts: list[Part] = [table.for_people(rings)]
    if not rings:
        parts.append(Line(f"no x-consistent-hash exchanges in {', '.join(map(repr, vhosts))}"))
    if moduli:
        parts.append(Table.of(_MODULI, moduli, key="modulus"))
    for vhost, name, members, bindings in moduli:
        where = f" of vhost {vhost}" if all_vhosts else ""
        share = f", each with 1/{bindings} of the keys" if bindings else ""
        parts.append(
            Line(
                f"{name}{where} is of type x-modulus-hash, without a ring, and not checked: "
                f"{plural(members, 'member')}, {plural(bindings, 'binding')}{share}"
            )
        )
    for vhost, names in (unrecorded or {}).items():
        in_vhost = {"vhost": vhost} if all_vhosts else {}
        parts += [Line(how_to_record(names, **in_vhost))] if names else []
    return Document("rings", parts)


def _list_exchanges(live: BrokerAddresses, *, all_vhosts: bool) -> Document:
    vhosts = live.vhosts() if all_vhosts else [live.settings.vhost]
    rings: list[Sequence[object]] = []
    moduli: list[tuple[str, str, int, int]] = []
    unrecorded: dict[str, list[str]] = {}
    for vhost in vhosts:
        with live.in_vhost(vhost).open() as opened, sign_of_life("reading the broker"):
            topology = opened.topology()
        rings += _list_rings_of(vhost, topology)
        say_doubts(topology.rings)
        unrecorded[vhost] = read_without_record(topology)
        moduli += _list_moduli(vhost, topology)
    if not rings and not moduli:
        raise InputError(f"nothing to list: {live.why_nothing_hashes(vhosts)}")
    return list_report(vhosts, rings, moduli, unrecorded=unrecorded, all_vhosts=all_vhosts)


def _list_moduli(vhost: str, topology: LiveTopology) -> Iterator[tuple[str, str, int, int]]:
    for exchange in topology.exchanges:
        if exchange.type == MODULUS_EXCHANGE:
            bound = [binding for binding in topology.bindings if binding.source == exchange.name]
            members = {binding.destination for binding in bound}
            yield vhost, exchange.name, len(members), len(bound)


def _is_certain(topology: LiveTopology, name: str) -> bool:
    return name in topology.rings and topology.rings[name].ground.is_certain


def _list_rings_of(vhost: str, topology: LiveTopology) -> Iterator[Sequence[object]]:
    checked = [
        exchange.name
        for exchange in topology.exchanges
        if exchange.type == HASH_EXCHANGE
        # A ring that is not there has a member that no client can name, which is a finding.
        and (exchange.name in topology.sources_left_out or _is_certain(topology, exchange.name))
    ]
    findings = check(topology, exchange=checked).findings if checked else ()
    for exchange in topology.exchanges:
        if exchange.type != HASH_EXCHANGE:
            continue
        ring = find_live_ring(topology, exchange, exchange.name).ring
        slots = view_slots(exchange.name, ring, topology.exchanges, topology.bindings).queues
        members = {queue for queues in slots.values() for queue in queues} | {*ring.destinations} - {*slots}
        kinds = tuple(finding.kind for finding in findings if finding.exchange == exchange.name)
        found = kinds if exchange.name in checked else None
        yield (
            vhost,
            exchange.name,
            len(members),
            len(ring.buckets),
            len(slots),
            ring.provenance,
            found,
        )
