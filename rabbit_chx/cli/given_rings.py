"""The ring that the options give: as bindings, as a file, or as an exchange of a live broker or a definitions file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import click

from rabbit_chx.analysis import ModuloMap
from rabbit_chx.cli.arguments import parse_binding
from rabbit_chx.cli.exchange_place import ExchangePlace, under_rules
from rabbit_chx.cli.input_files import RingInput
from rabbit_chx.cli.input_files import read_ring as read_ring_file
from rabbit_chx.cli.live_options import BrokerOptions, broker_options
from rabbit_chx.cli.notation import hashes_text
from rabbit_chx.cli.option_groups import STORES, TEXT, Command, given_release, with_options
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, HashRing, Release
from rabbit_chx.routing.rules import DUPLICATES_APPEND

if TYPE_CHECKING:
    from rabbit_chx.analysis.modulo_map import StreamClient
    from rabbit_chx.cli.outcome import Outcome
    from rabbit_chx.routing.release import Store

__all__ = ["ExchangeKind", "ring_options", "say_ignored", "two_ring_options"]

ExchangeKind: TypeAlias = Literal["x-consistent-hash", "x-modulus-hash", "super-stream"]


@dataclass(frozen=True, slots=True)
class RingChoice:
    """The options of one ring. At most one of the first three may be given.

    Attributes:
        bindings: its bindings.
        file: its file.
        exchange: the exchange whose ring it is.
        rules: the release whose rules apply; None for that of the ring.
        name: what messages call it.
        type: the type of the exchange that the bindings are of; None where it was not given.
        client: the client of a super stream; None where it was not given.
    """

    bindings: tuple[str, ...]
    file: str | None
    exchange: str | None
    rules: Release | None
    name: str = "the ring"
    type: ExchangeKind | None = None
    client: StreamClient | None = None

    def read(self, place: ExchangePlace, *, modulo: bool = False) -> RingInput | None:
        """Return the ring; None where none of the options was given.

        Args:
            place: where exchanges are looked up.
            modulo: whether an ``x-modulus-hash`` exchange or a super stream will do.

        Raises:
            RabbitChxError: it is given twice, or cannot be read.
        """
        given = [
            *(["bindings"] if self.bindings else []),
            *([] if self.file is None else [f"the file {self.file}"]),
            *([] if self.exchange is None else [f"the exchange {self.exchange}"]),
        ]
        if len(given) > 1:
            raise InputError(f"{self.name} is given twice, as {given[0]} and as {given[1]}: give it once")
        if self.type is not None and not self.bindings:
            raise InputError(
                f"--exchange-type {self.type} is the type of the exchange of --bind: give --bind too"
            )
        if self.exchange is not None:
            return self._of_client(place.read(self.exchange, self.rules, modulo=modulo))
        if self.file is not None:
            read = read_ring_file(self.file)
            return read if self.rules is None else replace(read, ring=read.ring.with_release(self.rules))
        if not self.bindings:
            return None
        pairs = list(map(parse_binding, self.bindings))
        if self.type is not None and self.type != "x-consistent-hash":
            given_map = ModuloMap("offline", self.type, tuple(pairs), self.rules)
            return self._of_client(RingInput(HashRing.from_buckets((), self.rules), {}, modulo=given_map))
        ring = HashRing.from_bindings(pairs, self.rules)
        say_ignored(HashRing.from_buckets((), ring.release), pairs)
        return self._of_client(RingInput(ring))

    def _of_client(self, given: RingInput) -> RingInput:
        """Return what was given, with the client of a super stream."""
        if self.client is None:
            return given
        if given.modulo is None or given.modulo.kind != "super-stream":
            raise InputError(
                f"--client {self.client} is about a super stream, and this is none: leave it out"
            )
        return replace(given, modulo=replace(given.modulo, client=self.client))


def ring_options(*, modulo: bool = False) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a ring; the command gets a `ring_input`, a `RingInput`, which
    `hashing_options` reads.

    Args:
        modulo: whether an ``x-modulus-hash`` exchange or a super stream will do.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_ring(
            *,
            broker_options: BrokerOptions,
            bindings: tuple[str, ...],
            ring_file: str | None,
            exchange: str | None,
            definitions: str | None,
            release: str | None,
            store: Store | None,
            exchange_type: ExchangeKind | None = None,
            client: StreamClient | None = None,
            **others: Any,  # noqa: ANN401
        ) -> Outcome:
            place = ExchangePlace(broker_options, definitions)
            place.refuse_idle(asked=exchange is not None)
            choice = RingChoice(
                bindings,
                ring_file,
                exchange,
                given_release(release, store),
                type=exchange_type,
                client=client,
            )
            return command(ring_input=_or_refused(choice.read(place, modulo=modulo)), **others)

        return _with_ring_parameters(_with_modulo_parameters(with_ring) if modulo else with_ring)

    return decorate


def two_ring_options(command: Command) -> Command:
    """Add the options of two rings; the command gets a `ring_input`, which `hashing_options` reads, and the `other`
    ring.

    The other is a ring of its own, or the same buckets under another release. Where the one is an exchange without a ring,
    the other is a `ModuloMap`.
    """

    @functools.wraps(command)
    def with_rings(
        *,
        broker_options: BrokerOptions,
        bindings: tuple[str, ...],
        ring_file: str | None,
        exchange: str | None,
        definitions: str | None,
        release: str | None,
        store: Store | None,
        to_bindings: tuple[str, ...],
        to_ring_file: str | None,
        to_exchange: str | None,
        to_release: str | None,
        to_store: Store | None,
        exchange_type: ExchangeKind | None = None,
        client: StreamClient | None = None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        place = ExchangePlace(broker_options, definitions)
        place.refuse_idle(asked=(exchange, to_exchange) != (None, None))
        rules = given_release(to_release, to_store)
        if not to_bindings and (to_ring_file, to_exchange, rules) == (None, None, None):
            raise InputError(
                "there is nothing to compare with: give --to-release, --to-bind, --to-ring or --to-exchange"
            )
        one_type = exchange_type if bindings or not to_bindings else None
        choice = RingChoice(
            bindings, ring_file, exchange, given_release(release, store), type=one_type, client=client
        )
        given = _or_refused(choice.read(place, modulo=True))
        if rules is None and to_bindings:
            rules = given.ring.release if given.modulo is None else given.modulo.release
        other_type = exchange_type if to_bindings else None
        if to_bindings and other_type is None and given.modulo is not None:
            other_type = given.modulo.kind
        other = RingChoice(
            to_bindings, to_ring_file, to_exchange, rules, "the other ring", type=other_type, client=client
        ).read(place, modulo=True)
        if other is None:
            assert rules is not None  # noqa: S101  # nothing else was given
            other = under_rules(given, rules)
        _check_two_of_a_kind(given, other)
        return command(ring_input=_both(given, other), other=other.modulo or other.ring, **others)

    return _with_ring_parameters(
        with_options(
            _with_modulo_parameters(with_rings),
            click.option(
                "--to-bind",
                "to_bindings",
                type=TEXT,
                multiple=True,
                metavar="QUEUE=WEIGHT",
                help="A binding of the other ring.",
            ),
            click.option("--to-ring", "to_ring_file", metavar="FILE", help="The other ring, from a file."),
            click.option(
                "--to-exchange",
                type=TEXT,
                metavar="NAME",
                help="The other ring, of an exchange beside that of --exchange.",
            ),
            click.option(
                "--to-release",
                metavar="VERSION",
                help="The other RabbitMQ version; without another ring the buckets stay the same.",
            ),
            click.option("--to-store", type=STORES, help="The other release's metadata store."),
        )
    )


def say_ignored(before: HashRing, bindings: Iterable[tuple[Destination, str]]) -> None:
    """Say on stderr which bindings a broker ignores.

    Args:
        before: the ring before the first binding.
        bindings: the bindings that are then made, one after another.
    """
    release = before.release
    bound, made = set(before.destinations), set(before.bindings or ())
    for destination, key in bindings:
        if (destination, key) in made:
            say(f"the binding {destination!s}={key} is given twice: for the broker it is one")
        elif destination in bound and not release.follows(DUPLICATES_APPEND):
            say(
                f"the binding {destination!s}={key} changes nothing: RabbitMQ {release.version} ignores a second binding "
                f"of {destination!s}; to give it another weight, unbind it first"
            )
        bound.add(destination)
        made.add((destination, key))


def _with_modulo_parameters(command: Command) -> Command:
    return with_options(
        command,
        click.option(
            "--exchange-type",
            type=click.Choice(get_args(ExchangeKind)),
            help="The type of the exchange of --bind. For the other two write --bind QUEUE=KEY with the binding key; the "
            "partitions of a super stream in their order.  [default: x-consistent-hash]",
        ),
        click.option(
            "--client",
            type=click.Choice(["java", "rstream"]),
            help="With a super stream: the client that publishes. java hashes as those for .NET and Go do.  [default: java]",
        ),
    )


def _with_ring_parameters(command: Command) -> Command:
    return with_options(
        broker_options(command),
        click.option(
            "--bind",
            "bindings",
            type=TEXT,
            multiple=True,
            metavar="QUEUE=WEIGHT",
            help="A binding; give bindings in bind order. Write an exchange as exchange:NAME=WEIGHT.",
        ),
        click.option(
            "--ring",
            "ring_file",
            metavar="FILE",
            help="A ring instead of bindings, as `ring show --output json`, HashRing.to_json or SlotTable.to_json wrote it; - is stdin.",
        ),
        click.option(
            "--exchange",
            type=TEXT,
            metavar="NAME",
            help="The ring of this exchange instead: of the live broker of --url, or of --definitions.",
        ),
        click.option(
            "--definitions",
            metavar="FILE",
            help="With --exchange: a definitions file of RabbitMQ instead of a live broker; - is stdin. It does not hold "
            "the order of a ring. --vhost says which vhost.  [default vhost: /]",
        ),
        click.option(
            "--release",
            metavar="VERSION",
            help="The RabbitMQ version whose rules apply; 4.3 is the newest known 4.3.  [default: that of the ring, the "
            "broker or the file, or the newest]",
        ),
        click.option(
            "--store",
            type=STORES,
            help="The release's metadata store.  [default: that of a fresh broker; shown as khepri? where the release "
            "may have either]",
        ),
    )


def _or_refused(given: RingInput | None) -> RingInput:
    if given is None:
        raise InputError(
            "there is no ring: give --bind QUEUE=WEIGHT for each queue, or --ring FILE, or --exchange NAME"
        )
    return given


def _check_two_of_a_kind(given: RingInput, other: RingInput) -> None:
    """Raise an error where a ring is to be compared with an exchange without one.

    Raises:
        InputError: it is so.
    """
    kinds = ["x-consistent-hash" if one.modulo is None else one.modulo.kind for one in (given, other)]
    if "x-consistent-hash" in kinds and len(set(kinds)) > 1:
        raise InputError(
            f"the one is of type {kinds[0]} and the other of type {kinds[1]}, which hash otherwise: compare two of one type"
        )


def _both(given: RingInput, other: RingInput) -> RingInput:
    """Return the first ring, with what is known about the arguments of either."""
    if given.arguments is None:
        return replace(given, arguments=other.arguments, doubt=given.doubt or other.doubt)
    if other.arguments is not None and dict(given.arguments) != dict(other.arguments):
        raise InputError(
            f"the exchange of the one ring hashes {hashes_text(given.arguments)}, that of the other "
            f"{hashes_text(other.arguments)}: no key is the same for both"
        )
    return given
