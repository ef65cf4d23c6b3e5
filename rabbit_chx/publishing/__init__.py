"""Publish messages with confirms: delivery logic without I/O, a publisher for bulk and one for threads and asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.lazy_names import lazy
from rabbit_chx.publishing.batches import stable_ids
from rabbit_chx.publishing.encoder import MessageProperties, PropertyColumns
from rabbit_chx.publishing.options import Limits, Retries
from rabbit_chx.publishing.publish_report import PublishReport, Returned
from rabbit_chx.publishing.publisher import Publisher

if TYPE_CHECKING:
    from rabbit_chx.publishing.outbox import SharedStats
    from rabbit_chx.publishing.shared_publisher import SharedPublisher

__all__ = [
    "Limits",
    "MessageProperties",
    "PropertyColumns",
    "PublishReport",
    "Publisher",
    "Retries",
    "Returned",
    "SharedPublisher",
    "SharedStats",
    "stable_ids",
]

# These import asyncio, which other programs do not need.
_LATE = {
    "rabbit_chx.publishing.outbox": ["SharedStats"],
    "rabbit_chx.publishing.shared_publisher": ["SharedPublisher"],
}
__getattr__, __dir__ = lazy(__name__, _LATE)
