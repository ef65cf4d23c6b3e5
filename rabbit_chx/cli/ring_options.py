"""The options of a RING and of its hashed value, and the exit code of what is predicted with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast, get_args

from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.report_parts import hashes_text
from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import TEXT, ExitCode, lacking, option, options, say, typed
from rabbit_chx.cli.inputs import VariableOptions, parse_header_type
from rabbit_chx.cli.ring_argument import RingArgument, RingInput
from rabbit_chx.command_texts import command_text
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Release
from rabbit_chx.routing.release import NEWEST_PATCHES, Store

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
