"""Options that several commands share, and what they mean together."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from rabbit_chx.analysis import Hashing
from rabbit_chx.cli.parsing import FIELD_TYPES, header_value, parse_binding, property_value, read_ring
from rabbit_chx.cli.reading import read_keys
from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing, Release

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rabbit_chx.amqp.fields import FieldType
    from rabbit_chx.cli.outcome import Outcome
    from rabbit_chx.routing.release import Store

__all__ = [
    "TEXT",
    "HashedKeys",
    "hashing_options",
    "other_ring_options",
    "output_option",
    "release_options",
    "ring_options",
    "sample_options",
]

Command: TypeAlias = "Callable[..., Outcome]"

STORES = click.Choice(["mnesia", "khepri"])
PATTERN_KEYS = 100_000


class Text(click.types.StringParamType):
    """Text that AMQP can carry as UTF-8: a shell may give bytes that are none."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text as it is."""
        text = super().convert(value, param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(
                f"{text!r:.60} is no UTF-8: the command line takes text alone, bytes can be routed in Python",
                param,
                ctx,
            )
        return text


TEXT = Text()


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """What the exchange hashes, and how a key of the command line becomes that.

    Attributes:
        hashing: what it hashes, and the wire type that a key has as a header.
    """

    hashing: Hashing

    def value(self, key: str) -> Any:  # noqa: ANN401
        """What stands where the exchange looks.

        Raises:
            InputError: the key is none of the type.
        """
        if self.hashing.hash_property is not None:
            return property_value(self.hashing.hash_property, key)
        return (
            key
            if self.hashing.hash_header is None
            else header_value(self.hashing.field_type or "longstr", key)
        )


output_option = click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How the result is shown.",
)


def release_options(command: Command) -> Command:
    """Gives the command its `release`, or None where none was given."""

    @functools.wraps(command)
    def with_release(
        *,
        release: str | None,
        store: Store | None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        return command(release=_release(release, store), **others)

    return _with_options(
        with_release,
        click.option("--release", type=TEXT, metavar="VERSION", help="The rules of this one alone."),
        click.option("--store", type=STORES, help="Its metadata store.  [default: that of a fresh broker]"),
    )


def ring_options(command: Command) -> Command:
    """Gives the command its `ring`."""

    @functools.wraps(command)
    def with_ring(
        *,
        bindings: tuple[str, ...],
        ring_file: str | None,
        release: str | None,
        store: Store | None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        rules = _release(release, store)
        ring = _ring(bindings, ring_file, rules)
        if ring is None:
            raise InputError("there is no ring: give --bind QUEUE=WEIGHT for each queue, or --ring FILE")
        return command(ring=ring, **others)

    return _with_options(
        with_ring,
        click.option(
            "--bind",
            "bindings",
            type=TEXT,
            multiple=True,
            metavar="QUEUE=WEIGHT",
            help="A binding; give them in bind order. An exchange is exchange:NAME=WEIGHT.",
        ),
        click.option(
            "--ring", "ring_file", metavar="FILE", help="The ring instead, as HashRing.to_json wrote it."
        ),
        click.option(
            "--release", metavar="VERSION", help="Whose rules apply.  [default: the ring's, or the newest]"
        ),
        click.option(
            "--store",
            type=STORES,
            help="The release's metadata store.  [default: that of a fresh broker]",
        ),
    )


def other_ring_options(command: Command) -> Command:
    """Gives the command the `other` ring; to be written below `ring_options`, whose ring it needs.

    A ring of its own, or the same buckets under another release.
    """

    @functools.wraps(command)
    def with_other(
        *,
        ring: HashRing,
        to_bindings: tuple[str, ...],
        to_ring_file: str | None,
        to_release: str | None,
        to_store: Store | None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        rules = _release(to_release, to_store)
        other = _ring(to_bindings, to_ring_file, rules or (ring.release if to_bindings else None))
        if other is None and rules is None:
            raise InputError("there is nothing to compare with: give --to-release, --to-bind or --to-ring")
        if other is None and rules is not None:
            other = ring.with_release(rules)
        return command(ring=ring, other=other, **others)

    return _with_options(
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
            help="The other release; without another ring the buckets stay as they are.",
        ),
        click.option("--to-store", type=STORES, help="The other release's metadata store."),
    )


def hashing_options(command: Command) -> Command:
    """Gives the command its `hashed` keys."""

    @functools.wraps(command)
    def with_hashing(
        *,
        hash_header: str | None,
        hash_property: str | None,
        type_: FieldType | None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        if type_ is not None and hash_header is None:
            raise InputError(f"--type {type_} is the type of a header: give --hash-header too")
        hashing = Hashing(hash_header, hash_property, field_type=type_)
        return command(hashed=HashedKeys(hashing), **others)

    return _with_options(
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
            show_default="longstr",
            help="With --hash-header, the keys' AMQP type: longstr, long, signedint, bool, double, timestamp ...",
        ),
    )


def sample_options(command: Command) -> Command:
    """Gives the command its `sample` of keys, or None where none was asked for."""

    @functools.wraps(command)
    def with_sample(
        *,
        key_file: str | None,
        pattern: str | None,
        count: int | None,
        **others: Any,  # noqa: ANN401
    ) -> Outcome:
        return command(sample=_sample(key_file, pattern, count), **others)

    return _with_options(
        with_sample,
        click.option("--keys", "key_file", metavar="FILE", help="A sample: a key on each line; - is stdin."),
        click.option(
            "--pattern",
            type=TEXT,
            metavar="TEXT",
            help="A sample instead: keys in which {n} is a number from 0.",
        ),
        click.option(
            "--count",
            type=click.IntRange(1),
            show_default=f"{PATTERN_KEYS:,}",
            help="How many keys the pattern makes.",
        ),
    )


def _with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    return functools.reduce(lambda done, option: option(done), reversed(options), command)


def _release(version: str | None, store: Store | None) -> Release | None:
    if version is None and store is not None:
        raise InputError(f"the store {store} alone is no release: give the release too")
    return None if version is None else Release(version, store)


def _ring(bindings: Sequence[str], ring_file: str | None, rules: Release | None) -> HashRing | None:
    if bindings and ring_file is not None:
        raise InputError(f"the ring is given twice, as bindings and as the file {ring_file}: give it once")
    if ring_file is None:
        return HashRing.from_bindings(map(parse_binding, bindings), rules) if bindings else None
    ring = read_ring(ring_file)
    return ring if rules is None else ring.with_release(rules)


def _sample(key_file: str | None, pattern: str | None, count: int | None) -> list[str] | None:
    if key_file is not None and pattern is not None:
        raise InputError("the sample is given twice, as a file and as a pattern: give it once")
    if count is not None and pattern is None:
        raise InputError(f"--count {count} says how many keys a pattern makes: give --pattern too")
    if key_file is not None:
        return read_keys(key_file)
    if pattern is None:
        return None
    if "{n}" not in pattern:
        raise InputError(
            f"the pattern {pattern!r:.60} makes one key only: write {{n}} where its number belongs"
        )
    return [pattern.replace("{n}", str(n)) for n in range(count or PATTERN_KEYS)]
