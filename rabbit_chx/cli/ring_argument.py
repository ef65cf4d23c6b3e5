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
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, cast, get_args

from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE, MODULUS_EXCHANGE
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.reports import hashes_text
from rabbit_chx.checks import json_object
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import TEXT, ExitCode, exchange_named, lacking, option, options, say, typed
from rabbit_chx.cli.inputs import (
    STDIN,
    TopologyInput,
    VariableOptions,
    expand_ranges,
    file_name,
    parse_bindings,
    parse_header_type,
    read_topology,
    read_whole,
)
from rabbit_chx.errors import InputError
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, ModulusHashExchange, Release, SuperStream
from rabbit_chx.routing.bindings import LISTED_CONDITION, RECORD_CONDITION, UNORDERED, Place
from rabbit_chx.routing.key_map import SHOW_FORMAT, KeyMap
from rabbit_chx.routing.key_map_json import key_map_from_json
from rabbit_chx.routing.message import HashedOn
from rabbit_chx.routing.release import NEWEST_PATCHES, Store
from rabbit_chx.routing.rules import DUPLICATES_APPEND
from rabbit_chx.routing.super_stream import super_stream_of
from rabbit_chx.text import FILE_RING, command_text, exchange_argument, first_command, listed

if TYPE_CHECKING:
    from rabbit_chx.analysis.findings import Finding
    from rabbit_chx.topology import ExchangeDefinition, LiveTopology

# -- The rings that a command has read and that no record on the broker fits. A command that reads stores none: it names the one that does


def say_unrecorded_rings(live: LiveTopology) -> None:
    """Write to stderr that rings of a live topology were read, and that no record on the broker fits them."""
    from rabbit_chx.records.live_rings import evidence_of, how_to_record, read_without_record

    if names := read_without_record(live):
        say(how_to_record(names, evidence_of(live).ways_to_learn))


def say_conditions(rings: Mapping[str, KeyMap]) -> None:
    """Write to stderr on which condition recorded rings are known, where the output itself has no place for it."""
    recorded = [exchange for exchange, ring in rings.items() if ring.provenance == "recorded"]
    if recorded:
        say(f"the order of {listed(recorded)} is {RECORD_CONDITION}")


def say_doubts(rings: Mapping[str, KeyMap]) -> None:
    """Write to stderr why the records of rings are not certain."""
    for exchange, ring in rings.items():
        if ring.order.doubt and ring.order != UNORDERED:
            say(f"the ring of {exchange} is {ring.order}")


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
        from rabbit_chx.records.live_rings import WaysToLearn

        is_known = source.has_key_destinations
        doubt = self.doubt
        if not is_known and not doubt:
            doubt = how_to_learn({self.exchange or source.name: source}, WaysToLearn())
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
        is_live=ring.order.is_certain,
        doubt=f"the ring of {name} is {ring.order}: pass a file of a ring whose order is known"
        if not ring.has_key_destinations
        else "",
        exchange=of or exchange,
    )


def ring_of_topology(file: TopologyInput, name: str | None, rules: Release | None) -> RingInput:
    """Return the routing of a hash exchange of a topology file."""
    from rabbit_chx.topology.model import LiveTopology
    from rabbit_chx.topology.modulus import modulo_map_of
    from rabbit_chx.topology.reach import Reach

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
        doubt = f"the ring of {exchange.name} is {source.order}: read the broker with {show}"
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
    with broker.open_for(exchange, "AMQP alone does not show the records of a ring") as opened:
        live = opened.inspect(exchange)
    return _ring_of_live(live, exchange)


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


def _ring_of_live(live: LiveTopology, name: str) -> RingInput:
    """Return the map of a live exchange, with what is wrong with it on stderr."""
    from rabbit_chx.broker.live_routing import (
        alternate_of,
        find_live_exchange,
        key_map_of,
        refuse_unrouted,
    )
    from rabbit_chx.planning.refusals import how_to_learn
    from rabbit_chx.records.live_rings import WaysToLearn, evidence_of

    exchange = find_live_exchange(live, name)
    refuse_unrouted(live, exchange)
    source = key_map_of(live, name)
    ways_to_learn = WaysToLearn()
    arguments: Mapping[str, str] = {}
    faults: Mapping[ExchangeRef, str] = {}
    if exchange.type == HASH_EXCHANGE:
        ways_to_learn = evidence_of(live).ways_to_learn
        arguments = exchange.hash_arguments
        faults = _say_faults(live, exchange)
    ends = {place.name for place in source.destinations if isinstance(place, ExchangeRef)}
    unfollowed = ends - {ref.name for ref in faults}
    if unfollowed:
        say(
            f"keys are not followed through {listed(sorted(unfollowed))}: which queues they reach is not shown"
        )
    doubt = ""
    if not source.is_determined and not _has_one_destination(source):
        doubt = how_to_learn({name: source}, ways_to_learn)
    return RingInput(
        source,
        arguments,
        faults=faults,
        is_live=True,
        doubt=doubt,
        alternate=alternate_of(live, exchange),
        exchange=name,
    )


def _say_faults(live: LiveTopology, exchange: ExchangeDefinition) -> Mapping[ExchangeRef, str]:
    """Write to stderr what is wrong with the ring of a live exchange, and return the faults of its slots and other exchanges."""
    from rabbit_chx.analysis import ring_findings
    from rabbit_chx.broker.live_routing import alternate_of, dead_ends_of, ring_of, slots_of

    name = exchange.name
    faults = slots_of(live, name).faults | dead_ends_of(live, name)
    say_unrecorded_rings(live)
    for fault in faults.values():
        say(fault)
    bound = [member.binding for member in exchange.ring or ()]
    _say_findings(name, ring_findings(ring_of(live, name), bound, alternate_of(live, exchange)))
    return faults


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


# -- The options of a RING and of its hashed value, and the exit code of what is predicted with it


RELEASE = "VERSION[/STORE]"
_KEY_TAKEN = "so each KEY is taken for a routing key: otherwise pass --hash-header or --hash-property, or read it with --management-url"
_KEY_UNKNOWN = "so which value is hashed is not known: pass --hash-header or --hash-property, or read it with --management-url"


@dataclass(frozen=True, slots=True)
class RingOptions:
    """The options of a RING."""

    section: ClassVar = "Ring"
    release: str | None = option(
        metavar=RELEASE,
        help="The RabbitMQ release whose rules apply, such as 4.3, 4.3.6 or 4.0.5/mnesia.  [default: that of the ring or the "
        "broker, or the newest with its default store]",
    )
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",))
    variables: VariableOptions = options(VariableOptions)

    def check(self, *rings: RingArgument) -> None:
        """Raise an error for an option of a broker if no ring is that of a broker; a definitions file has vhosts."""
        if self.variables.is_typed and not any(ring.is_topology for ring in rings):
            raise lacking("--set", "a topology file as RING")
        if any(ring.is_live for ring in rings):
            return
        has_vhosts = any(ring.is_topology and ring.content.lstrip().startswith(b"{") for ring in rings)
        for name in typed(BrokerOptions):
            if name != "--vhost" or not has_vhosts:
                raise InputError(
                    f"{name} is an option of a broker, and {rings[0].text:.80} is not an exchange of a broker: leave {name} out, or "
                    f"write the name of an exchange; one with this name is exchange:{rings[0].text:.80}"
                )

    def read_only(self, ring: RingArgument) -> RingInput:
        """Return the only ring of a command, which routes single keys."""
        self.check(ring)
        return self.read(ring, parse_release(self.release))

    def read(self, ring: RingArgument, rules: Release | None, *, warns: bool = True) -> RingInput:
        """Return a ring under the rules of a release, or its own, and write warnings about it to stderr.

        Args:
            ring: the ring.
            rules: the release.
            warns: True: write why the destination of a key is not determined; False: the caller does.
        """
        if ring.is_live and not self.broker.url:
            raise InputError(
                f"{ring.text!r:.80} is taken for an exchange of a broker: pass --url amqp://user:password@host/vhost, or set AMQP_URL; without a broker "
                f"write a ring as {f'ring:{ring.text:.80}' if '=' in ring.text else 'q1=1,q2=2'} or as a file, such as topology.toml or ring.json"
            )
        at = self.broker.live() if ring.is_live else None
        read = ring.read(at, self.broker.vhost or "/", rules, self.variables)
        if warns:
            read.warn()
        return read

    def read_other(self, ring: RingArgument, first: RingInput, rules: Release | None) -> RingInput:
        """Return the ring to compare with the first, without a warning that it is not determined; bindings have the release of the first, unless another is given."""
        other = self.read(ring, rules or (first.source.release if ring.bindings else None), warns=False)
        types = (first.type, other.type)
        if HASH_EXCHANGE in types and types[0] != types[1]:
            raise InputError(
                f"the types {types[0]} and {types[1]} hash keys differently: compare two exchanges of one type"
            )
        return other


def refuse_unpinned(file: RingArgument, unpinned: RingInput, broker: RingInput) -> None:
    """Raise an error for a topology file that does not list the slots of each queue, compared with a broker."""
    if unpinned.source.owners_assumed and broker.is_live:
        raise InputError(
            f"{file.path} does not list the slots of each queue, so a comparison with a broker would be wrong: write the slots with "
            f"{command_text('arrange', str(file.path), '--write')}; or show the changes with {command_text('plan', str(file.path))}"
        )


@dataclass(frozen=True, slots=True)
class HashingOptions:
    """The options of the hashed value."""

    section: ClassVar = "Message"
    hash_header: str | None = option(
        type=TEXT,
        metavar="NAME[:TYPE]",
        help="The exchange's argument hash-header: a key is the value of this header. TYPE is its AMQP type: long, signedint, "
        "bool, double, timestamp ... A name with a colon needs a TYPE.  [default TYPE: longstr]",
    )
    hash_property: str | None = option(
        is_rare=True,
        type=TEXT,
        metavar="NAME",
        help="The exchange's argument hash-property: a key is the message_id, correlation_id or timestamp.",
    )

    def of(self, *rings: RingInput, keys: bool = True) -> Hashing:
        """Return the hashed value, by the options or by the exchange; the two must not contradict each other."""
        known = [ring.arguments for ring in rings if ring.arguments is not None]
        if len(known) > 1 and dict(known[0]) != dict(known[1]):
            raise InputError(
                f"the exchange of one ring hashes {hashes_text(known[0])}, that of the other "
                f"{hashes_text(known[1])}: their keys cannot be compared"
            )
        wanted_header, type_ = parse_header_type(self.hash_header)
        named = Hashing(wanted_header, self.hash_property).arguments
        unknown = next((ring.unknown for ring in rings if ring.unknown and not ring.is_amqp_alone), "")
        if keys and not known and not named and unknown:
            say(f"{unknown}, {_KEY_TAKEN}")
        arguments = known[0] if known else named
        if named and named != dict(arguments):
            raise InputError(
                f"the exchange of this ring hashes {hashes_text(arguments)}, not {hashes_text(named)}: leave the option out"
            )
        if arguments and not named:
            say(
                f"the exchange of this ring hashes {hashes_text(arguments)}, so the keys are its values, not routing keys"
            )
        return Hashing(arguments.get("hash-header"), arguments.get("hash-property"), field_type=type_)

    def decide(self, given: RingInput) -> RingInput:
        """Return the ring of keys: that of a live exchange is not determined if AMQP alone does not show what it hashes, and no option says it."""
        is_said = self.hash_header is not None or self.hash_property is not None
        if is_said or given.doubt or not given.is_amqp_alone:
            return given
        doubtful = replace(given, doubt=f"{given.unknown}, {_KEY_UNKNOWN}")
        doubtful.warn()
        return doubtful


def code_of(*given: RingInput, is_lost: bool = False) -> ExitCode:
    """Return the exit code of a prediction: messages that are lost, before what is not determined."""
    if is_lost:
        return ExitCode.DIFFERENCE
    if not all(each.is_determined for each in given):
        return ExitCode.PARTLY
    return ExitCode.DONE


def parse_release(text: str | None) -> Release | None:
    """Parse ``VERSION`` or ``VERSION/STORE``. A series such as 4.3 is its newest known patch, which is written to stderr."""
    if text is None:
        return None
    version, slash, store = text.partition("/")
    if slash and store not in get_args(Store):
        raise InputError(
            f"the store of the release {text!r:.60} is neither mnesia nor khepri: write 4.0.5/mnesia"
        )
    release = Release(version, cast("Store", store) if slash else None)
    if release.version != version:
        say(f"release {version} means {release.version}, the newest known patch of that series")
    known = next(
        (patch for patch in NEWEST_PATCHES if Release(patch).numbers[:2] == release.numbers[:2]), None
    )
    if known and release.numbers > Release(known).numbers:
        say(
            f"{version} is newer than {known}, the newest known patch, whose rules are used: update rabbit-chx"
        )
    return release
