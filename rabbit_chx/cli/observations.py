"""The options of a file of observed keys and queues, and its contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, ClassVar

from rabbit_chx.cli.command import OWN, option, say
from rabbit_chx.cli.inputs import file_name, hashed_value
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.options import number
from rabbit_chx.routing.observations import Observation
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.words import plural

if TYPE_CHECKING:
    from rabbit_chx.analysis.key_routing import Hashing
    from rabbit_chx.topology import LiveTopology
    from rabbit_chx.topology.objects.objects import ExchangeDefinition

#: The contents of the columns, and their names if no others are given.
_COLUMNS = ("key", "queue", "time", "exchange", "count")
_NEEDED = ("key", "queue")
_MOST_NAMED = 5
_MOST_WAITED_S = 366 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ObservedOptions:
    """The options of a file of observed keys and queues."""

    section: ClassVar = OWN
    observed: str | None = option(
        metavar="FILE",
        help="Keys and the queues that received them, as .csv or .parquet, such as consumers write. A key is the hashed value. "
        "Only messages that were published to the exchange after the last change of its ring may be in the file. Its columns are key, queue, "
        "time, exchange and count (of messages); FILE#key=NAME,queue=NAME names others.",
    )
    waited: float | None = option(
        is_rare=True,
        type=number(_MOST_WAITED_S),
        metavar="SECONDS",
        help="With --observed on Mnesia, whose restart changes the order: how long a message waited in its queue before its `time`, at most; "
        "0 if that is when it was published.  [default: 0 if the queues are empty]",
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

    def read(
        self, exchange: str, hashing: Hashing, why_left_out: Callable[[str | None], str] = lambda _time: ""
    ) -> list[Observation]:
        """Read the file: each distinct pair of a key and its queue, with the first time, and the number of messages.

        Messages of other exchanges are left out, if the file has a column with the exchange.

        Args:
            exchange: the exchange.
            hashing: what it hashes.
            why_left_out: returns why a pair of a time is left out; empty if it is not.
        """
        from rabbit_chx.cli.samples import table_rows
        from rabbit_chx.table_files import check_columns

        path = self.path
        file = file_name(path)

        def choose(names: Sequence[str]) -> dict[str, str]:
            chosen = self._chosen(names)
            try:
                check_columns(file, chosen.values(), names)
            except InputError as error:
                raise InputError(f"{error}; write {path}#key=NAME,queue=NAME") from None
            return chosen

        found: dict[tuple[str, str], Observation] = {}
        counts: Counter[tuple[str, str]] = Counter()
        others: Counter[str] = Counter()
        left_out: Counter[str] = Counter()
        for rows in table_rows(path, "observed keys", choose):
            columns = (rows.values.get(content) or repeat(None) for content in _COLUMNS)
            for row, (key, queue, time, of, count) in enumerate(zip(*columns, strict=False), rows.first):
                if not queue:
                    raise InputError(f"row {row} of {file} has no queue: leave out keys that reached none")
                if of not in (None, exchange):
                    others[of] += 1
                elif why := why_left_out(time):
                    left_out[why] += 1
                else:
                    counts[key, queue] += 1 if count is None else count
                    if (key, queue) not in found:
                        found[key, queue] = Observation(hashed_value(hashing, key), queue, time)
        _say_left_out(file, exchange, others, left_out)
        _check_left(file, exchange, len(found), left_out)
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


def _why_left_out(since: float | None, time: str | None) -> str:
    """Return why a pair says nothing about a ring on Mnesia; empty if its time, in ISO 8601, shows that it does."""
    try:
        moment = datetime.fromisoformat(time or "")
    except ValueError:
        return "without a time"
    if moment.tzinfo is None:
        return "of a time without an offset"
    return "from before the last start of the broker" if moment.timestamp() < (since or 0) else ""


def _say_left_out(file: str, exchange: str, others: Counter[str], left_out: Counter[str]) -> None:
    if others:
        names = ", ".join(repr(name) for name, _ in others.most_common(_MOST_NAMED))
        say(
            f"{file}: {plural(others.total(), 'message')} of other exchanges left out ({names}); if {exchange!r} gets messages from them, "
            f"pass {file}#exchange="
        )
    for why, count in left_out.items():
        say(f"{file}: {plural(count, 'message')} {why} left out: a restart on Mnesia changes the order")


def _check_left(file: str, exchange: str, found: int, left_out: Counter[str]) -> None:
    """Raise an error if no pair of the exchange is left."""
    if not found and left_out:
        raise NotDeterminedError(
            f"all {plural(left_out.total(), 'message')} of {exchange!r} in {file} are {' or '.join(left_out)}, and a restart on Mnesia "
            "changes the order of the ring: pass later ones, each with its time, such as 2026-11-26T03:02:00Z"
        )
    if not found:
        raise InputError(f"{file} has no key of the exchange {exchange!r}: pass at least one")


def read_observed(options: ObservedOptions, live: LiveTopology, name: str) -> list[Observation]:
    """Read the pairs of a live exchange. On Mnesia each needs a time after the last start of the broker, or if the messages waited in their
    queues, so much later.

    Raises:
        NotDeterminedError: no pair is left, or it is not known how long the messages waited.
    """
    exchange = live.exchange(name)
    hashing = _hashing(exchange)
    if exchange is None or (live.release or NEWEST_COMPARED).follows(RESTART_KEEPS):
        return options.read(name, hashing)
    start = live.facts.last_start
    if start is not None and options.waited is None:
        queues = [member.destination for member in exchange.ring or ()]
        waiting = {queue: count for queue, count in live.facts.messages.items() if queue in queues and count}
        if waiting:
            queue, count = next(iter(waiting.items()))
            raise NotDeterminedError(
                f"{plural(count, 'message')} {'waits' if count == 1 else 'wait'} in {queue}, so the observed ones may have waited since before the "
                "last start of the broker, which changed the order: pass --waited SECONDS, their longest wait"
            )
    since = None if start is None else start + (options.waited or 0)
    return options.read(name, hashing, partial(_why_left_out, since))


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
