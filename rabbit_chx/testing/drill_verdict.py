"""What became of the messages of a drill, second by second. No I/O.

Messages are numbered from 0. The keys take turns: message n has the key n modulo their number. Each message counts in the
second in which it was published:

============  ================================================================================================================
published     messages that were published
confirmed     messages that the broker took, and did not return
unroutable    messages that no queue took
refused       messages that the broker refused, or did not answer for; the publisher knows of them
lost          messages that were confirmed, came to no consumer, and are in no queue at the end
doubled       messages that came again: more often than those of their key did before COMMAND began
out of order  messages that came for the first time after a newer one of their key
moved         messages that came to another queue than the one before of their key
============  ================================================================================================================
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

COUNTS = ("published", "confirmed", "unroutable", "refused", "lost", "doubled", "out_of_order", "moved")
_EXAMPLES = 5


class SentBatch(NamedTuple):
    """Messages that were published at once.

    Attributes:
        second: the second of the drill, from 0.
        numbers: the numbers of the messages.
        confirmed: how many of them the broker took.
        returned: how many of them no queue took.
    """

    second: int
    numbers: range
    confirmed: int
    returned: int


@dataclass(slots=True)
class DrillVerdict:
    """What became of the messages.

    Attributes:
        by_second: the counts of each second.
        movers: the keys that changed their queue at some time.
        examples: sentences about the first messages that were lost, doubled or out of order.
    """

    by_second: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    movers: set[object] = field(default_factory=set)
    examples: list[str] = field(default_factory=list)
    _first: dict[object, frozenset[str]] = field(default_factory=dict)
    _last: dict[object, frozenset[str]] = field(default_factory=dict)

    @property
    def total(self) -> Counter[str]:
        """The sums of all seconds."""
        return sum(self.by_second.values(), Counter())

    @property
    def keys(self) -> int:
        """How many keys came to a queue."""
        return len(self._first)

    @property
    def moved_at_end(self) -> int:
        """How many keys had another queue at the end than at the beginning."""
        return sum(self._first[key] != self._last[key] for key in self.movers)

    def came(self, second: int, key: object, queues: frozenset[str]) -> None:
        """Note where the next message of a key came to."""
        self._first.setdefault(key, queues)
        if self._last.get(key, queues) != queues:
            self.movers.add(key)
            self.by_second[second]["moved"] += 1
        self._last[key] = queues


def drill_verdict(
    batches: Sequence[SentBatch],
    arrivals: Iterable[tuple[int, str]],
    keys: Sequence[str],
    before: int,
    left: int = 0,
) -> DrillVerdict:
    """Return what became of the messages that were published to a copy.

    Where an exchange copies messages to several queues, each comes more than once. How often, the messages before COMMAND tell.

    Args:
        batches: what was published, in order.
        arrivals: the number and the queue of each message that was handled, in order.
        keys: the keys.
        before: how many messages were published before COMMAND began.
        left: how many messages are in queues at the end. The newest of those that did not come are taken for them.
    """
    verdict, examples = DrillVerdict(), defaultdict[str, list[str]](list)
    key_of = {number: keys[number % len(keys)] for batch in batches for number in batch.numbers}
    queues_of, late = _arrived(arrivals, key_of)
    copies: dict[str, int] = {}
    for number, queues in queues_of.items():
        if number < before:
            copies[key_of[number]] = max(copies.get(key_of[number], 1), len({*queues}))
    most = max(copies.values(), default=1)
    for second in range(max((batch.second for batch in batches), default=-1) + 1):
        verdict.by_second[second].clear()  # one in which nothing could be published is there, too
    waiting: list[int] = []
    for batch in reversed(batches):
        missing = max(0, batch.confirmed - sum(number in queues_of for number in batch.numbers))
        waiting.append(min(left, missing))
        left -= waiting[-1]
    for batch, still in zip(batches, reversed(waiting), strict=True):
        counts = verdict.by_second[batch.second]
        came = [number for number in batch.numbers if number in queues_of]
        lost = max(0, batch.confirmed - len(came)) - still
        refused = len(batch.numbers) - batch.confirmed - batch.returned
        counts.update(
            published=len(batch.numbers),
            confirmed=batch.confirmed,
            unroutable=batch.returned,
            refused=refused,
            lost=lost,
        )
        if lost == len(batch.numbers) - len(came):  # else the broker does not say which of them it took
            examples["lost"] += [
                f"message {number:,} of key {key_of[number]!r} came to no consumer"
                for number in batch.numbers
                if number not in queues_of
            ]
        for number in came:
            key, queues = key_of[number], queues_of[number]
            verdict.came(batch.second, key, frozenset(queues[: copies.get(key, most)]))
            if number in late:
                counts["out_of_order"] += 1
                examples["out of order"].append(f"message {number:,} of key {key!r} came {late[number]}")
            if len(queues) > copies.get(key, most):
                counts["doubled"] += 1
                examples["doubled"].append(f"message {number:,} came from {', '.join(queues)}")
    verdict.examples += [f"{kind}: {says}" for kind, all_ in examples.items() for says in all_[:_EXAMPLES]]
    return verdict


def _arrived(
    arrivals: Iterable[tuple[int, str]], key_of: Mapping[int, str]
) -> tuple[dict[int, list[str]], dict[int, str]]:
    """Return the queues from which each message came, and which message came behind a newer one, in words."""
    queues_of: dict[int, list[str]] = {}
    late: dict[int, str] = {}
    newest: dict[str, int] = {}
    for number, queue in arrivals:
        if number not in key_of:
            continue  # nobody published it here
        newer = newest.get(key_of[number], number)
        if number not in queues_of and newer > number:
            late[number] = f"from {queue} after {newer:,}"
        newest[key_of[number]] = max(newer, number)
        queues_of.setdefault(number, []).append(queue)
    return queues_of, late
