"""``rabbit-chx ring show`` and ``ring list``: the ring of a live exchange, and the exchanges that have a ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import click

from rabbit_chx.analysis import ring_findings
from rabbit_chx.analysis.wording import Document, place_text, to_json
from rabbit_chx.cli.applying import has_terminal
from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import ExitCode, Outcome, argument, command, option, options, say
from rabbit_chx.cli.observations import ObservedOptions, read_observed, with_observed_ring
from rabbit_chx.cli.printed import to_type
from rabbit_chx.cli.read_rings import store_read_ring, store_read_rings
from rabbit_chx.cli.report import bucket_ranges, exchange_facts, numbers, say_doubts, texts
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering import Block, Facts, Line, Table, sign_of_life, table_of
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import HashRing, SlotTable
from rabbit_chx.routing.ground import Provenance
from rabbit_chx.topology import LiveTopology, check
from rabbit_chx.topology.checking.check import certain_ring
from rabbit_chx.topology.live.recording import has_record, make_settled_record_of, record_of
from rabbit_chx.topology.live_rings import find_live_ring, live_hash_exchange
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, MODULUS_EXCHANGE
from rabbit_chx.topology.ring_records import RingRecord, record_arguments, records_of
from rabbit_chx.topology.slots.slot_view import view_slots
from rabbit_chx.words import percent, plural


@dataclass(frozen=True, slots=True)
class RingReport:
    """The ring of an exchange, or the table of its slots.

    Attributes:
        arguments: those that determine the hashed value; None if they are not known.
        stored: the record on the broker.
        record: the record that this ring makes; None if it is assumed.
    """

    exchange: str
    vhost: str
    ring: HashRing | SlotTable
    arguments: Mapping[str, str] | None
    stored: RingRecord | None = None
    record: Mapping[str, Any] | None = None

    def blocks(self) -> Iterator[Block]:
        """Return the exchange, the buckets of each destination, and with slots the share of each queue."""
        facts = exchange_facts(self.exchange, self.vhost, self.arguments, self.ring)
        if self.stored is not None:
            facts.append(("record", f"of {self.stored.about}"))
        yield Facts(facts)
        ring = self.ring.beneath
        if not ring.buckets:
            return
        slots = self.ring if isinstance(self.ring, SlotTable) else None
        shares, ranges = ring.shares(), bucket_ranges(enumerate(ring.buckets))
        yield Table(
            [
                *texts("destination", *(["queue"] if slots else []), "buckets"),
                *numbers("count", "share"),
            ],
            [
                (
                    place_text(place),
                    *([place_text(slots.queue_of(place))] if slots else []),
                    text,
                    ring.buckets.count(place),
                    percent(shares.get(place, 0)),
                )
                for place, text in ranges.items()
            ],
        )
        if slots:
            held = Counter(map(slots.queue_of, slots.slots))
            yield Table(
                [*texts("queue"), *numbers("slots", "share")],
                [(place_text(queue), held[queue], percent(share)) for queue, share in slots.shares().items()],
            )

    def as_json(self) -> dict[str, Any]:
        """Return the ring in the format of its `to_json`, with the exchange and its arguments."""
        about = {"exchange": self.exchange, "vhost": self.vhost, "arguments": to_json(self.arguments)}
        return {**to_json(self.ring), **about, "record": to_json(self.record)}


@command(
    example="rabbit-chx ring show orders --ring-via 'docker exec rabbitmq'",
    plot_help="Plot the share of each destination into this file.",
)
def show(
    *,
    exchange: str = argument(),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """Show the buckets of each destination of EXCHANGE, and the exact share of all keys.

    --ring-via reads the true ring, and stores its order on the broker if there is no record. Without
    --ring-via the ring comes from its record, or is assumed from the bindings. If the ring has slots,
    --management-url adds the queue of each slot and the share of each queue.

    stderr reports holes, and with --management-url differences from the bindings.
    """
    at = broker.live()
    vhost, arguments, stored, record = at.settings.vhost, None, None, None
    shown: HashRing | SlotTable
    if at.ring_source is not None and at.management_url is None:
        with at.open() as opened, sign_of_life("reading the ring"):
            shown = ring = opened.ring(exchange)
        findings = ring_findings(ring)
    else:
        with sign_of_life("reading the ring"):
            live = at.exchange(exchange, "AMQP alone does not show bindings")
            findings, arguments = ring_findings(live.ring, live.bindings, live.alternate), live.hash_arguments
            shown, stored = live.slots.key_map(), live.record
            record = record_arguments(record_of(live)) if live.ring.ground.is_certain else None
        store_read_ring(at, live)
        for fault in live.slots.faults.values():
            say(fault)
    say_doubts({exchange: shown})
    for finding in findings:
        say(f"exchange {exchange!r}: {finding.message}")

    plotted = f"Exchange {exchange}, vhost {vhost}"
    report = RingReport(exchange, vhost, shown, arguments, stored, record)
    return Outcome(report, plot=("shares", shown), plotted=plotted)


def _verdict(findings: tuple[str, ...] | None) -> str:
    return "not checked" if findings is None else ", ".join(dict.fromkeys(findings)) or "none"


@dataclass(frozen=True, slots=True)
class ListedRing:
    """An x-consistent-hash exchange of a list.

    Attributes:
        members: the number of queues that share its keys; an exchange in the ring that is not a slot counts as one of them.
        buckets: the number of buckets of its ring.
        slots: the number of slots among its destinations.
        provenance: the source of the ring.
        findings: the kinds of a check's findings; None if the ring was not read, so that it cannot be checked.
    """

    vhost: str = field(metadata=shown("vhost"))
    exchange: str = field(metadata=shown("exchange"))
    members: int = field(metadata=shown("members", number=True))
    buckets: int = field(metadata=shown("buckets", number=True))
    slots: int = field(metadata=shown("slots", lambda count: count or "", number=True))
    provenance: Provenance = field(metadata=shown("ring"))
    findings: tuple[str, ...] | None = field(metadata=shown("findings", _verdict))


@dataclass(frozen=True, slots=True)
class ListedModulus:
    """An x-modulus-hash exchange of a list. It has no ring, and is not checked.

    Attributes:
        members: the number of queues and exchanges that share its keys.
        bindings: the number of bindings, each with the same share of the keys.
    """

    vhost: str
    exchange: str
    members: int
    bindings: int


@dataclass(frozen=True, slots=True)
class RingList(Document):
    """The x-consistent-hash exchanges and the x-modulus-hash exchanges of a vhost, or of all vhosts."""

    format_name: ClassVar = "rings"
    vhosts: tuple[str, ...] = field(metadata=shown(json=None))
    rings: tuple[ListedRing, ...] = field(metadata=shown(json="exchanges"))
    all_vhosts: bool = field(metadata=shown(json=None))
    moduli: tuple[ListedModulus, ...] = field(default=(), metadata=shown(json="modulus", optional=True))

    def blocks(self) -> Iterator[Block]:
        """Return a row for each exchange with a ring, and a line for each x-modulus-hash exchange."""
        yield from self._with_ring()
        for modulus in self.moduli:
            where = f" of vhost {modulus.vhost}" if self.all_vhosts else ""
            share = f", each with 1/{modulus.bindings} of the keys" if modulus.bindings else ""
            yield Line(
                f"{modulus.exchange}{where} is of type x-modulus-hash, without a ring, and not checked: "
                f"{plural(modulus.members, 'member')}, {plural(modulus.bindings, 'binding')}{share}"
            )

    def _with_ring(self) -> Iterator[Block]:
        if not self.rings:
            yield Line(f"no x-consistent-hash exchanges in {', '.join(map(repr, self.vhosts))}")
            return
        yield table_of(ListedRing, self.rings, skip=0 if self.all_vhosts else 1)


@command(
    example="rabbit-chx ring list --management-url http://localhost:15672 --ring-via 'docker exec rabbitmq'"
)
def list_rings(
    *,
    all_vhosts: bool = option(
        is_flag=True, help="List the exchanges of every vhost that the user may access."
    ),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """List all x-consistent-hash exchanges with the kinds of findings of `ring check`.

    Without --ring-via the rings are those of the records on the broker, or assumed from the bindings. Assumed
    rings are not checked. --ring-via stores the order of rings without a record on the broker.
    Without such an exchange the exit code is 2, and stderr says whether the plugin, the vhost or a permission is
    missing.
    """
    live = broker.live()
    vhosts = live.vhosts() if all_vhosts else [live.settings.vhost]
    rings: list[ListedRing] = []
    moduli: list[ListedModulus] = []
    for vhost in vhosts:
        with live.in_vhost(vhost).open() as opened, sign_of_life("reading the broker"):
            topology = opened.topology()
            rings += _list_rings_of(vhost, topology)
            say_doubts(topology.rings)
            store_read_rings(live, topology, opened)
            moduli += _list_moduli(vhost, topology)
    if not rings and not moduli:
        raise InputError(f"nothing to list: {live.why_nothing_hashes(vhosts)}")
    return Outcome(RingList(tuple(vhosts), tuple(rings), all_vhosts, tuple(moduli)))


def _list_moduli(vhost: str, topology: LiveTopology) -> Iterator[ListedModulus]:
    for exchange in topology.exchanges:
        if exchange.type == MODULUS_EXCHANGE:
            bound = [binding for binding in topology.bindings if binding.source == exchange.name]
            members = {binding.destination for binding in bound}
            yield ListedModulus(vhost, exchange.name, len(members), len(bound))


def _is_certain(topology: LiveTopology, name: str) -> bool:
    return name in topology.rings and topology.rings[name].ground.is_certain


def _list_rings_of(vhost: str, topology: LiveTopology) -> Iterator[ListedRing]:
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
        yield ListedRing(
            vhost,
            exchange.name,
            len(members),
            len(ring.buckets),
            len(slots),
            ring.provenance,
            kinds if exchange.name in checked else None,
        )


@dataclass(frozen=True, slots=True)
class RecordedRing:
    """A ring whose order is on the broker.

    Attributes:
        origin: the origin of the order.
        members: the number of its bindings.
        written: the time of the record.
        writer: who stored it.
        is_new: True if this command stored it.
    """

    exchange: str = field(metadata=shown("exchange"))
    origin: Provenance = field(metadata=shown("order"))
    members: int = field(metadata=shown("bindings", number=True))
    written: str = field(metadata=shown("written"))
    writer: str = field(metadata=shown("writer"))
    is_new: bool = field(metadata=shown("new", lambda new: "new" if new else ""))


@dataclass(frozen=True, slots=True)
class Recorded(Document):
    """The rings whose order is on the broker."""

    format_name: ClassVar = "records"
    vhost: str = field(metadata=shown())
    recorded: tuple[RecordedRing, ...] = field(metadata=shown())

    def blocks(self) -> Iterator[Block]:
        """Return a row for each ring."""
        yield table_of(RecordedRing, self.recorded)


@command(example="rabbit-chx ring record --all --ring-via 'docker exec rabbitmq'")
def record_rings(
    *,
    exchanges: tuple[str, ...] = argument(nargs=-1, metavar="[EXCHANGE]..."),
    every: bool = option("--all", is_flag=True, help="Record every x-consistent-hash exchange of the vhost."),
    source: str | None = option(
        "--from",
        metavar="FILE",
        help="Instead of --ring-via: the output of `ring show --output json` for EXCHANGE.",
    ),
    observed: ObservedOptions = options(ObservedOptions),
    yes: bool = option(is_flag=True, help="Replace records that differ, without asking."),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """Read the ring of each EXCHANGE, and store its order on the broker, in an exchange rabbit-chx.ring.NAME.

    The ring is read by --ring-via, comes from --from, or is determined by --observed: about N ln N keys of N
    buckets, with the queues that received them. Afterwards every command knows the ring over the management
    API. A record is exact as long as this program binds and unbinds; others may unbind members, or bind one more.

    It asks before it replaces a record that differs. The exit code is 4 if the answer is no, or if there is no
    terminal to ask.
    """
    if bool(exchanges) == every:
        raise InputError("pass an EXCHANGE, or --all for every x-consistent-hash exchange")
    if source is not None:
        broker = replace(broker, ring_from=source, ring_via=None)
    if observed.observed is not None and (source is not None or len(exchanges) != 1):
        raise InputError("--observed has the keys of one exchange: pass one EXCHANGE, and no --from")
    if broker.no_record:
        raise InputError("ring record stores the order of rings: leave --no-record out")
    at = broker.live()
    with at.open() as opened, sign_of_life("reading the broker"):
        live = opened.topology()
        names = exchanges or tuple(name.name for name in live.exchanges if name.type == HASH_EXCHANGE)
        if not names:
            raise InputError(f"vhost {at.settings.vhost} has no x-consistent-hash exchange: check the vhost")
        if observed.observed is not None:
            name = live_hash_exchange(live, exchanges[0]).name
            live = with_observed_ring(live, name, read_observed(observed, live, name))
        rings = {name: certain_ring(live, live_hash_exchange(live, name).name) for name in names}
        made = {name: make_settled_record_of(live, name) for name in rings}
        stored = {
            name: [r for r in records_of(name, live.facts.records) if isinstance(r, RingRecord)]
            for name in rings
        }
        new = {
            name: ring
            for name, ring in rings.items()
            if any(record.adopted for record in stored[name])
            or not has_record(live, made[name], live.facts.start)
        }
        for name in new:
            if any(_differs(record, made[name]) for record in stored[name]) and not _ask(
                name, stored[name][0], yes=yes
            ):
                return Outcome(None, code=ExitCode.REFUSED)
        records = {**{name: stored[name][0] for name in rings if name not in new}, **opened.record(new)}
    rows = [
        RecordedRing(
            name, record.origin, len(record.state.bindings or ()), record.written, record.writer, name in new
        )
        for name, record in sorted(records.items())
    ]
    return Outcome(Recorded(at.settings.vhost, tuple(rows)))


def _differs(stored: RingRecord, made: RingRecord) -> bool:
    return stored.is_settled and stored.state.buckets != made.state.buckets


def _ask(name: str, stored: RingRecord, *, yes: bool) -> bool:
    """Ask whether to replace a record that differs."""
    about = f"the record of {name}, of {stored.about}, has another order than the ring"
    if yes:
        return True
    if not has_terminal():
        check = to_type("ring check", name)
        say(Fix(f"{about}, and nothing was changed: `", check, "` compares them; replace it with --yes"))
        return False
    return click.confirm(f"{about}. Replace it?", err=True)
