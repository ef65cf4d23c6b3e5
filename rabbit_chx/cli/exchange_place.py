"""Where an exchange is looked up for its ring: on a live broker, or in a definitions file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rabbit_chx.analysis import ModuloMap, ring_findings
from rabbit_chx.broker.live_exchange import read_exchange, read_ring, read_slots
from rabbit_chx.cli.input_files import RingInput, file_name, read_whole
from rabbit_chx.cli.notation import ASSUMED
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError, MismatchError, TopologyError
from rabbit_chx.routing import HASH_ARGUMENTS, ExchangeRef, HashedOn, HashRing, KeyMap, Release
from rabbit_chx.topology import ExchangeDefinition, Topology
from rabbit_chx.topology.objects import HASH_EXCHANGE, live_slots
from rabbit_chx.topology.reading_shards import modulo_map_of, modulo_map_read

if TYPE_CHECKING:
    from rabbit_chx.cli.live_options import BrokerOptions, LiveBroker

__all__ = ["ExchangePlace", "under_rules"]


@dataclass(frozen=True, slots=True)
class ExchangePlace:
    """Where exchanges are looked up: on a live broker, or in a definitions file.

    Attributes:
        broker: the options of the broker.
        definitions: the definitions file; None where none was given.
    """

    broker: BrokerOptions
    definitions: str | None

    def read(self, exchange: str, rules: Release | None, *, modulo: bool) -> RingInput:
        """Return the ring of an exchange with its arguments, and say on stderr what is doubtful about it.

        Args:
            exchange: the exchange's name.
            rules: the release whose rules apply; None for that of the broker or of the file.
            modulo: whether an ``x-modulus-hash`` exchange or a super stream will do.

        Raises:
            InputError: the options name no broker, or the exchange is not in the file, or not of this type.
            RabbitChxError: the broker cannot be asked.
        """
        if self.definitions is not None:
            given = _of_definitions(
                self.definitions, self.broker.vhost or "/", exchange, rules, modulo=modulo
            )
        else:
            given = _of_broker(self.broker.live_broker(), exchange, modulo=modulo)
        return given if rules is None else under_rules(given, rules)

    def refuse_idle(self, *, asked: bool) -> None:
        """Refuse options on the command line that would change nothing.

        Args:
            asked: whether any exchange is looked up.

        Raises:
            InputError: there is such an option.
        """
        if self.definitions is not None and not asked:
            raise InputError(
                f"--definitions {self.definitions} holds many exchanges: give --exchange NAME too"
            )
        idle = [name for name in self.broker.typed if self.definitions is None or name != "--vhost"]
        if idle and self.definitions is not None:
            raise InputError(
                f"{idle[0]} is about a live broker, and --definitions {self.definitions} is a file: give one of them"
            )
        if idle and not asked:
            raise InputError(
                f"{idle[0]} is about a live broker, and no exchange of it is asked for: give --exchange NAME as the ring, "
                f"or leave {idle[0]} out"
            )


def under_rules(given: RingInput, rules: Release) -> RingInput:
    """Return what was given under the rules of another release.

    Args:
        given: a ring, or an exchange without one.
        rules: the release.

    Raises:
        InputError: it is a super stream.
    """
    if given.modulo is None:
        return replace(given, ring=given.ring.with_release(rules))
    if given.modulo.kind == "super-stream":
        raise InputError(
            f"exchange {given.modulo.name!r} is a super stream, whose partitions the client chooses by no rule of a release: leave "
            "the release out"
        )
    return replace(given, modulo=replace(given.modulo, release=rules))


def _of_broker(broker: LiveBroker, exchange: str, *, modulo: bool) -> RingInput:
    """Return the ring of a live exchange: read, or else assumed from the bindings."""
    if broker.management_url is None and broker.ring_source is None:
        raise InputError(
            f"AMQP alone shows neither the ring of exchange {exchange!r} nor its bindings: give --ring-via, such as "
            "'docker exec NAME', and --management-url http://user:password@host:15672"
        )
    if broker.management_url is None:
        with broker.broker() as live_broker:
            ring = live_broker.ring(exchange)
        arguments, findings = None, ring_findings(ring)
        found: KeyMap = ring
        if any(isinstance(one, ExchangeRef) for one in ring.destinations):
            say(
                f"AMQP alone does not tell which queues are behind the exchanges in the ring of {exchange!r}: give "
                "--management-url to follow its slots"
            )
    else:
        try:
            live = read_exchange(broker.management(""), broker.settings.vhost, exchange)
        except MismatchError:
            if not modulo:
                raise
            return _without_ring(broker.management("").run(modulo_map_read(broker.settings.vhost, exchange)))
        ring = read_ring(live, broker.ring_source)
        arguments, findings = live.arguments, ring_findings(ring, live.bindings, live.alternate)
        found = read_slots(broker.management(""), live, ring).key_map()
    if ring.provenance == "assumed":
        say(f"the ring of exchange {exchange!r} is {ASSUMED}")
    for finding in findings:
        say(f"exchange {exchange!r}: {finding.says}")
    return RingInput(
        found,
        arguments,
        f"AMQP alone does not tell what exchange {exchange!r} hashes",
    )


def _without_ring(found: ModuloMap) -> RingInput:
    return RingInput(HashRing.from_buckets((), found.release), {}, modulo=found)


def _of_definitions(
    path: str, vhost: str, exchange: str, rules: Release | None, *, modulo: bool
) -> RingInput:
    """Return the ring of an exchange of a definitions file, assumed from its bindings."""
    topology = _definitions(path, vhost)
    path = file_name(path)
    found = topology.exchange(exchange)
    if found is not None and modulo and (given := _modulo_of(topology, found)):
        return _without_ring(given)
    if found is None or found.type != HASH_EXCHANGE:
        what = (
            f"has no exchange {exchange!r}" if found is None else f"has {exchange!r} with type {found.type}"
        )
        there = " or ".join(
            f"--exchange {one.name}" for one in topology.exchanges if one.type == HASH_EXCHANGE
        )
        remedy = f"give {there}" if there else f"there is none of type {HASH_EXCHANGE} in it"
        raise InputError(f"{path} {what} in vhost {vhost!r}: {remedy}")
    members = [member.binding for member in found.ring or ()]
    release = rules or topology.release
    try:
        ring = HashRing.from_bindings(members, release, "assumed")
        arguments = {name: found.arguments[name] for name in HASH_ARGUMENTS if name in found.arguments}
        HashedOn.from_arguments(arguments)
    except InputError as error:
        raise InputError(f"{path}, exchange {exchange!r}: {error}") from None
    if release is None:
        say(
            f"{path} does not name its release: the rules are those of {ring.release}; --release gives others"
        )
    say(
        f"the ring of exchange {exchange!r} is assumed from the bindings, and {path} does not hold their order: "
        "read the ring of the broker to know it"
    )
    for line in topology.left_out:
        if f": a member of {exchange} that" in line:
            say(f"{path}: {line}")
    alternate = found.arguments.get("alternate-exchange")
    for finding in ring_findings(ring, members, alternate if isinstance(alternate, str) else None):
        say(f"exchange {exchange!r}: {finding.says}")
    slots = live_slots(exchange, ring, topology.exchanges, topology.bindings)
    try:
        return RingInput(slots.key_map(), arguments)
    except MismatchError as error:  # no broker was asked
        raise InputError(f"{path}: {error}", exchange=exchange) from None


def _modulo_of(topology: Topology, exchange: ExchangeDefinition) -> ModuloMap | None:
    bindings = [one for one in topology.bindings if one.source == exchange.name]
    listed = [(one.destination, one.routing_key, one.arguments) for one in bindings]
    return modulo_map_of(exchange.name, exchange.type, exchange.arguments, listed, topology.release)


def _definitions(path: str, vhost: str) -> Topology:
    content = read_whole(path, "definitions")
    try:
        return Topology.from_definitions(content, vhost)
    except TopologyError as error:
        raise TopologyError(error.problems, file=file_name(path)) from None
