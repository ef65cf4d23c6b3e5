"""Options that several commands share."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import click

from rabbit_chx.analysis import Hashing, ModuloMap
from rabbit_chx.cli.arguments import FIELD_TYPES, header_value, property_value
from rabbit_chx.cli.notation import hashes_text
from rabbit_chx.cli.outcome import WRONG_USAGE, Outcome
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Release

if TYPE_CHECKING:
    from rabbit_chx.amqp.fields import FieldType
    from rabbit_chx.cli.input_files import RingInput
    from rabbit_chx.routing.release import Store

__all__ = [
    "STORES",
    "TEXT",
    "Command",
    "HashedKeys",
    "Number",
    "given_release",
    "hashing_options",
    "output_option",
    "release_options",
    "show_help",
    "with_options",
]

Command: TypeAlias = "Callable[..., Outcome]"

STORES = click.Choice(["mnesia", "khepri"])

#: Parameters of commands that give keys to route.
_KEYS = ("keys", "key_file", "pattern")

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


class Number(click.FloatRange):
    """A number within bounds. NaN is within any bounds for click, as it compares with none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401  # as click has it
        """Return the number, or fail where it is none or out of bounds."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """Turns keys of the command line into what the exchange hashes.

    Attributes:
        hashing: what the exchange hashes, and the wire type of a key as a header.
        modulo: the exchange, if it is one of type ``x-modulus-hash`` or a super stream.
    """

    hashing: Hashing
    modulo: ModuloMap | None = None

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
        return command(release=given_release(release, store), **others)

    return with_options(
        with_release,
        click.option("--release", type=TEXT, metavar="VERSION", help="List the rules of this release only."),
        click.option("--store", type=STORES, help="Its metadata store.  [default: that of a fresh broker]"),
    )


def hashing_options(command: Command) -> Command:
    """Add the options of what is hashed; the command gets `hashed`. Write this decorator below that of the
    ring.
    """

    @functools.wraps(command)
    def with_hashing(
        *,
        ring_input: RingInput,
        hash_header: str | None,
        hash_property: str | None,
        type_: FieldType | None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        told = ring_input.arguments is not None or hash_header is not None or hash_property is not None
        asked = any(others.get(name) is not None for name in _KEYS)  # exact shares depend on no key
        if asked and not told and ring_input.doubt:
            say(
                f"{ring_input.doubt}, so it is taken for the routing key: if it is not, give --hash-header or "
                "--hash-property, or read it with --management-url"
            )
        hashing = _hashing(ring_input, hash_header, hash_property, type_)
        return command(ring=ring_input.ring, hashed=HashedKeys(hashing, ring_input.modulo), **others)

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


def given_release(version: str | None, store: Store | None) -> Release | None:
    """Return the release of the options. A series such as 4.3 is its newest known patch; a line on stderr
    says which.

    Args:
        version: the version, or a series; None where none was given.
        store: the metadata store; None where none was given.

    Raises:
        InputError: the version is none, or cannot have that store, or there is a store alone.
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


def with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Return the command with these options, in this order."""
    return functools.reduce(lambda done, option: option(done), reversed(options), command)


def _hashing(
    given: RingInput, hash_header: str | None, hash_property: str | None, type_: FieldType | None
) -> Hashing:
    """Return what is hashed, by the options or by the exchange; the two must not contradict each other."""
    options = {"hash-header": hash_header, "hash-property": hash_property}
    named = {name: value for name, value in options.items() if value is not None}
    arguments = named if given.arguments is None else given.arguments
    if named and named != dict(arguments):
        raise InputError(
            f"the exchange of this ring hashes {hashes_text(arguments)}, not {hashes_text(named)}: leave that out"
        )
    if arguments and not named:
        say(
            f"the exchange of this ring hashes {hashes_text(arguments)}, so that is hashed here, and not the "
            "routing key"
        )
    header = arguments.get("hash-header")
    if type_ is not None and header is None:
        raise InputError(f"--type {type_} is the type of a header: give --hash-header too")
    return Hashing(header, arguments.get("hash-property"), field_type=type_)
