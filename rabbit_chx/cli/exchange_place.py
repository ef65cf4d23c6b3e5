"""Where an exchange is looked up for its ring: on a live broker, or in a definitions file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rabbit_chx.analysis import ring_findings
from rabbit_chx.broker.live_exchange import read_exchange, read_ring
from rabbit_chx.cli.input_files import RingInput, file_name, read_whole
from rabbit_chx.cli.notation import ASSUMED
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError, MismatchError, TopologyError
from rabbit_chx.routing import HashedOn, HashRing, ModulusHashExchange
from rabbit_chx.topology import Topology
from rabbit_chx.topology.objects import HASH_EXCHANGE

if TYPE_CHECKING:
    from rabbit_chx.cli.live_options import BrokerOptions, LiveBroker
    from rabbit_chx.routing import Release

__all__ = ["ExchangePlace"]

_HASH_ARGUMENTS = ("hash-header", "hash-property")


@dataclass(frozen=True, slots=True)
class ExchangePlace:
    """Where exchanges are looked up: on a live broker, or in a definitions file.

    Attributes:
        broker: the options of the broker.
        definitions: the definitions file; None where none was given.
    """

    broker: BrokerOptions
    definitions: str | None

    def read(self, exchange: str, rules: Release | None, *, modulus: bool) -> RingInput:
        """Return the ring of an exchange with its arguments, and say on stderr what is doubtful about it.

        Args:
            exchange: the exchange's name.
            rules: the release whose rules apply; None for that of the broker or of the file.
            modulus: whether an ``x-modulus-hash`` exchange will do.

        Raises:
            InputError: the options name no broker, or the exchange is not in the file, or not of this type.
            RabbitChxError: the broker cannot be asked.
        """
        if self.definitions is not None:
            return _of_definitions(self.definitions, self.broker.vhost or "/", exchange, rules)
        given = _of_broker(self.broker.live_broker(), exchange, modulus=modulus)
        if rules is None:
            return given
        if given.modulus is not None:
            raise InputError(
                f"exchange {exchange!r} is of type x-modulus-hash, and is asked by the rules of its broker alone: leave "
                "--release out"
            )
        return replace(given, ring=given.ring.with_release(rules))

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


def _of_broker(broker: LiveBroker, exchange: str, *, modulus: bool) -> RingInput:
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
    else:
        try:
            live = read_exchange(broker.management(""), broker.settings.vhost, exchange)
        except MismatchError:
            if modulus and (mirror := _modulus(broker, exchange)):
                return RingInput(HashRing.from_buckets((), mirror.release), {}, modulus=mirror)
            raise
        ring = read_ring(live, broker.ring_source)
        arguments, findings = live.arguments, ring_findings(ring, live.bindings, live.alternate)
    if ring.provenance == "assumed":
        say(f"the ring of exchange {exchange!r} is {ASSUMED}")
    for finding in findings:
        say(f"exchange {exchange!r}: {finding.says}")
    return RingInput(
        ring,
        arguments,
        f"AMQP alone does not tell what exchange {exchange!r} hashes",
    )


def _modulus(broker: LiveBroker, exchange: str) -> ModulusHashExchange | None:
    with broker.broker() as live_broker:
        mirror = live_broker.exchange(exchange)
    return mirror if isinstance(mirror, ModulusHashExchange) else None


def _of_definitions(path: str, vhost: str, exchange: str, rules: Release | None) -> RingInput:
    """Return the ring of an exchange of a definitions file, assumed from its bindings."""
    topology = _definitions(path, vhost)
    path = file_name(path)
    found = topology.exchange(exchange)
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
        arguments = {name: found.arguments[name] for name in _HASH_ARGUMENTS if name in found.arguments}
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
    return RingInput(ring, arguments)


def _definitions(path: str, vhost: str) -> Topology:
    content = read_whole(path, "definitions")
    try:
        return Topology.from_definitions(content, vhost)
    except TopologyError as error:
        raise TopologyError(error.problems, file=file_name(path)) from None
