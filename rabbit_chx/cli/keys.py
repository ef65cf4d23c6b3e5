"""``rabbit-chx keys``: keys that reach a queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from rabbit_chx.analysis import keys_for
from rabbit_chx.analysis.key_routing import NoKeyFoundError
from rabbit_chx.analysis.wording import Document
from rabbit_chx.cli.command import TEXT, Outcome, PartlyDoneError, argument, command, option, options
from rabbit_chx.cli.inputs import bound_destination, hashed_value
from rabbit_chx.cli.report import source_as_json
from rabbit_chx.cli.ring_options import HashingOptions, RingOptions, code_of
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.options import COUNT, WHOLE, whole
from rabbit_chx.rendering import Block, Lines
from rabbit_chx.result_fields import SPREAD, shown
from rabbit_chx.routing import Destination
from rabbit_chx.routing.key_map import KeyMap

_MOST_KEYS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class KeysReport(Document):
    """Keys that reach a destination; each is yielded as soon as it is found."""

    format_name: ClassVar = "keys"
    source: KeyMap = field(metadata=shown(json=SPREAD, as_json=source_as_json))
    destination: Destination
    is_determined: bool = field(metadata=shown(json="determined"))
    keys: Iterable[str] = field(metadata=shown(as_json=list))

    def blocks(self) -> Iterator[Block]:
        """Return the bare keys, for a shell loop."""
        yield Lines(self.keys)


@dataclass(slots=True)
class Search:
    """Keys in the order of the search. `finish` reports a search that ended early, after the found keys are printed."""

    endless: Iterator[str]
    count: int
    ended: NoKeyFoundError | None = None

    def __iter__(self) -> Iterator[str]:
        count = 0
        try:
            for key in islice(self.endless, self.count):
                count += 1
                yield key
        except NoKeyFoundError as error:
            if not count:
                raise RabbitChxError(str(error)) from None  # the search failed: not a usage error
            self.ended = error

    def finish(self) -> None:
        """Report a search that ended early."""
        if self.ended is not None:
            raise PartlyDoneError(f"not all of {self.count:,} keys were found: {self.ended}")


@command(example="rabbit-chx keys --bind q1=1 --bind q2=10 q1 --count 3 --pattern 'canary-{n}'")
def keys(
    *,
    destination: str = argument(type=TEXT, metavar="QUEUE"),
    ring: RingOptions = options(RingOptions),
    count: int = option(
        type=whole(1, _MOST_KEYS),
        default=1,
        show_default=True,
        metavar="N",
        help="The number of keys to find.",
    ),
    pattern: str = option(
        type=TEXT,
        default="canary-{n}",
        show_default=True,
        metavar="TEXT",
        help="The pattern of the keys; {n} is a number.",
    ),
    start: int = option(
        is_rare=True,
        type=WHOLE,
        default=0,
        show_default=True,
        metavar="N",
        help="The first number to try.",
    ),
    tries: int = option(
        is_rare=True,
        type=COUNT,
        metavar="N",
        default=1_000_000,
        show_default=True,
        help="Stop after this many consecutive keys that reach other queues.",
    ),
    hashed: HashingOptions = options(HashingOptions),
) -> Outcome:
    """Find keys that reach QUEUE, for tests and canaries. Each key is written as soon as it is found.

    Specify the ring with --bind, --ring, --topology or --exchange.

    The keys are routing keys, or with --hash-header or --hash-property values of that header or property.
    QUEUE may also be a slot or another exchange: exchange:NAME.

    The exit code is 3 if fewer keys than requested are found, or the ring or the hashed value is assumed, 70 if none is found.
    """
    given = hashed.settle(ring.read())
    source, hashing = given.source, hashed.of(given)
    wanted = bound_destination(destination, source)

    def value(key: str) -> Any:
        return hashed_value(hashing, key)

    try:
        endless = keys_for(source, wanted, pattern, start=start, tries=tries, hashing=hashing, read=value)
    except NoKeyFoundError as error:
        raise RabbitChxError(str(error)) from None
    search = Search(endless, count)
    return Outcome(
        KeysReport(source, wanted, given.is_determined, search), code_of(given), finish=search.finish
    )
