"""``rabbit-chx keys``: keys that reach a queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rabbit_chx.analysis import keys_for
from rabbit_chx.analysis.key_routing import NoKeyFoundError
from rabbit_chx.cli.command import TEXT, Outcome, PartlyDoneError, argument, command, option, options
from rabbit_chx.cli.inputs import bound_destination, hashed_value
from rabbit_chx.cli.report import source_as_json
from rabbit_chx.cli.ring_options import HashingOptions, RingOptions, code_of
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.options import COUNT, WHOLE, whole
from rabbit_chx.rendering import Data, Document, Lines

_MOST_KEYS = 1_000_000_000


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
    given = hashed.decide(ring.read())
    source, hashing = given.source, hashed.of(given)
    wanted = bound_destination(destination, source)

    def value(key: str) -> Any:
        return hashed_value(hashing, key)

    try:
        endless = keys_for(source, wanted, pattern, start=start, tries=tries, hashing=hashing, read=value)
    except NoKeyFoundError as error:
        raise RabbitChxError(str(error)) from None
    search = Search(endless, count)
    fields = {**source_as_json(source), "destination": wanted, "determined": given.is_determined}
    report = Document("keys", [Data(fields), Lines(search, key="keys")])  # each is shown when it is found
    return Outcome(report, code_of(given), finish=search.finish)
