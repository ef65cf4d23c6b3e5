"""Whether a run kept its promise: what was handed over and called confirmed, held against what the queues held at the end.

The words are those of Jepsen's total-queue checker. It is pure, and it shares no code with what it judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_EXAMPLES = 5  # of each kind of fault


class Attempt(NamedTuple):
    """A row that the program handed over.

    Attributes:
        id: what tells it from all others of the run.
        key: its routing key.
    """

    id: int
    key: str


@dataclass(frozen=True)
class History:
    """What happened in a run.

    Attributes:
        attempted: the rows, in the order in which the program handed them over.
        acked: the ids that the publisher called confirmed, or only their number, as a PublishReport says it.
        found: the ids of each queue, in the order in which they were read.
        unread: queues that could not be drained to their end.
        queue_for: tells the queue of a key, None for no queue; without it the place of a row is not checked. Where the ring
            changed in the run, it tells all queues that were the key's.
        ordered: whether the first copies of a key have to be in the order of `attempted`.
        republished: the copies that the publisher says it sent again; None where it does not say.
        elsewhere: ids that the fault itself took away, such as those of a queue that was deleted.
        rebound: whether the fault moved keys to other queues and back. Then the first copy of a row may be in another queue than a
            repeated one, and only rows that are in one queue have to be in order.
    """

    attempted: Sequence[Attempt]
    acked: Collection[int] | int
    found: Mapping[str, Sequence[int]]
    unread: Collection[str] = ()
    queue_for: Callable[[str], str | Collection[str] | None] | None = None
    ordered: bool = False
    republished: int | None = None
    elsewhere: Collection[int] = ()
    rebound: bool = False


@dataclass(frozen=True)
class Verdict:
    """What a history shows.

    Attributes:
        attempted: rows that were handed over.
        acked: rows that the publisher called confirmed.
        ok: rows that were handed over and found.
        recovered: rows that were found, though the publisher did not call them confirmed; None where `acked` is a number
            and does not tell.
        duplicated: copies beyond the first of each row. They are a fault only where they are uncounted.
        faults: the count of each kind of fault that there is. Lost are rows that the publisher called confirmed and that were not found;
            where a queue was not read, only those of the other queues. Unexpected are copies of what was never handed over, out of order
            first copies in a queue behind a later row of their key, in the wrong queue copies in another queue than that of their key,
            uncounted duplicates beyond those that the publisher counted as sent again. A run with queues that were not read shows nothing.
        examples: some ids of each kind of fault, and the queues that were not read.
    """

    attempted: int
    acked: int
    ok: int
    recovered: int | None
    duplicated: int
    faults: Mapping[str, int]
    examples: Mapping[str, Sequence[int | str]]

    @property
    def passed(self) -> bool:
        """Whether the promise was kept, as far as this history can show it."""
        return not self.faults

    def __str__(self) -> str:
        counts = [f"{self.attempted:,} attempted", f"{self.acked:,} acked", f"{self.ok:,} ok"]
        counts += [f"{self.recovered:,} recovered"] if self.recovered else []
        counts += [f"{self.duplicated:,} duplicated"] if self.duplicated else []
        faults = [self._told(kind, count) for kind, count in self.faults.items()]
        return ", ".join(counts) + ": " + ("; ".join(faults) or "passed")

    def _told(self, kind: str, count: int) -> str:
        shown = ", ".join(map(str, self.examples[kind]))
        if kind == "not read":
            return f"not read: {shown}"
        more = ", ..." if count > len(self.examples[kind]) else ""
        return f"{count:,} {kind} ({shown}{more})" if shown else f"{count:,} {kind}"


#: Checks a run, records what it shows, and returns it: the fixtures `record` and `kept` of the faults.
Judge = Callable[..., Verdict]


def check(history: History) -> Verdict:
    """Hold what was found against what was handed over and confirmed.

    Raises:
        ValueError: two rows have one id, which makes every answer meaningless.
    """
    key_of = {message.id: message.key for message in history.attempted}
    if len(key_of) != len(history.attempted):
        raise ValueError("two rows of the run have the same id")
    copies = Counter(id_ for ids in history.found.values() for id_ in ids)
    duplicates = [id_ for id_, count in copies.items() if id_ in key_of for _ in range(count - 1)]
    unexpected = [id_ for id_, count in copies.items() if id_ not in key_of for _ in range(count)]
    acked = history.acked if isinstance(history.acked, int) else set(history.acked)
    lost, lost_ids = _lost(history, key_of, copies)
    uncounted = 0 if history.republished is None else max(0, len(duplicates) - history.republished)
    examples: dict[str, list[int] | list[str]] = {
        "lost": lost_ids,
        "unexpected": unexpected,
        "out of order": list(_overtaken(history, key_of)) if history.ordered else [],
        "in the wrong queue": list(_misplaced(history, key_of)),
        "not read": sorted(history.unread),
        "uncounted": duplicates if uncounted else [],
    }
    counts = {kind: len(found) for kind, found in examples.items()} | {"lost": lost, "uncounted": uncounted}
    return Verdict(
        attempted=len(key_of),
        acked=acked if isinstance(acked, int) else len(acked),
        ok=len(key_of.keys() & copies.keys()),
        recovered=None if isinstance(acked, int) else len((key_of.keys() & copies.keys()) - acked),
        duplicated=len(duplicates),
        faults={kind: count for kind, count in counts.items() if count},
        examples={
            kind: found if kind == "not read" else found[:_EXAMPLES] for kind, found in examples.items()
        },
    )


def _lost(history: History, key_of: Mapping[int, str], copies: Mapping[int, int]) -> tuple[int, list[int]]:
    """Return how many rows are lost, and which, where the publisher names those that it confirmed."""
    gone = set(history.elsewhere)
    if isinstance(history.acked, int):
        if history.unread:
            return 0, []
        present = sum(id_ in copies or id_ in gone for id_ in key_of)
        return max(0, history.acked - present), []
    missing = [id_ for id_ in dict.fromkeys(history.acked) if id_ not in copies and id_ not in gone]
    if history.unread:
        missing = [id_ for id_ in missing if _is_read(history, key_of.get(id_))]
    return len(missing), missing


def _is_read(history: History, key: str | None) -> bool:
    """Whether a row of this key would have been found."""
    return key is None or (
        history.queue_for is not None and not _queues(history.queue_for(key)) & set(history.unread)
    )


def _misplaced(history: History, key_of: Mapping[int, str]) -> Iterator[int]:
    if history.queue_for is None:
        return
    places = {key: _queues(history.queue_for(key)) for key in set(key_of.values())}
    for queue, ids in history.found.items():
        yield from (id_ for id_ in ids if id_ in key_of and queue not in places[key_of[id_]])


def _queues(told: str | Collection[str] | None) -> frozenset[str]:
    return frozenset() if told is None else frozenset([told] if isinstance(told, str) else told)


def _overtaken(history: History, key_of: Mapping[int, str]) -> Iterator[int]:
    """Yield the first copies of each queue that stand behind a later row of their key."""
    rank = {message.id: number for number, message in enumerate(history.attempted)}
    queues = Counter(id_ for ids in history.found.values() for id_ in set(ids))
    for ids in history.found.values():
        latest: dict[str, int] = {}
        for id_ in dict.fromkeys(ids):
            if id_ not in key_of:
                continue
            key, number = key_of[id_], rank[id_]
            if number >= latest.get(key, -1):
                latest[key] = number
            elif queues[id_] == 1 or not history.rebound:
                yield id_
