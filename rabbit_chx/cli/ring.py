"""``rabbit-chx ring show`` and ``ring list``: the ring of a live exchange, and the exchanges that have a ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rabbit_chx.analysis import ring_findings
from rabbit_chx.analysis.wording import place_text
from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import Outcome, argument, command, option, options, say
from rabbit_chx.cli.read_rings import store_read_ring, store_read_rings
from rabbit_chx.cli.report import bucket_ranges, exchange_facts, numbers, say_doubts, texts
from rabbit_chx.errors import InputError
from rabbit_chx.rendering import Data, Document, Facts, Line, Part, Table, sign_of_life
from rabbit_chx.result_fields import Shown, to_json
from rabbit_chx.routing import HashRing, SlotTable
from rabbit_chx.topology import LiveTopology, check
from rabbit_chx.topology.live.recording import record_of
from rabbit_chx.topology.live_rings import find_live_ring
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, MODULUS_EXCHANGE
from rabbit_chx.topology.ring_records import RingRecord, record_arguments
from rabbit_chx.topology.slots.slot_view import view_slots
from rabbit_chx.words import percent, plural


def ring_report(
    exchange: str,
    vhost: str,
    ring: HashRing | SlotTable,
    arguments: Mapping[str, str] | None,
    *,
    stored: RingRecord | None = None,
    record: Mapping[str, Any] | None = None,
) -> Document:
    """Return the ring of an exchange, or the table of its slots: the buckets of each destination, and the share of each queue.

    Args:
        exchange: the name of the exchange.
        vhost: its vhost.
        ring: the ring.
        arguments: those that determine the hashed value; None if they are not known.
        stored: the record on the broker.
        record: the record that this ring makes; None if it is assumed.
    """
    facts = exchange_facts(exchange, vhost, arguments, ring)
    if stored is not None:
        facts.append(("record", f"of {stored.about}"))
    about = {"exchange": exchange, "vhost": vhost, "arguments": arguments, "record": record}
    tables = _tables_of(ring) if ring.beneath.buckets else ()
    return Document("ring", [Data({**to_json(ring), **about}), Facts(facts), *tables])


def _tables_of(ring: HashRing | SlotTable) -> Iterator[Table]:
    slots = ring if isinstance(ring, SlotTable) else None
    buckets, shares = ring.beneath.buckets, ring.beneath.shares()
    yield Table(
        [*texts("destination", *(["queue"] if slots else []), "buckets"), *numbers("count", "share")],
        [
            (
                place_text(place),
                *([place_text(slots.queue_of(place))] if slots else []),
                text,
                buckets.count(place),
                percent(shares.get(place, 0)),
            )
            for place, text in bucket_ranges(enumerate(buckets)).items()
        ],
    )
    if slots:
        held = Counter(map(slots.queue_of, slots.slots))
        yield Table(
            [*texts("queue"), *numbers("slots", "share")],
            [(place_text(queue), held[queue], percent(share)) for queue, share in slots.shares().items()],
        )


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
    report = ring_report(exchange, vhost, shown, arguments, stored=stored, record=record)
    return Outcome(report, plot=("shares", shown), plotted=plotted)


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


def ring_list(
    vhosts: Sequence[str],
    rings: Sequence[Sequence[object]],
    moduli: Sequence[tuple[str, str, int, int]] = (),
    *,
    all_vhosts: bool = False,
) -> Document:
    """Return the x-consistent-hash exchanges, and a line for each x-modulus-hash exchange, which has no ring and is not checked.

    Args:
        vhosts: the vhosts.
        rings: the vhost and the name of each exchange with a ring; the queues that share its keys, its buckets and its slots; the origin of
            its ring; and the kinds of a check's findings, or None if the ring was not read, so that it cannot be checked.
        moduli: the vhost and the name of each x-modulus-hash exchange, its members, and its bindings, each with the same share of the keys.
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
    return Document("rings", parts)


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
    """List all x-consistent-hash exchanges with the kinds of findings of `check`.

    Without --ring-via the rings are those of the records on the broker, or assumed from the bindings. Assumed
    rings are not checked. --ring-via stores the order of rings without a record on the broker.
    Without such an exchange the exit code is 2, and stderr says whether the plugin, the vhost or a permission is
    missing.
    """
    live = broker.live()
    vhosts = live.vhosts() if all_vhosts else [live.settings.vhost]
    rings: list[Sequence[object]] = []
    moduli: list[tuple[str, str, int, int]] = []
    for vhost in vhosts:
        with live.in_vhost(vhost).open() as opened, sign_of_life("reading the broker"):
            topology = opened.topology()
            rings += _list_rings_of(vhost, topology)
            say_doubts(topology.rings)
            store_read_rings(live, topology, opened)
            moduli += _list_moduli(vhost, topology)
    if not rings and not moduli:
        raise InputError(f"nothing to list: {live.why_nothing_hashes(vhosts)}")
    return Outcome(ring_list(vhosts, rings, moduli, all_vhosts=all_vhosts))


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
