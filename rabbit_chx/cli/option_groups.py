"""Options that several commands share."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import click

from rabbit_chx.analysis import Hashing
from rabbit_chx.cli.arguments import FIELD_TYPES, header_value, parse_binding, property_value
from rabbit_chx.cli.input_files import RingInput, read_ring
from rabbit_chx.cli.notation import hashes_text
from rabbit_chx.cli.outcome import WRONG_USAGE
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.rules import DUPLICATES_APPEND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rabbit_chx.amqp.fields import FieldType
    from rabbit_chx.cli.outcome import Outcome
    from rabbit_chx.routing import Destination
    from rabbit_chx.routing.release import Store

__all__ = [
    "TEXT",
    "Command",
    "HashedKeys",
    "hashing_options",
    "other_ring_options",
    "output_option",
    "release_options",
    "ring_options",
    "say_ignored",
    "show_help",
    "with_options",
]

Command: TypeAlias = "Callable[..., Outcome]"

_STORES = click.Choice(["mnesia", "khepri"])

_SERIES = re.compile(r"[0-9]+\.[0-9]+", re.ASCII)


class Text(click.types.StringParamType):
    """Text that is valid UTF-8; a shell may pass other bytes."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or fail where it is not UTF-8."""
        text = super().convert(value, param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(
                f"{text!r:.60} is not UTF-8: the command line takes only text; route bytes in Python",
                param,
                ctx,
            )
        return text


TEXT = Text()


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """Turns keys of the command line into what the exchange hashes.

    Attributes:
        hashing: what the exchange hashes, and the wire type of a key as a header.
    """

    hashing: Hashing

    def value(self, key: str) -> Any:  # noqa: ANN401
        """Return the value that the exchange hashes for a key.

        Raises:
            InputError: the key is not a value of the wire type.
        """
        if self.hashing.hash_property is not None:
            return property_value(self.hashing.hash_property, key)
        return (
            key
            if self.hashing.hash_header is None
            else header_value(self.hashing.field_type or "longstr", key)
        )


def show_help(context: click.Context) -> NoReturn:
    """Show the help of a group that was called without a command, and exit; a help that nobody asked for is
    no result.

    Raises:
        Exit: always; with the code of wrong usage.
    """
    click.echo(context.get_help(), err=True)
    context.exit(WRONG_USAGE)


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="The form of the result.",
)


def release_options(command: Command) -> Command:
    """Add the options of a release; the command gets a `release`, None where none was given."""

    @functools.wraps(command)
    def with_release(
        *,
        release: str | None,
        store: Store | None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        return command(release=_release(release, store), **others)

    return with_options(
        with_release,
        click.option("--release", type=TEXT, metavar="VERSION", help="List the rules of this release only."),
        click.option("--store", type=_STORES, help="Its metadata store.  [default: that of a fresh broker]"),
    )


def ring_options(command: Command) -> Command:
    """Add the options of a ring; the command gets a `ring`, and `hashing_options` the arguments that came
    with it.
    """

    @functools.wraps(command)
    def with_ring(
        *,
        bindings: tuple[str, ...],
        ring_file: str | None,
        release: str | None,
        store: Store | None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        given = _ring(bindings, ring_file, _release(release, store))
        if given is None:
            raise InputError("there is no ring: give --bind QUEUE=WEIGHT for each queue, or --ring FILE")
        return command(ring=given.ring, ring_arguments=given.arguments, **others)

    return with_options(
        with_ring,
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
            help="A ring instead of bindings, as `ring show --output json` or HashRing.to_json wrote it; - is stdin.",
        ),
        click.option(
            "--release",
            metavar="VERSION",
            help="The RabbitMQ version whose rules apply; 4.3 is the newest known 4.3.  [default: the ring's, or the newest]",
        ),
        click.option(
            "--store",
            type=_STORES,
            help="The release's metadata store.  [default: that of a fresh broker; shown as khepri? where the release "
            "may have either]",
        ),
    )


def other_ring_options(command: Command) -> Command:
    """Add the options of another ring; the command gets an `other` ring.

    It is a ring of its own, or the same buckets under another release. Write this decorator below
    `ring_options`, whose ring it needs.
    """

    @functools.wraps(command)
    def with_other(
        *,
        ring: HashRing,
        ring_arguments: Mapping[str, str] | None,
        to_bindings: tuple[str, ...],
        to_ring_file: str | None,
        to_release: str | None,
        to_store: Store | None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        rules = _release(to_release, to_store)
        other = _ring(to_bindings, to_ring_file, rules or (ring.release if to_bindings else None))
        if other is None:
            if rules is None:
                raise InputError(
                    "there is nothing to compare with: give --to-release, --to-bind or --to-ring"
                )
            other = RingInput(ring.with_release(rules))
        if None not in (ring_arguments, other.arguments) and ring_arguments != other.arguments:
            raise InputError(
                f"the exchange of the one ring hashes {hashes_text(ring_arguments)}, that of the other "
                f"{hashes_text(other.arguments)}: no key is the same for both"
            )
        known = other.arguments if ring_arguments is None else ring_arguments
        return command(ring=ring, ring_arguments=known, other=other.ring, **others)

    return with_options(
        with_other,
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
            "--to-release",
            metavar="VERSION",
            help="The other RabbitMQ version; without another ring the buckets stay the same.",
        ),
        click.option("--to-store", type=_STORES, help="The other release's metadata store."),
    )


def hashing_options(command: Command) -> Command:
    """Add the options of what is hashed; the command gets `hashed`. Write this decorator below
    `ring_options`.
    """

    @functools.wraps(command)
    def with_hashing(
        *,
        ring_arguments: Mapping[str, str] | None,
        hash_header: str | None,
        hash_property: str | None,
        type_: FieldType | None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        hashing = _hashing(ring_arguments, hash_header, hash_property, type_)
        return command(hashed=HashedKeys(hashing), **others)

    return with_options(
        with_hashing,
        click.option("--hash-header", type=TEXT, metavar="NAME", help="The exchange's argument hash-header."),
        click.option(
            "--hash-property", type=TEXT, metavar="NAME", help="The exchange's argument hash-property."
        ),
        click.option(
            "--type",
            "type_",
            type=click.Choice(FIELD_TYPES),
            metavar="TYPE",
            help="With --hash-header: the AMQP type of the keys: longstr, long, signedint, bool, double, timestamp ...  "
            "[default: longstr]",
        ),
    )


def with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Return the command with these options, in this order."""
    return functools.reduce(lambda done, option: option(done), reversed(options), command)


def _release(version: str | None, store: Store | None) -> Release | None:
    """Return the release of the options. A series such as 4.3 is its newest known patch; a line on stderr
    says which.
    """
    if version is None:
        if store is not None:
            raise InputError(f"the store {store} alone does not make a release: give the release too")
        return None
    if not _SERIES.fullmatch(version):
        return Release(version, store)
    release = Release.newest_of(version, store)
    say(f"release {version} is taken as {release.version}, the newest of that series that is known here")
    return release


def _ring(bindings: Sequence[str], ring_file: str | None, rules: Release | None) -> RingInput | None:
    if bindings and ring_file is not None:
        raise InputError(f"the ring is given twice, as bindings and as the file {ring_file}: give it once")
    if ring_file is not None:
        given = read_ring(ring_file)
        return given if rules is None else replace(given, ring=given.ring.with_release(rules))
    if not bindings:
        return None
    pairs = list(map(parse_binding, bindings))
    ring = HashRing.from_bindings(pairs, rules)
    say_ignored(HashRing.from_buckets((), ring.release), pairs)
    return RingInput(ring)


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


def _hashing(
    ring_arguments: Mapping[str, str] | None,
    hash_header: str | None,
    hash_property: str | None,
    type_: FieldType | None,
) -> Hashing:
    """Return what is hashed, by the options or the ring's file; the two must not contradict each other."""
    options = {"hash-header": hash_header, "hash-property": hash_property}
    given = {name: value for name, value in options.items() if value is not None}
    if ring_arguments is None:
        ring_arguments = given
    if given and given != dict(ring_arguments):
        raise InputError(
            f"the exchange of this ring hashes {hashes_text(ring_arguments)}, not {hashes_text(given)}: leave that out"
        )
    if ring_arguments and not given:
        say(
            f"the exchange of this ring hashes {hashes_text(ring_arguments)}, so that is hashed here, and not the "
            "routing key"
        )
    header = ring_arguments.get("hash-header")
    if type_ is not None and header is None:
        raise InputError(f"--type {type_} is the type of a header: give --hash-header too")
    return Hashing(header, ring_arguments.get("hash-property"), field_type=type_)
