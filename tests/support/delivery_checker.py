"""Whether a run kept its promise: what was handed over and called confirmed, held against what the queues held at the end.

The words are those of Jepsen's total-queue checker. It is pure, and it shares no code with what it judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
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
    """

    attempted: Sequence[Attempt]
    acked: Collection[int] | int
    found: Mapping[str, Sequence[int]]
    unread: Collection[str] = ()
    queue_for: Callable[[str], str | Collection[str] | None] | None = None
    ordered: bool = False
    republished: int | None = None
    elsewhere: Collection[int] = ()


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
        lost: rows that the publisher called confirmed and that were not found. Where a queue was not read, only those
            that belong elsewhere.
        unexpected: copies of what was never handed over.
        out_of_order: first copies in a queue that came behind a later row of their key.
        wrong_queue: copies in another queue than that of their key.
        not_read: queues that were not drained to their end; such a run shows nothing.
        uncounted: duplicates beyond those that the publisher counted as sent again.
        examples: some ids of each kind of fault.
    """

    attempted: int
    acked: int
    ok: int
    recovered: int | None
    duplicated: int
    lost: int
    unexpected: int
    out_of_order: int
    wrong_queue: int
    not_read: tuple[str, ...]
    uncounted: int
    examples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the promise was kept, as far as this history can show it."""
        return not self.faults

    @property
    def faults(self) -> dict[str, int]:
        """The count of each kind of fault that there is."""
        counts = {
            "lost": self.lost,
            "unexpected": self.unexpected,
            "out of order": self.out_of_order,
            "in the wrong queue": self.wrong_queue,
            "not read": len(self.not_read),
            "uncounted": self.uncounted,
        }
        return {kind: count for kind, count in counts.items() if count}

    def __str__(self) -> str:
        counts = [f"{self.attempted:,} attempted", f"{self.acked:,} acked", f"{self.ok:,} ok"]
        counts += [f"{self.recovered:,} recovered"] if self.recovered else []
        counts += [f"{self.duplicated:,} duplicated"] if self.duplicated else []
        faults = [self._told(kind, count) for kind, count in self.faults.items()]
        return ", ".join(counts) + ": " + ("; ".join(faults) or "passed")

    def _told(self, kind: str, count: int) -> str:
        if kind == "not read":
            return f"not read: {', '.join(self.not_read)}"
        ids = self.examples.get(kind, ())
        shown = ", ".join(map(str, ids)) + (", ..." if count > len(ids) else "")
        return f"{count:,} {kind} ({shown})" if ids else f"{count:,} {kind}"


def check(history: History) -> Verdict:
    """Hold what was found against what was handed over and confirmed.

    Raises:
        ValueError: two rows have one id, which makes every answer meaningless.
    """
    key_of = {message.id: message.key for message in history.attempted}
    if len(key_of) != len(history.attempted):
        raise ValueError("two rows of the run have the same id")
    copies = Counter(id_ for ids in history.found.values() for id_ in ids)
    ok = sum(id_ in key_of for id_ in copies)
    duplicates = [id_ for id_, count in copies.items() if id_ in key_of for _ in range(count - 1)]
    unexpected = [id_ for id_, count in copies.items() if id_ not in key_of for _ in range(count)]
    misplaced = list(_misplaced(history, key_of))
    overtaken = list(_overtaken(history, key_of)) if history.ordered else []
    lost, lost_ids = _lost(history, key_of, copies)
    uncounted = 0 if history.republished is None else max(0, len(duplicates) - history.republished)
    ids_of: dict[str, Iterable[int]] = {
        "lost": lost_ids,
        "unexpected": unexpected,
        "out of order": overtaken,
        "in the wrong queue": misplaced,
        "uncounted": duplicates if uncounted else (),
    }
    return Verdict(
        attempted=len(key_of),
        acked=_count(history.acked),
        ok=ok,
        recovered=_recovered(history.acked, key_of, copies),
        duplicated=len(duplicates),
        lost=lost,
        unexpected=len(unexpected),
        out_of_order=len(overtaken),
        wrong_queue=len(misplaced),
        not_read=tuple(sorted(history.unread)),
        uncounted=uncounted,
        examples={kind: some for kind, ids in ids_of.items() if (some := tuple(islice(ids, _EXAMPLES)))},
    )


def _count(acked: Collection[int] | int) -> int:
    return acked if isinstance(acked, int) else len(set(acked))


def _recovered(
    acked: Collection[int] | int, key_of: Mapping[int, str], copies: Mapping[int, int]
) -> int | None:
    if isinstance(acked, int):
        return None
    confirmed = set(acked)
    return sum(id_ in key_of and id_ not in confirmed for id_ in copies)


def _lost(
    history: History, key_of: Mapping[int, str], copies: Mapping[int, int]
) -> tuple[int, Sequence[int]]:
    """Return how many rows are lost, and which, where the publisher names those that it confirmed."""
    gone = set(history.elsewhere)
    if isinstance(history.acked, int):
        if history.unread:
            return 0, ()
        present = sum(id_ in copies or id_ in gone for id_ in key_of)
        return max(0, history.acked - present), ()
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
    for ids in history.found.values():
        latest: dict[str, int] = {}
        for id_ in dict.fromkeys(ids):
            if id_ not in key_of:
                continue
            key, number = key_of[id_], rank[id_]
            if number < latest.get(key, -1):
                yield id_
            else:
                latest[key] = number
