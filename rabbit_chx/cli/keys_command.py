"""``rabbit-chx keys``: keys that land on a queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from rabbit_chx.analysis import ModuloMap, NoKeyFoundError, keys_for
from rabbit_chx.cli.arguments import bound_destination, parse_destination
from rabbit_chx.cli.given_rings import ring_options
from rabbit_chx.cli.notation import place_json, source_as_json
from rabbit_chx.cli.option_groups import TEXT, HashedKeys, hashing_options, output_option
from rabbit_chx.cli.outcome import Outcome, PartlyDoneError
from rabbit_chx.rendering import Block, Lines

if TYPE_CHECKING:
    from rabbit_chx.routing import Destination, KeyMap

__all__ = ["keys"]


_MOST_KEYS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class KeysReport:
    """Keys that land on a destination.

    Attributes:
        ring: the ring, or an exchange without one.
        destination: where the keys land.
        found: the keys; each is yielded as soon as it is found.
    """

    ring: KeyMap | ModuloMap
    destination: Destination
    found: Iterable[str]

    def blocks(self) -> Iterator[Block]:
        """Return the bare keys, for a shell loop."""
        yield Lines(self.found)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        return {
            "format": "rabbit-chx/keys",
            "format_version": 1,
            **source_as_json(self.ring),
            "destination": place_json(self.destination),
            "keys": list(self.found),
        }


@dataclass(slots=True)
class Search:
    """Keys as they are found. `finish` reports a search that ended early, once the found keys are shown."""

    endless: Iterator[str]
    count: int
    ended: NoKeyFoundError | None = None

    def __iter__(self) -> Iterator[str]:
        found = 0
        try:
            for key in islice(self.endless, self.count):
                found += 1
                yield key
        except NoKeyFoundError as error:
            if not found:
                raise
            self.ended = error

    def finish(self) -> None:
        """Report a search that ended early.

        Raises:
            PartlyDoneError: fewer keys were found than asked for.
        """
        if self.ended is not None:
            raise PartlyDoneError(f"not all of {self.count:,} keys are found: {self.ended}")


@click.command(
    epilog="Example: rabbit-chx keys --bind q1=1 --bind q2=10 q1 --count 3 --pattern 'canary-{n}'",
    short_help="Keys that land on a queue.",
)
@click.argument("destination", type=TEXT, metavar="QUEUE")
@ring_options(modulo=True)
@click.option(
    "--count", type=click.IntRange(1, _MOST_KEYS), default=1, show_default=True, help="How many keys."
)
@click.option(
    "--pattern",
    type=TEXT,
    default="canary-{n}",
    show_default=True,
    metavar="TEXT",
    help="The form of the keys; {n} is a number.",
)
@click.option(
    "--start", type=click.IntRange(0), default=0, show_default=True, help="The first number to try."
)
@click.option(
    "--tries",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Give up after this many keys in a row that miss.",
)
@hashing_options
@output_option
def keys(
    *,
    destination: str,
    ring: KeyMap,
    count: int,
    pattern: str,
    start: int,
    tries: int,
    hashed: HashedKeys,
    output: str,
) -> Outcome:
    """Find keys that land on QUEUE, for tests and canaries.

    The ring is that of --bind, --ring or --exchange: give one of them. --exchange asks a live broker, or
    --definitions. It may be of type x-modulus-hash, or a super stream: for --bind say so by --exchange-type.

    The keys are routing keys, or with --hash-header or --hash-property values of that header or property.
    Write an exchange as a destination as exchange:NAME; it may be a slot.
    """
    given: KeyMap | ModuloMap = hashed.modulo or ring
    wanted = bound_destination(destination, ring) if hashed.modulo is None else parse_destination(destination)
    endless = keys_for(
        given, wanted, pattern, start=start, tries=tries, hashing=hashed.hashing, read=hashed.value
    )
    search = Search(endless, count)
    return Outcome(output, KeysReport(given, wanted, search), finish=search.finish)
