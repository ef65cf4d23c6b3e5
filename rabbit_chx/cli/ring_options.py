"""The options of a ring: bindings, a file of a ring or of a topology, or an exchange of a live broker; and of its hashed value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias, cast, get_args

from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE, MODULUS_EXCHANGE
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.checks import json_object
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import TEXT, ExitCode, option, options, say, typed
from rabbit_chx.cli.inputs import (
    TopologyInput,
    file_name,
    parse_bindings,
    parse_header_type,
    read_topology,
    read_whole,
)
from rabbit_chx.cli.printed import to_type
from rabbit_chx.cli.read_rings import store_read_ring
from rabbit_chx.cli.report import NEED_RING, hashes_text
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Fix
from rabbit_chx.options import one_of
from rabbit_chx.rendering import sign_of_life
from rabbit_chx.routing import (
    Destination,
    ExchangeRef,
    HashRing,
    ModulusHashExchange,
    Release,
    SlotTable,
    SuperStream,
)
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import ExchangeType, KeyMap
from rabbit_chx.routing.key_map_json import key_map_from_json
from rabbit_chx.routing.message import HASH_ARGUMENTS, HashedOn
from rabbit_chx.routing.release import NEWEST_PATCHES, Store
from rabbit_chx.routing.rules import DUPLICATES_APPEND
from rabbit_chx.routing.super_stream import super_stream_of
from rabbit_chx.words import listed

if TYPE_CHECKING:
    from rabbit_chx.topology import ExchangeDefinition

_EXCHANGE_TYPES = (*get_args(ExchangeType), "super-stream/rstream", "super-stream/key")

RELEASE = "VERSION[/STORE]"
_KEY_ASSUMED = "so the routing key is assumed: otherwise pass --hash-header or --hash-property, or read it with --management-url"


@dataclass(frozen=True, slots=True)
class RingInput:
    """The source of the routing as given, with the arguments of its exchange.

    Attributes:
        source: the ring, or the table of its slots; or an exchange without one.
        arguments: the exchange's arguments that determine the hashed value; None if they are not known.
        unknown: why they are not known, as the beginning of a sentence; empty if they are known.
        faults: the slots of a live exchange that do not have exactly one queue, with the reason.
        is_live: True if it is that of a broker.
        is_amqp_alone: True if only AMQP was asked, so that the arguments are not known.
        doubt: what is assumed about the source, and what determines it; empty if the source is known or the user vouches for it.
        is_accepted: True if the user accepts the guess.
        alternate: the exchange that gets messages without a destination.
    """

    source: KeyMap
    arguments: Mapping[str, str] | None = None
    unknown: str = ""
    faults: Mapping[ExchangeRef, str] = field(default_factory=dict)
    is_live: bool = False
    is_amqp_alone: bool = False
    doubt: str = ""
    is_accepted: bool = False
    alternate: str | None = None

    @property
    def is_determined(self) -> bool:
        """True if the source is not a guess."""
        return not self.doubt

    def loses(self, places: Iterable[Place]) -> bool:
        """Return True if messages to one of these places are lost, because it is None and there is no alternate exchange."""
        return self.alternate is None and None in places

    def warn(self) -> None:
        """Write the doubt to stderr."""
        if self.is_accepted and self.doubt:
            say(self.doubt)
        elif self.doubt:
            say(Fix("not determined: ", self.doubt, "; --assume accepts the guess (exit code 0)"))

    @property
    def is_unpinned(self) -> bool:
        """True for a topology file that does not list the slots of each queue."""
        return isinstance(self.source, SlotTable) and self.source.owners_assumed

    @property
    def type(self) -> ExchangeType:
        """The type of the exchange."""
        return self.source.traits.exchange_type

    def under(self, rules: Release | None) -> RingInput:
        """Return this input under the rules of another release."""
        return self if rules is None else replace(self, source=self.source.with_release(rules))

    def of_type(self, wanted: str | None) -> RingInput:
        """Return this input with the client whose hashing a super stream uses."""
        if wanted is None:
            return self
        type_, _, client = wanted.partition("/")
        if self.type != type_:
            raise InputError(f"this exchange is of type {self.type}, not {type_}: leave --exchange-type out")
        if isinstance(self.source, SuperStream) and client:
            by_key = client == "key"
            return replace(
                self,
                source=replace(self.source, routing="key") if by_key else self.source.with_client(client),
            )
        return self


#: The ways in which a ring is given, by their names in errors, each with a function that reads the ring.
RingWays: TypeAlias = dict[str, Callable[[], RingInput]]


def _read_only(ring: str, ways: RingWays) -> RingInput | None:
    """Return the ring of the only way; None without one, an InputError for several."""
    if len(ways) > 1:
        first, second = [*ways][:2]
        raise InputError(f"{ring} is given twice, as {first} and as {second}: pass it once")
    return next((read() for read in ways.values()), None)


@dataclass(frozen=True, slots=True)
class RingOptions:
    """The options of a ring: one of the first four, or a topology file with the name of an exchange."""

    section: ClassVar = "Ring"
    bindings: tuple[str, ...] = option(
        "--bind",
        type=TEXT,
        multiple=True,
        metavar="QUEUE=WEIGHT",
        help="A binding; pass bindings in bind order. 'q{1..4}=1' is four. Write an exchange as exchange:NAME=WEIGHT.",
    )
    ring_file: str | None = option(
        "--ring",
        metavar="FILE",
        help="A ring file: the output of `show -o json`, HashRing.to_json or SlotTable.to_json; - is stdin.",
    )
    topology: str | None = option(
        metavar="FILE",
        help="A topology file; - is stdin. If it has several hash exchanges, --exchange selects one.",
    )
    exchange: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="An exchange of the live broker; with --topology, of the file.",
    )
    release: str | None = option(
        metavar=RELEASE,
        help="The RabbitMQ release whose rules apply, such as 4.3, 4.3.6 or 4.0.5/mnesia.  [default: that of the ring or the "
        "broker, or the newest with its default store]",
    )
    assume: bool = option(
        is_flag=True,
        help="Accept a ring that is assumed: exit with 0 instead of 3. The answer says that it is assumed.",
    )
    exchange_type: str | None = option(
        is_rare=True,
        type=one_of(*_EXCHANGE_TYPES),
        metavar="TYPE",
        help="The type of the exchange of --bind: x-consistent-hash, x-modulus-hash, super-stream (hashed by the clients for Java, "
        ".NET and Go), super-stream/rstream or super-stream/key (routed by binding key). For the last four write --bind QUEUE=KEY with the binding key.  "
        "[default: x-consistent-hash]",
    )
    broker: BrokerOptions = options(BrokerOptions)

    def at(self, exchange: str | None) -> RingOptions:
        """Return these options with the EXCHANGE of the arguments, which a command without other arguments takes."""
        if exchange is None:
            return self
        if self.exchange is not None:
            raise InputError(f"the exchange is given twice, as {exchange!r} and by --exchange: pass it once")
        return replace(self, exchange=exchange)

    def read(self, *, other: OtherRingOptions | None = None) -> RingInput:
        """Return the ring, and write warnings about it to stderr."""
        is_live = self.exchange is not None and self.topology is None
        if other is not None:
            is_live = is_live or (other.to_exchange is not None and other.to_file is None)
        if not is_live:
            self._refuse_broker_options()
        if other is not None:
            other.check()
        rules = parse_release(self.release)
        read = _read_only("the ring", self._ways(rules))
        if read is None:
            raise InputError(
                "the ring is not given: pass --bind QUEUE=WEIGHT for each queue, or --ring FILE, or --topology FILE, or --exchange NAME"
            )
        return self._accept(read.of_type(self.exchange_type))

    def _accept(self, given: RingInput) -> RingInput:
        """Return an input with the decision about its guess, which is written to stderr."""
        given = replace(given, is_accepted=self.assume)
        given.warn()
        return given

    def _ways(self, rules: Release | None) -> RingWays:
        """Return the given ways of the ring, under the rules of a release; None: those of the ring."""
        ways: RingWays = {}
        if self.bindings:
            ways["bindings"] = lambda: _ring_of_bindings(self.bindings, rules, self.exchange_type)
        if (path := self.ring_file) is not None:
            ways[f"the file {path}"] = lambda: ring_of_file(path).under(rules)
        if (file := self.topology) is not None:
            ways[f"the topology {file}"] = lambda: ring_of_topology(
                read_topology(file, self.broker.vhost or "/"), self.exchange, rules
            )
        elif (exchange := self.exchange) is not None:
            ways[f"the exchange {exchange}"] = lambda: ring_of_broker(self.broker.live(), exchange).under(
                rules
            )
        return ways

    def _refuse_broker_options(self) -> None:
        """Raise an error for an option of a live broker if no broker is used."""
        unused = [name for name in typed(BrokerOptions) if self.topology is None or name != "--vhost"]
        if unused and self.topology is not None:
            raise InputError(
                f"{unused[0]} is an option of a live broker, and the ring is read from {self.topology}: pass one of them"
            )
        if unused:
            raise InputError(
                f"{unused[0]} is an option of a live broker, and no exchange of a broker is named: to read its ring, pass --exchange NAME; "
                f"otherwise leave {unused[0]} out"
            )

    def read_file(self, other: OtherRingOptions) -> tuple[TopologyInput, Release, Release] | None:
        """Return the topology file and two releases; None unless the options give exactly these."""
        others = (other.to_bindings, other.to_file, other.to_exchange)
        if any((self.bindings, self.ring_file, self.exchange, *others)):
            return None
        if self.topology is None or other.to_release is None:
            return None
        self._refuse_broker_options()
        file = read_topology(self.topology, self.broker.vhost or "/")
        known, before = file.topology.release, parse_release(self.release)
        after = parse_release(other.to_release)
        if known is not None and before not in (None, known):
            say(f"{file.name} is of RabbitMQ {known}; it is compared as of {before}")
        before = before or known
        if before is None or after is None:
            raise InputError(
                f"{file.name} does not contain its release: pass --release, such as --release 3.12"
            )
        return file, before, after

    def read_other(self, first: RingInput, other: OtherRingOptions) -> RingInput:
        """Return the ring to compare with: a second ring, or the same buckets under another release."""
        rules = parse_release(other.to_release)
        given = _read_only("the other ring", other.ways(first, rules, self.broker))
        read = first.under(rules) if given is None else self._accept(given)
        types = (first.type, read.type)
        if HASH_EXCHANGE in types and types[0] != types[1]:
            raise InputError(
                f"the types {types[0]} and {types[1]} hash keys differently: compare two exchanges of one type"
            )
        for file, unpinned, broker in (
            (self.topology, first, read),
            (other.to_file, read, first),
        ):
            if unpinned.is_unpinned and broker.is_live:
                raise InputError(
                    Fix(
                        f"{file} does not list the slots of each queue, so a comparison with a broker would be wrong: write the slots with ",
                        to_type("arrange", str(file), write=True),
                        "; or show the changes with ",
                        to_type("plan", str(file)),
                    )
                )
        return read


@dataclass(frozen=True, slots=True)
class OtherRingOptions:
    """The options of the second ring of a comparison."""

    section: ClassVar = "Other ring"
    to_bindings: tuple[str, ...] = option(
        "--to-bind",
        type=TEXT,
        multiple=True,
        metavar="QUEUE=WEIGHT",
        help="A binding of the other ring.",
    )
    to_file: str | None = option(
        "--to-ring", metavar="FILE", help="The other ring: a file of a ring, or a topology file."
    )
    to_exchange: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="The other ring: an exchange of the live broker, or of the topology file of --to-ring.",
    )
    to_release: str | None = option(
        metavar=RELEASE,
        help="The other RabbitMQ release; without another ring the buckets stay the same.",
    )

    def ways(self, first: RingInput, rules: Release | None, broker: BrokerOptions) -> RingWays:
        """Return the given ways of the other ring; bindings have the type of the first ring, and without `rules` its release."""
        ways: RingWays = {}
        if self.to_bindings:
            ways["bindings"] = lambda: _ring_of_bindings(
                self.to_bindings, rules or first.source.release, first.type
            )
        if (path := self.to_file) is not None:
            content = read_whole(path, "ring")
            if not _is_ring(content):
                ways[f"the topology {path}"] = lambda: ring_of_topology(
                    read_topology(path, broker.vhost or "/", content), self.to_exchange, rules
                )
                return ways
            ways[f"the file {path}"] = lambda: ring_of_file(path, content).under(rules)
        if (exchange := self.to_exchange) is not None:
            ways[f"the exchange {exchange}"] = lambda: ring_of_broker(broker.live(), exchange).under(rules)
        return ways

    def check(self) -> None:
        """Raise an error if none of the options is given."""
        others = (self.to_file, self.to_exchange, self.to_release)
        if not self.to_bindings and not any(other is not None for other in others):
            raise InputError(
                "the other ring is not given: pass --to-release, --to-bind, --to-ring or --to-exchange"
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
            say(f"{unknown}, {_KEY_ASSUMED}")
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
        """Return the ring of keys: that of a live exchange is a guess if AMQP alone does not show what it hashes, and no option says it."""
        is_said = self.hash_header is not None or self.hash_property is not None
        if is_said or given.doubt or not given.is_amqp_alone:
            return given
        doubtful = replace(given, doubt=f"{given.unknown}, {_KEY_ASSUMED}")
        doubtful.warn()
        return doubtful


def code_of(*given: RingInput, is_lost: bool = False, is_different: bool = False) -> ExitCode:
    """Return the exit code of a prediction: messages that are lost, before a guess that is not accepted, before a difference."""
    if is_lost:
        return ExitCode.DIFFERENCE
    if any(each.doubt and not each.is_accepted for each in given):
        return ExitCode.PARTLY
    return ExitCode.DIFFERENCE if is_different else ExitCode.DONE


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


def say_ignored(
    release: Release, bindings: Iterable[tuple[Destination, str]], before: HashRing | None = None
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


def _ring_of_bindings(bindings: tuple[str, ...], rules: Release | None, type_: str | None) -> RingInput:
    pairs = tuple(parse_bindings(bindings))
    if type_ == MODULUS_EXCHANGE:
        return RingInput(ModulusHashExchange("offline", pairs, rules), {})
    if type_ is not None and type_ != HASH_EXCHANGE:
        return RingInput(super_stream_of("offline", pairs), {}).under(rules)
    ring = HashRing.from_bindings(pairs, rules)
    say_ignored(ring.release, pairs)
    return RingInput(ring)


def ring_of_file(path: str, content: bytes | None = None) -> RingInput:
    """Return the ring of a file that `show`, `HashRing.to_json` or `SlotTable.to_json` wrote."""
    text, name = content or read_whole(path, "ring"), file_name(path)
    try:
        ring = key_map_from_json(text)
        document = json_object(text)
        arguments = document.get("arguments")
        if arguments is not None:
            HashedOn.from_arguments(arguments)
    except InputError as error:
        remedy: str = ""
        if _is_definitions(text):
            remedy = Fix(
                "; this is a definitions file, which does not contain the order of a ring: read the broker, or write the bindings "
                "with --bind: they are listed by ",
                to_type("export", **{"from": path}),
            )
        raise InputError(Fix(f"{name}: {error}", remedy)) from None
    why = ", because it was read without the management API" if "arguments" in document else ""
    return RingInput(
        ring,
        arguments,
        f"{name} does not contain the arguments of the exchange{why}",
        is_live=ring.ground.is_certain,
        doubt=f"the ring of {name} is {ring.ground}: pass a file of a ring that was read"
        if ring.ground.is_assumed
        else "",
    )


def _is_definitions(text: bytes) -> bool:
    document = json_object(text)
    return "exchanges" in document and "bindings" in document


def _is_ring(text: bytes) -> bool:
    document = json_object(text)
    return bool(document) and not _is_definitions(text)


def ring_of_topology(file: TopologyInput, name: str | None, rules: Release | None) -> RingInput:
    """Return the routing of a hash exchange of a topology file."""
    from rabbit_chx.topology.model import LiveTopology
    from rabbit_chx.topology.modulus import modulo_map_of
    from rabbit_chx.topology.rules.reach import Reach

    topology, exchange = file.topology, exchange_in(file, name)
    modulo = modulo_map_of(exchange, topology.bindings, topology.release)
    if modulo is not None:
        return RingInput(modulo, {}).under(rules)
    source = topology.key_map(exchange.name, rules)
    doubt: str = ""
    say_unpinned(file, exchange)
    if topology.is_assumed(exchange.name):
        doubt = Fix(
            f"the ring of {exchange.name} is {source.ground}: read the broker with ",
            to_type("show", exchange.name),
        )
    alternate = Reach(LiveTopology.of_file(topology)).alternate_of(exchange)
    return RingInput(source, hash_arguments_of(exchange), doubt=doubt, alternate=alternate)


def say_unpinned(file: TopologyInput, exchange: ExchangeDefinition) -> None:
    """Write a warning to stderr if a topology file does not list the slots of an exchange."""
    if any(member.slots is None for member in exchange.members or ()):
        say(
            Fix(
                f"{file.name} shares the slots of {exchange.name} by weight, and the slots of each queue are assumed as on a new broker: "
                "list them with ",
                to_type("arrange", file.name, write=True),
            )
        )


def exchange_in(file: TopologyInput, name: str | None) -> ExchangeDefinition:
    """Return the hash exchange of that name in a topology file; without a name, the only one."""
    from rabbit_chx.topology.modulus import is_super_stream
    from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, MODULUS_EXCHANGE

    hashing = {
        exchange.name: exchange
        for exchange in file.topology.exchanges
        if exchange.type in (HASH_EXCHANGE, MODULUS_EXCHANGE) or is_super_stream(exchange)
    }
    if not hashing:
        raise InputError(
            f"{file.name} does not contain a hash exchange: pass a file with one of type {HASH_EXCHANGE} or {MODULUS_EXCHANGE}"
        )
    names = listed(list(hashing))
    if name is None and len(hashing) > 1:
        raise InputError(f"{file.name} contains several hash exchanges: pass one of {names}")
    if name is not None and name not in hashing:
        raise InputError(f"{file.name} does not contain a hash exchange {name!r}: pass one of {names}")
    return hashing[name or next(iter(hashing))]


def hash_arguments_of(exchange: ExchangeDefinition) -> dict[str, str]:
    """Return the arguments of an exchange that determine the hashed value."""
    arguments = {name: exchange.arguments[name] for name in HASH_ARGUMENTS if name in exchange.arguments}
    HashedOn.from_arguments(arguments)
    return arguments


@sign_of_life("reading the ring")
def ring_of_broker(broker: BrokerAddresses, exchange: str) -> RingInput:
    """Return the ring of a live exchange: read, or else assumed from the bindings."""
    from rabbit_chx.analysis import ring_findings
    from rabbit_chx.topology.objects.objects import HASH_EXCHANGE

    source: KeyMap
    faults: Mapping[ExchangeRef, str] = {}
    alternate: str | None = None
    if broker.management_url is None and broker.ring_source is None:
        raise InputError(
            f"AMQP alone shows neither the ring of exchange {exchange!r} nor its bindings: pass --ring-via, such as "
            "'docker exec NAME', and --management-url http://user:password@host:15672"
        )
    if broker.management_url is None:
        with broker.open() as live_broker:
            source = ring = live_broker.ring(exchange)
        arguments, findings = None, ring_findings(ring)
        if any(isinstance(place, ExchangeRef) for place in ring.destinations):
            say(
                f"AMQP alone does not show the queues of the exchanges in the ring of {exchange!r}: pass --management-url to "
                "follow its slots"
            )
    else:
        live = broker.exchange(exchange, "")
        alternate = live.alternate
        if live.type != HASH_EXCHANGE:
            source = live.key_map()
            doubt = (
                f"exchange {exchange!r} is {source.ground}: probe it, or use an x-consistent-hash exchange"
                if source.ground.is_assumed
                else ""
            )
            return RingInput(source, {}, is_live=True, doubt=doubt, alternate=alternate)
        ring, source, faults = live.ring, live.slots.key_map(), live.slots.faults
        arguments, findings = live.hash_arguments, ring_findings(ring, live.bindings, alternate)
        store_read_ring(broker, live)
        for fault in faults.values():
            say(fault)
    for finding in findings:
        say(f"exchange {exchange!r}: {finding.message}")
    unknown = f"AMQP alone does not show the arguments of exchange {exchange!r}"
    doubt = (
        Fix(f"the ring of exchange {exchange!r} is {ring.ground}: ", NEED_RING)
        if ring.ground.is_assumed
        else ""
    )
    return RingInput(
        source,
        arguments,
        unknown,
        faults,
        is_live=True,
        is_amqp_alone=arguments is None,
        doubt=doubt,
        alternate=alternate,
    )
