"""The mark of a vhost: a queue whose messages show whether the broker has started again since a record was written. Values, without I/O.

The mark is a durable classic queue with one persistent and one transient message, and two random texts as arguments: its identity, and its
start, which is another one each time that the mark is made again. No copy of a record or of definitions has its messages, and no clock counts
(tested on 3.10.8, 4.0.5 and 4.3.6 with kill, stop, ``rabbitmqctl stop_app`` and imports):

========  ==================================================================
messages  what they show
========  ==================================================================
2         this is the broker on which the mark was made, since the same start
1         its node has started again: the transient message is gone
0         it was imported, copied or purged
========  ==================================================================

Of two messages, one has to be transient: other programs can publish to the queue, or move its messages and make them persistent. A stamp is
what a record has of the mark when it is written. `why_foreign` and `has_restarted` compare both.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.topology.objects.own_names import MARK

_IDENTITY = "rabbit-chx-identity"
_START = "rabbit-chx-start"
#: The persistent and the transient message.
BOTH_MESSAGES = 2


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where and since which start of the broker a record holds.

    Attributes:
        cluster: the name of the cluster.
        vhost: the vhost.
        identity: the identity of the mark; None if there was no mark that proves anything.
        start: the start of the mark; None if nothing shows a later restart: the broker had started again, or a queue of the ring is on a node
            whose restarts the mark does not show.
        node: the node of the mark; None if it is not known.
        nodes: the nodes of the cluster; empty if the user could not list them.
    """

    cluster: str | None = None
    vhost: str | None = None
    identity: str | None = None
    start: str | None = None
    node: str | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a vhost now, and the nodes whose restarts it has to show.

    Attributes:
        stamp: the cluster, the vhost, and the arguments of the queue; without identity if the queue does not exist.
        messages: the number of its messages, by a passive declaration; None if the broker does not count them.
        persistent: how many of them are persistent, by the last statistics of the broker; None if it has none.
        fault: why the broker does not count them; UnreachableError if no node of the queue is up.
        policies: the policies that take its messages or the queue away, in words.
        nodes: the nodes that have the mark and each queue of the vhost; a queue of which this is not known is missing.
        cluster: the nodes of the cluster; empty if the user may not list them.
        absent: the queues that are down, and of which the broker lists no bindings until their node runs.
    """

    stamp: Stamp = Stamp()
    messages: int | None = None
    fault: RabbitChxError | None = None
    policies: str = ""
    nodes: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    persistent: int | None = None
    cluster: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()

    @property
    def holds(self) -> bool:
        """True if both messages are there, and no others."""
        has_both = self.messages == BOTH_MESSAGES and (self.persistent or 0) <= 1
        return self.stamp.identity is not None and has_both

    @property
    def stamp_now(self) -> Stamp:
        """The stamp of a record that is made now. Without the transient message it has no start, without both no identity."""
        if self.holds:
            return self.stamp
        is_known = self.stamp.identity is not None and self.messages == 1
        return replace(self.stamp, start=None, identity=self.stamp.identity if is_known else None)

    def strangers(self, queues: Iterable[object]) -> list[str]:
        """Return those of some queues that are, or may be, on other nodes than the mark, whose restarts it does not show."""
        home = self.nodes.get(MARK, frozenset())
        named = (queue for queue in queues if isinstance(queue, str))
        return sorted(queue for queue in named if len(home) != 1 or self.nodes.get(queue) != home)

    def renewed(self) -> Stamp:
        """Return the stamp of the mark when it is made again: with a new start, and a new identity unless it is the same broker as before."""
        identity = self.stamp_now.identity or secrets.token_hex(8)
        return replace(self.stamp, identity=identity, start=secrets.token_hex(8))


def mark_arguments(stamp: Stamp) -> dict[str, Any]:
    """Return the arguments of the queue. Its type is explicit, because the vhost may have another default."""
    return {"x-queue-type": "classic", _IDENTITY: stamp.identity, _START: stamp.start}


def stamp_in(arguments: Mapping[str, Any], cluster: str | None, vhost: str, node: str | None = None) -> Stamp:
    """Return the stamp in the arguments of the queue, which is on a node."""
    found = (arguments.get(name) for name in (_IDENTITY, _START))
    identity, start = (text if isinstance(text, str) else None for text in found)
    return Stamp(cluster, vhost, identity, start, node)


def has_restarted(stamp: Stamp, mark: Mark) -> bool:
    """Return True if the node of the mark has started again since a record of this broker was written, or may have."""
    return not mark.holds or stamp.identity is None or stamp.start != mark.stamp.start


def why_foreign(stamp: Stamp, mark: Mark) -> str:
    """Return why a record says nothing about this broker; empty if it does.

    One without an identity, of a file, is compared by cluster and vhost alone. The identity is that of one broker, and nodes of a cluster
    without a name report several.
    """
    return next(_faults(stamp, mark), "")


def _faults(stamp: Stamp, mark: Mark) -> Iterator[str]:
    now = mark.stamp
    for what in ("cluster", "vhost") if stamp.identity is None else ("vhost",):
        written = getattr(stamp, what)
        here = getattr(now, what)
        if written is None and here is not None:
            yield f"it does not name its {what}: write it again with `show -o json`"
        elif written != here:
            yield f"it is of the {what} {written}, and this is {here}"
    if stamp.identity is None:
        return
    if now.identity is None:
        yield f"the queue {MARK} does not exist{_because(mark)}: it was deleted, or the vhost was made again"
    if now.identity != stamp.identity:
        yield f"the queue {MARK} is not the one of the record: the vhost was made again, or the record was copied"
    if None not in (stamp.node, now.node) and stamp.node != now.node:
        yield f"the queue {MARK} is on node {now.node}, and was on {stamp.node}: it was moved, or is a copy"
    yield from _message_faults(mark)


def _message_faults(mark: Mark) -> Iterator[str]:
    """Yield why the messages of a mark show nothing."""
    if mark.messages is None:
        yield f"the messages of the queue {MARK} cannot be counted: {mark.fault}"
    elif mark.messages == 0:
        yield f"the queue {MARK} is empty{_because(mark)}: it was imported, copied or purged"
    elif mark.messages > BOTH_MESSAGES:
        yield f"the queue {MARK} has {mark.messages} messages, and only {BOTH_MESSAGES} are its own: other programs publish to it"
    elif mark.messages == BOTH_MESSAGES and not mark.holds:
        yield f"the queue {MARK} has {mark.persistent} persistent messages, and one is its own: other programs publish to it, or moved them"


def _because(mark: Mark) -> str:
    return f", because of {mark.policies}" if mark.policies else ""
