"""Store the rings that a command has read, so that the next one knows their order without the ring source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from rabbit_chx.cli.broker_options import BrokerAddresses
from rabbit_chx.cli.command import say
from rabbit_chx.cli.printed import to_type
from rabbit_chx.errors import AccessRefusedError, RabbitChxError
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering import sign_of_life
from rabbit_chx.routing import HashRing
from rabbit_chx.words import listed

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker
    from rabbit_chx.topology import LiveTopology
    from rabbit_chx.topology.live.reading import LiveExchange


def read_without_record(live: LiveTopology) -> list[str]:
    """Return the exchanges whose rings were read, and that no record on the broker fits."""
    from rabbit_chx.topology.live_rings import find_live_ring
    from rabbit_chx.topology.ring_records import is_recorded, records_of

    found = []
    for name, ring in live.rings.items():
        if len(ring.destinations) < 2:  # it needs no order
            continue
        bound = find_live_ring(live, live.exchange(name), name).state.bindings or ()
        records = records_of(name, live.facts.records)
        if ring.provenance == "read" and not is_recorded(ring, records, bound, live.facts.start):
            found.append(name)
    return found


def how_to_record(names: Sequence[str], **options: str) -> Fix:
    """Return a sentence that names rings without a record that fits them, and the command that stores one."""
    return Fix(
        f"no record on the broker fits the order of {listed(list(names))}: store it with ",
        to_type("record", *names, **options),
    )


def store_read_rings(
    at: BrokerAddresses, live: LiveTopology, broker: Broker, *, exchanges: Collection[str] = ()
) -> None:
    """Store the order of the rings of a live topology that a ring source has read and that have no record: those of `exchanges`, or all."""
    from rabbit_chx.topology.ring_records import records_of

    rings = {name: ring for name, ring in live.rings.items() if not records_of(name, live.facts.records)}
    if exchanges:
        rings = {name: ring for name, ring in rings.items() if name in exchanges}
    _store(at, rings, broker)


def say_unrecorded(live: LiveExchange) -> None:
    """Write to stderr that the order of a live exchange was read, and that the broker has no record of it."""
    if live.ring.provenance == "read" and live.record is None:
        say(how_to_record([live.name]))


def store_read_ring(at: BrokerAddresses, live: LiveExchange) -> None:
    """Store the order of the ring of a live exchange, if a ring source has read it and it has no record."""
    if live.ring.provenance == "read" and live.record is None:
        _store(at, {live.name: live.ring})


def _store(at: BrokerAddresses, rings: Mapping[str, HashRing], broker: Broker | None = None) -> None:
    """Store the order of the rings that were read, and say so, or why not: what the command answers does not depend on it."""
    read = {name: ring for name, ring in rings.items() if ring.provenance == "read"}
    if not read or not at.stores_records or at.settings.protocol != "amqp":  # records are declared over AMQP
        return
    try:
        with sign_of_life("storing the order of the rings"):
            if broker is None:
                with at.open() as opened:
                    stored = opened.record(read, keep=True)
            else:
                stored = broker.record(read, keep=True)
    except AccessRefusedError:
        say(
            "the order of the ring is not stored on the broker (--no-record accepts that): the user needs configure on rabbit-chx.*, exchanges "
            "and queues"
        )
        return
    except RabbitChxError as error:
        say(Fix("the order of the ring is not stored on the broker (--no-record accepts that): ", str(error)))
        return
    if stored:
        say(
            f"stored on the broker: the order of {listed(list(stored))}, in exchange{'s' * (len(stored) > 1)} rabbit-chx.ring.NAME"
        )
