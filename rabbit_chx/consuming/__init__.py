"""What handles messages: consumers that keep order, and repeated messages recognized."""

from __future__ import annotations

from rabbit_chx.consuming.deduplication import DeduplicationReport, Deduplicator
from rabbit_chx.consuming.group import ConsumerGroup
from rabbit_chx.consuming.group_status import (
    GroupStatus,
    MemberStatus,
    QueueConsumer,
    QueueStatus,
    group_findings,
)
from rabbit_chx.consuming.journal import JOURNAL, JournalEntry, QueueClaim, Roster, RosterMember
from rabbit_chx.consuming.member import GroupPace
from rabbit_chx.consuming.message import GroupMessage, ShardMessage
from rabbit_chx.consuming.shards import PseudoQueueConsumer, ShardConsumer

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
    "group_findings",
]
