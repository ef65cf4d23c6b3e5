"""What handles messages: consumers that keep order, and repeated messages recognized."""

from __future__ import annotations

from rabbit_chx.consuming.consumer_group import ConsumerGroup
from rabbit_chx.consuming.deduplication import DeduplicationReport, Deduplicator
from rabbit_chx.consuming.group_message import GroupMessage
from rabbit_chx.consuming.group_pace import GroupPace
from rabbit_chx.consuming.group_status import GroupStatus, MemberStatus, QueueConsumer, QueueStatus
from rabbit_chx.consuming.group_warnings import group_findings
from rabbit_chx.consuming.journal_entry import JOURNAL, JournalEntry
from rabbit_chx.consuming.pseudo_queue_consumer import PseudoQueueConsumer
from rabbit_chx.consuming.roster import QueueClaim, Roster, RosterMember
from rabbit_chx.consuming.shard_consumer import ShardConsumer
from rabbit_chx.consuming.shard_message import ShardMessage
from rabbit_chx.consuming.sqlite import SqliteDeduplicator

__all__ = [
    "JOURNAL",
    "ConsumerGroup",
    "DeduplicationReport",
    "Deduplicator",
    "GroupMessage",
    "GroupPace",
    "GroupStatus",
    "JournalEntry",
    "MemberStatus",
    "PseudoQueueConsumer",
    "QueueClaim",
    "QueueConsumer",
    "QueueStatus",
    "Roster",
    "RosterMember",
    "ShardConsumer",
    "ShardMessage",
    "SqliteDeduplicator",
    "group_findings",
]
