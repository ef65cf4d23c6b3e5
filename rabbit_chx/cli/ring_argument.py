"""RING, the argument of a command that asks about one ring: bindings, a file, or an exchange of a live broker.

==========================================  ==========================================================================
``orders``                                  an exchange of the broker
``topology.toml``, ``topology.toml#orders``  the only exchange of a topology file that hashes, or one of them; ``-#orders`` is stdin
``ring.json``                               what ``show NAME -o json`` wrote, or a record
``q1=1,q2=2``, ``q{1..10}=1``               bindings in bind order, without a broker
``modulus:q1=1,q2=2``                       those of an ``x-modulus-hash`` exchange
``super-stream:orders``                     a super stream of the broker; ``super-stream:s-0,s-1`` is its partitions
``ring:exchange:x=1,q1=1``                  bindings of which the first is one of an exchange
``exchange:NAME``                           an exchange of the broker, whatever its name looks like
==========================================  ==========================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE, MODULUS_EXCHANGE
from rabbit_chx.checks import json_object
from rabbit_chx.cli.broker_options import BrokerAddresses
from rabbit_chx.cli.command import say
from rabbit_chx.cli.inputs import (
    STDIN,
    TopologyInput,
    VariableOptions,
    expand_ranges,
    file_name,
    parse_bindings,
    read_topology,
    read_whole,
)
from rabbit_chx.cli.printed import exchange_named
from rabbit_chx.cli.read_rings import say_unrecorded
from rabbit_chx.command_texts import FILE_RING, command_text, exchange_argument, first_command
from rabbit_chx.errors import BrokerRefusedError, InputError
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.routing import (
    Destination,
    ExchangeRef,
    HashRing,
    ModulusHashExchange,
    Release,
    SuperStream,
)
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.ground import LISTED_CONDITION
from rabbit_chx.routing.key_map import SHOW_FORMAT, KeyMap
from rabbit_chx.routing.key_map_json import key_map_from_json
from rabbit_chx.routing.message import HashedOn
from rabbit_chx.routing.rules import DUPLICATES_APPEND
from rabbit_chx.routing.super_stream import super_stream_of
from rabbit_chx.words import listed

if TYPE_CHECKING:
    from rabbit_chx.analysis.findings import Finding
    from rabbit_chx.broker.live_exchange import LiveExchange
    from rabbit_chx.topology import ExchangeDefinition

#: How clients route to a super stream: by the hash of those for Java, .NET and Go, by that of rstream, or by binding keys.
Routing: TypeAlias = Literal["hash", "rstream", "key"]
#: What bindings have, and names of exchanges seldom.
_WEIGHT = re.compile(r"=\d+(,|$)")


@dataclass(frozen=True, slots=True)
class RingArgument:
    """A RING as written.

    Attributes:
        text: the text.
        type: the type of its exchange, for bindings; else x-consistent-hash.
        bindings: the bindings; empty for a file or an exchange.
        path: the path of the file; None for another.
        exchange: the exchange of the broker or of the file; None: the only one of the file.
        content: the content of the file.
    """

    text: str
    type: str = HASH_EXCHANGE
    bindings: tuple[str, ...] = ()
    path: str | None = None
    exchange: str | None = None
    content: bytes = b""

    @property
    def is_live(self) -> bool:
        """True for an exchange of a broker."""
        return not self.bindings and self.path is None

    @property
    def is_topology(self) -> bool:
        """True for a topology file or a definitions file."""
        document = json_object(self.content)
        is_definitions = "exchanges" in document and "bindings" in document
        is_topology = not document or is_definitions or document.get("format") == "rabbit-chx/topology"
        return self.path is not None and is_topology

    def topology(self, vhost: str, variables: VariableOptions | None = None) -> TopologyInput:
        """Return the topology of the file; another RING of the command line may have some of the variables."""
        return read_topology(self.path or "", vhost, self.content, variables=variables, has_others=True)

    def read(
        self,
        at: BrokerAddresses | None,
        vhost: str,
        rules: Release | None,
        variables: VariableOptions | None = None,
    ) -> RingInput:
        """Return the ring, under the rules of a release; None: its own. `at` is the broker if it is live, `vhost` that of a definitions file."""
        if self.bindings:
            with (
                nullcontext() if ":" in self.text or _WEIGHT.search(self.text) else naming_exchange(self.text)
            ):
                return _ring_of_bindings(self.type, self.bindings, rules)
        if at is not None and self.path is None:
            read = ring_of_broker(at, self.exchange or "")
            if self.type == "super-stream" != read.type:
                raise InputError(
                    f"exchange {self.exchange!r} is of type {read.type}, not a super stream: write {exchange_argument(self.exchange or '')}"
                )
            return read.under(rules)
        if self.is_topology:
            return ring_of_topology(self.topology(vhost, variables), self.exchange, rules)
        return _ring_of_file(self.path or "", self.content, self.exchange).under(rules)


def parse_ring(text: str) -> RingArgument:
    """Return a RING as written, with the content of its file."""
    prefix, colon, rest = text.partition(":")
    if (colon and prefix == "modulus") or (prefix == "ring" and "=" in rest):
        return RingArgument(text, MODULUS_EXCHANGE if prefix == "modulus" else HASH_EXCHANGE, _split(rest))
    if colon and prefix == "super-stream":
        names = expand_ranges(_split(rest))
        if len(names) == 1 and "=" not in rest:
            return RingArgument(text, "super-stream", exchange=rest)
        pairs = (name if "=" in name else f"{name}={number}" for number, name in enumerate(names))
        return RingArgument(text, "super-stream", tuple(pairs))
    if (name := exchange_named(text)) != text:
        return RingArgument(text, exchange=name)
    if file := FILE_RING.fullmatch(text):
        with nullcontext() if file[1] == STDIN else naming_exchange(text):
            return RingArgument(text, path=file[1], exchange=file[2], content=read_whole(file[1], "ring"))
    return RingArgument(text, bindings=_split(text)) if "=" in text else RingArgument(text, exchange=text)


@contextmanager
def naming_exchange(text: str) -> Iterator[None]:
    """Add to an error of a RING how an exchange of the broker is written whose name looks like another one."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{error}; an exchange of a broker with this name is exchange:{text:.80}") from None


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in re.split(r",(?![^{}]*})", text))  # not within braces


@dataclass(frozen=True, slots=True)
class RingInput:
    """The source of the routing as given, with the arguments of its exchange.

    Attributes:
        source: the ring, or the table of its slots; or an exchange without one.
        arguments: the exchange's arguments that determine the hashed value; None if they are not known.
        unknown: why they are not known, as the beginning of a sentence; empty if they are known.
        faults: the slots of a live exchange that do not have exactly one queue, and the other exchanges that lead to none, with the reason.
        is_live: True if it is that of a broker.
        is_amqp_alone: True if only AMQP was asked, so that the arguments are not known.
        doubt: why the destination of a key is not determined, and what determines it; empty if it is.
        alternate: the exchange that gets messages without a destination.
        exchange: the name of the exchange; None if it is not known.
    """

    source: KeyMap
    arguments: Mapping[str, str] | None = None
    unknown: str = ""
    faults: Mapping[ExchangeRef, str] = field(default_factory=dict)
    is_live: bool = False
    is_amqp_alone: bool = False
    doubt: str = ""
    alternate: str | None = None
    exchange: str | None = None

    @property
    def is_determined(self) -> bool:
        """True if the destination of a key is known."""
        return not self.doubt

    def loses(self, places: Iterable[Place]) -> bool:
        """Return True if messages to one of these places are lost, because it is None and there is no alternate exchange."""
        return self.alternate is None and None in places

    def warn(self) -> None:
        """Write the doubt to stderr."""
        if self.doubt:
            say(f"not determined: {self.doubt}")

    @property
    def learn(self) -> str:
        """The command that learns the order; empty if it is known, or if no command does."""
        return first_command(self.doubt) or ""

    @property
    def type(self) -> str:
        """The type of the exchange."""
        return self.source.hashing.exchange_type

    def under(self, rules: Release | None) -> RingInput:
        """Return this input under the rules of another release."""
        return self if rules is None else replace(self, source=self.source.with_release(rules))

    def changed_to(self, source: KeyMap) -> RingInput:
        """Return this input after a bind or an unbind: with a second member the order of a ring begins to matter."""
        from rabbit_chx.planning.refusals import how_to_learn
        from rabbit_chx.records.evidence import Means

        is_known = source.has_key_destinations
        doubt = self.doubt
        if not is_known and not doubt:
            doubt = how_to_learn({self.exchange or source.name: source}, Means())
        return replace(self, source=source, doubt=doubt)

    def routed_by(self, routing: Routing | None) -> RingInput:
        """Return this input with the way in which clients route to a super stream."""
        if routing is None:
            return self
        if not isinstance(self.source, SuperStream):
            raise InputError(
                f"--routing {routing} applies to super streams, and this exchange is of type {self.type}: leave it out"
            )
        if routing == "rstream":
            return replace(self, source=self.source.with_client(routing))
        return replace(self, source=self.source.with_routing(routing))


def say_ignored(
    release: Release, bindings: Iterable[tuple[Destination, str]], before: KeyMap | None = None
) -> None:
    """Write the bindings that a broker ignores to stderr."""
    bound: set[Destination] = set(before.destinations) if before else set()
    known: set[tuple[Destination, str]] = set(before.bindings or ()) if before else set()
    for destination, key in bindings:
        if (destination, key) in known:
            say(f"the binding {destination!s}={key} is given twice: the broker ignores the second")
        elif destination in bound and not release.follows(DUPLICATES_APPEND):
            say(
                f"the binding {destination!s}={key} changes nothing: RabbitMQ {release.version} ignores a second binding "
                f"of {destination!s}; to change its weight, unbind it first"
            )
        bound.add(destination)
        known.add((destination, key))


def _ring_of_bindings(type_: str, bindings: tuple[str, ...], rules: Release | None) -> RingInput:
    pairs = tuple(parse_bindings(bindings))
    if type_ == MODULUS_EXCHANGE:
        return RingInput(ModulusHashExchange("offline", pairs, rules), {})
    if type_ == "super-stream":
        return RingInput(super_stream_of("offline", pairs), {}).under(rules)
    ring = HashRing.from_bindings(pairs, rules)
    say_ignored(ring.release, pairs)
    return RingInput(ring)


def _ring_of_file(path: str, content: bytes, exchange: str | None) -> RingInput:
    """Return the ring of a file that `show`, `HashRing.to_json` or `SlotTable.to_json` wrote, or of a record."""
    from rabbit_chx.records.ring_records import read_record

    name = file_name(path)
    document = json_object(content)
    several = document.get("exchanges")
    if isinstance(several, dict):
        if exchange not in several:
            raise InputError(
                f"{name} contains several rings: pass one of {listed([f'{path}#{each}' for each in several])}"
            )
        document = {"format": SHOW_FORMAT, "format_version": 1, **several[exchange]}
        content = json.dumps(document).encode()
    try:
        ring: KeyMap = (
            read_record(document).ring
            if document.get("format") == "rabbit-chx/record"
            else key_map_from_json(content)
        )
        arguments = document.get("arguments")
        if arguments is not None:
            HashedOn.from_arguments(arguments)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    of = document.get("exchange")
    if None not in (exchange, of) and exchange != of:
        raise InputError(
            f"{name} contains the ring of {of!r:.80}, not of {exchange!r:.80}: leave #{exchange:.80} out"
        )
    why = ", because it was read without the management API" if "arguments" in document else ""
    return RingInput(
        ring,
        arguments,
        f"{name} does not contain the arguments of the exchange{why}",
        is_live=ring.ground.is_certain,
        doubt=f"the ring of {name} is {ring.ground}: pass a file of a ring whose order is known"
        if not ring.has_key_destinations
        else "",
        exchange=of or exchange,
    )


def ring_of_topology(file: TopologyInput, name: str | None, rules: Release | None) -> RingInput:
    """Return the routing of a hash exchange of a topology file."""
    from rabbit_chx.topology.model import LiveTopology
    from rabbit_chx.topology.modulus import modulo_map_of
    from rabbit_chx.topology.rules.reach import Reach

    topology = file.topology
    exchange = exchange_in(file, name)
    modulo = modulo_map_of(exchange, topology.bindings, topology.release, queues=topology.queues)
    if modulo is not None:
        return RingInput(modulo, {}, exchange=exchange.name).under(rules)
    source = topology.key_map(exchange.name, rules)
    doubt: str = ""
    say_unpinned(file, exchange)
    if topology.is_unordered(exchange.name) and not source.is_sole:
        show = command_text("show", exchange_argument(exchange.name))
        doubt = f"the ring of {exchange.name} is {source.ground}: read the broker with {show}"
    alternate = Reach(LiveTopology.of_file(topology)).alternate_of(exchange)
    return RingInput(
        source, exchange.hash_arguments, doubt=doubt, alternate=alternate, exchange=exchange.name
    )


def say_unpinned(file: TopologyInput, exchange: ExchangeDefinition) -> None:
    """Write a warning to stderr if a topology file does not list the slots of an exchange."""
    if any(member.slots is None for member in exchange.members or ()):
        say(
            f"{file.name} shares the slots of {exchange.name} by weight, and the slots of each queue are assumed as on a new broker: "
            f"list them with {command_text('arrange', file.name, '--write')}"
        )


def exchange_in(file: TopologyInput, name: str | None) -> ExchangeDefinition:
    """Return the hash exchange of that name in a topology file; without a name, the only one."""
    from rabbit_chx.topology.modulus import hashes

    hashing = {exchange.name: exchange for exchange in file.topology.exchanges if hashes(exchange)}
    if not hashing:
        raise InputError(
            f"{file.name} does not contain a hash exchange: pass a file with one of type {HASH_EXCHANGE} or {MODULUS_EXCHANGE}"
        )
    names = listed(list(hashing))
    if name is None and len(hashing) > 1:
        raise InputError(
            f"{file.name} contains several hash exchanges: name one, as in {file.name}#{next(iter(hashing))}: {names}"
        )
    if name is not None and name not in hashing:
        raise InputError(f"{file.name} does not contain a hash exchange {name!r}: pass one of {names}")
    return hashing[name or next(iter(hashing))]


@sign_of_life("reading the ring")
def ring_of_broker(broker: BrokerAddresses, exchange: str) -> RingInput:
    """Return the ring of a live exchange."""
    if broker.management_url is None and broker.ring_source is None:
        raise InputError(
            f"AMQP alone shows neither the ring of exchange {exchange!r} nor its bindings: pass --ring-via, such as "
            "'docker exec NAME', and --management-url http://user:password@host:15672"
        )
    if broker.management_url is None:
        return _ring_over_amqp(broker, exchange)
    return _ring_of_live(broker.exchange(exchange, "AMQP alone does not show the records of a ring"))


def _ring_over_amqp(broker: BrokerAddresses, exchange: str) -> RingInput:
    """Return the ring that the ring source reads, without the arguments of its exchange."""
    from rabbit_chx.analysis import ring_findings

    with broker.open() as live:
        ring = live.ring(exchange)
    if any(isinstance(place, ExchangeRef) for place in ring.destinations):
        say(
            f"AMQP alone does not show the queues of the exchanges in the ring of {exchange!r}: pass --management-url to "
            "follow its slots"
        )
    _say_findings(exchange, ring_findings(ring))
    unknown = f"AMQP alone does not show the arguments of exchange {exchange!r}"
    return RingInput(ring, None, unknown, is_live=True, is_amqp_alone=True, exchange=exchange)


def _ring_of_live(live: LiveExchange) -> RingInput:
    """Return the map of a live exchange, with what is wrong with it on stderr."""
    from rabbit_chx.analysis import ring_findings
    from rabbit_chx.planning.refusals import how_to_learn
    from rabbit_chx.records.evidence import Means

    if live.why_not_routed:
        raise BrokerRefusedError(live.why_not_routed, exchange=live.name, reply_code=406)
    source = live.key_map()
    means = Means()
    arguments: Mapping[str, str] = {}
    faults: Mapping[ExchangeRef, str] = {}
    if live.type == HASH_EXCHANGE:
        arguments = live.hash_arguments
        faults = live.slots.faults | live.dead_ends
        say_unrecorded(live)
        for fault in faults.values():
            say(fault)
        _say_findings(live.name, ring_findings(live.ring, live.bindings, live.alternate))
    ends = {place.name for place in source.destinations if isinstance(place, ExchangeRef)}
    if ends := ends - {ref.name for ref in faults}:
        say(f"keys are not followed through {listed(sorted(ends))}: which queues they reach is not shown")
    doubt = ""
    if not source.is_determined and not _has_one_destination(source):
        means = live.means if live.type == HASH_EXCHANGE else means
        doubt = how_to_learn({live.name: source}, means)
    return RingInput(
        source,
        arguments,
        faults=faults,
        is_live=True,
        doubt=doubt,
        alternate=live.alternate,
        exchange=live.name,
    )


def _has_one_destination(source: KeyMap) -> bool:
    """Return True if all bindings of a ring are to one queue, so that each key that reaches a queue reaches this one."""
    if not source.is_sole:
        return False
    say(
        f"{source.destinations[0]} is the only member of the ring, and its order does not matter: it gets each key, {LISTED_CONDITION}"
    )
    return True


def _say_findings(exchange: str, findings: Iterable[Finding]) -> None:
    for finding in findings:
        say(f"exchange {exchange!r}: {finding.message}")
