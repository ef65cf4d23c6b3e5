"""Ordered consumption of queues, and detection of repeated messages.

A `ConsumerGroup` is one member of a group of processes. Its queues are quorum queues with a single active consumer:

- **Member.** Each member consumes all queues. The broker elects one consumer of each queue as the active one and delivers to it alone. The
  first delivery informs a member that it owns the queue. The member claims the queue in the journal, calls the hook `on_gained`, and
  handles messages in queue order. It acknowledges a message when its handler returns.
- **Journal.** A stream that all groups of queues of a vhost share. Members write into it that they are ready, alive, or leaving, and which queues
  they claim and release. All readers derive the same members from it, and the same assigned owner of each queue. A member that holds a
  queue assigned to another member releases it once that member has proved to be alive.
- **Generations.** The stream offset of a claim is the generation of the ownership. It grows whenever a queue changes hands, so that a store
  can reject writes of a previous owner. A claim counts only if it is read over the connection that consumes: a member whose consumers the
  broker has closed never acts on one.
- **Order.** A member finishes the messages in progress before it releases a queue, and the broker requeues the others in their place before
  it elects the next owner. Messages of a key are never handled concurrently, except by a member that has lost its connection without
  noticing it, which its generation reveals. Delivery is at least once.

The modules, in the order in which to read them: `journal` derives the shared state. `ownership` decides for one queue, without I/O.
`runner` executes these decisions. `session` is one connection of a member, `group` spans several connections, and `channels` adapts
aio-pika. `queue_checks` has the checks of queues, `settings` the options of groups, `message` what its handler receives, `waits` the waits
with a limit, and `status` the view of the management API.

A `StreamGroup` is a member of a group of streams, without a journal: the broker alone assigns them. It shares `ownership`, `runner`, `session`
and `group` with `ConsumerGroup`. `stream_channels` reads a stream, `stream_connection` adapts the stream protocol, and `stream_status` has
the lag. `undeliverable` finds a queue that the broker cannot deliver.

`ShardConsumer` and `PseudoQueueConsumer` consume exchanges of the plugin rabbitmq_sharding, independently of groups. `Deduplicator`
recognizes repeated messages.
"""

from __future__ import annotations

from rabbit_chx.consuming.deduplication import Deduplicator
from rabbit_chx.consuming.group import ConsumerGroup, GroupHealth
from rabbit_chx.consuming.message import GroupMessage
from rabbit_chx.consuming.settings import FailurePolicy, GroupReading, GroupTiming
from rabbit_chx.consuming.shards import PseudoQueueConsumer, ShardConsumer
from rabbit_chx.consuming.stream_group import StreamGroup

__all__ = [
    "ConsumerGroup",
    "Deduplicator",
    "FailurePolicy",
    "GroupHealth",
    "GroupMessage",
    "GroupReading",
    "GroupTiming",
    "PseudoQueueConsumer",
    "ShardConsumer",
    "StreamGroup",
]
