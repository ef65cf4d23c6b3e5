"""The options of a file of observed keys and queues, and its contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from typing import TYPE_CHECKING, ClassVar

from rabbit_chx.cli.command import OWN, option, say
from rabbit_chx.cli.inputs import file_name, hashed_value
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing.observations import Observation
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.words import plural

if TYPE_CHECKING:
    import pyarrow as pa

    from rabbit_chx.analysis.key_routing import Hashing
    from rabbit_chx.topology import LiveTopology
    from rabbit_chx.topology.objects.objects import ExchangeDefinition

#: The contents of the columns, and their names if no others are given.
_COLUMNS = ("key", "queue", "time", "exchange")
_NEEDED = ("key", "queue")
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class ObservedOptions:
    """The options of a file of observed keys and queues."""

    section: ClassVar = OWN
    observed: str | None = option(
        metavar="FILE",
        help="Keys and the queues that received them, as .csv or .parquet, such as consumers write. A key is the hashed value. "
        "Only messages that were published to the exchange after the last change of its ring may be in the file. Its columns are key, queue, "
        "time and exchange; FILE#key=NAME,queue=NAME names others.",
    )

    def __post_init__(self) -> None:
        self._names()

    @property
    def path(self) -> str:
        """The file, without the names of its columns."""
        return (self.observed or "").partition("#")[0]

    def _names(self) -> dict[str, str]:
        """Return the names that are given, by what the column contains."""
        names: dict[str, str] = {}
        path, _, columns = (self.observed or "").partition("#")
        for given in filter(None, columns.split(",")):
            what, equals, name = given.partition("=")
            if not equals or what not in _COLUMNS or (not name and what in _NEEDED):
                raise InputError(
                    f"{given!r:.60} names no column: write {path}#key=NAME,queue=NAME; time=NAME and exchange=NAME are optional"
                )
            names[what] = name
        return names

    def read(self, exchange: str, hashing: Hashing, since: float | None = None) -> list[Observation]:
        """Read the file: each distinct pair of a key and its queue, with the first time, and the number of rows.

        Messages of other exchanges are left out, if the file has a column with the exchange.

        Args:
            exchange: the exchange.
            hashing: what it hashes.
            since: the time before which pairs are left out, in seconds since 1970; those without a time are not.
        """
        from rabbit_chx.cli.samples import check_columns, table_rows

        path = self.path
        file = file_name(path)
        chosen: dict[str, str] = {}

        def choose(names: Sequence[str]) -> list[str]:
            chosen.update(self._chosen(names))
            try:
                check_columns(file, chosen.values(), names)
            except InputError as error:
                raise InputError(f"{error}; write {path}#key=NAME,queue=NAME") from None
            return list(chosen.values())

        found: dict[tuple[str, str], Observation] = {}
        counts: Counter[tuple[str, str]] = Counter()
        others: Counter[str] = Counter()
        early, first = 0, 1
        for batch in table_rows(path, "observed keys", choose):
            for row, (key, queue, time, of) in enumerate(_values(file, chosen, batch, first), first):
                if not queue:
                    raise InputError(f"row {row} of {file} has no queue: leave out keys that reached none")
                if of not in (None, exchange):
                    others[of] += 1
                elif since is not None and time and _is_before(time, since):
                    early += 1
                else:
                    counts[key, queue] += 1
                    if (key, queue) not in found:
                        found[key, queue] = Observation(hashed_value(hashing, key), queue, time or None)
            first += batch.num_rows
        _say_left_out(file, exchange, others, early)
        _check_left(file, exchange, len(found), early)
        return [pair._replace(messages=counts[at]) for at, pair in found.items()]

    def _chosen(self, names: Sequence[str]) -> dict[str, str]:
        """Return the column of each content, of all columns of the file."""
        given = self._names()
        optional = [what for what in _COLUMNS if what not in _NEEDED and what in names]
        wanted = {what: given.get(what, what) for what in dict.fromkeys((*_NEEDED, *optional, *given))}
        chosen = {what: name for what, name in wanted.items() if name}
        for name, count in Counter(chosen.values()).items():
            if count > 1:
                whats = " and ".join(what for what in chosen if chosen[what] == name)
                raise InputError(f"the column {name!r:.60} belongs to {whats}: name another for one of them")
        return chosen


def _say_left_out(file: str, exchange: str, others: Counter[str], early: int) -> None:
    if others:
        names = ", ".join(repr(name) for name, _ in others.most_common(_MOST_NAMED))
        say(
            f"{file}: {plural(others.total(), 'message')} of other exchanges left out ({names}); if {exchange!r} gets messages from them, "
            f"pass {file}#exchange="
        )
    if early:
        say(
            f"{file}: {plural(early, 'message')} from before the last start of the broker left out: a restart on Mnesia changes the order"
        )


def _check_left(file: str, exchange: str, found: int, early: int) -> None:
    """Raise an error if no pair of the exchange is left."""
    if not found and early:
        raise NotDeterminedError(
            f"all {plural(early, 'message')} of {exchange!r} in {file} are from before the last start of the broker, which may have changed the "
            "order of the ring: pass later ones"
        )
    if not found:
        raise InputError(f"{file} has no key of the exchange {exchange!r}: pass at least one")


def read_observed(options: ObservedOptions, live: LiveTopology, name: str) -> list[Observation]:
    """Read the pairs of a live exchange. On Mnesia those from before the last start of the broker are left out."""
    exchange = live.exchange(name)
    is_kept = exchange is None or (live.release or NEWEST_COMPARED).follows(RESTART_KEEPS)
    return options.read(name, _hashing(exchange), None if is_kept else live.facts.last_start)


def with_observed_ring(live: LiveTopology, name: str, pairs: Sequence[Observation]) -> LiveTopology:
    """Return a live topology with the ring of an exchange that observations determine."""
    from rabbit_chx.analysis.observations import observed_ring

    exchange = live.exchange(name)
    bindings = [(member.destination, member.key) for member in (exchange.ring if exchange else None) or ()]
    ring = observed_ring(bindings, pairs, live.release or NEWEST_COMPARED, _hashing(exchange))
    return live.with_rings({name: ring})


def _hashing(exchange: ExchangeDefinition | None) -> Hashing:
    from rabbit_chx.analysis.key_routing import Hashing

    arguments = {} if exchange is None else exchange.arguments
    return Hashing(arguments.get("hash-header"), arguments.get("hash-property"))


def _is_before(time: str, since: float) -> bool:
    """Return True if a time in ISO 8601, UTC if it has no offset, is before another one; False if it is no such time."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return False
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() < since


def _values(
    file: str, chosen: Mapping[str, str], batch: pa.RecordBatch, first: int
) -> Iterator[tuple[str, str, str | None, str | None]]:
    """Yield key, queue, time and exchange of each row; None for a column that the file does not have."""
    from pyarrow import string

    from rabbit_chx.cli.samples import check_text_column, list_column

    columns: list[Iterable[str | None]] = []
    for what in _COLUMNS:
        name = chosen.get(what)
        if name is None:
            columns.append(repeat(None, batch.num_rows))
        elif what in _NEEDED:
            check_text_column(file, batch, name, f"a {what} is text or an integer")
            columns.append(list_column(file, batch, name, first, string()))
        else:
            columns.append(_texts(file, batch, name))
    yield from zip(*columns, strict=True)


def _texts(file: str, batch: pa.RecordBatch, name: str) -> list[str | None]:
    """Return the values of an optional column as text."""
    from pyarrow import ArrowException, string

    values = batch.column(name)
    try:
        return list(values.cast(string()).to_pylist())
    except ArrowException:
        raise InputError(
            f"the column {name!r} of {file} has the type {values.type}, which is no text: pass it as text, or leave it out, as with {file}#time="
        ) from None
