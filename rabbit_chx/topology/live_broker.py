"""The interfaces of a live broker for topology code. Every call blocks; `rabbit_chx.broker` implements them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology.hand_over_marker import HandOverMarker
from rabbit_chx.topology.operations import Operation, QueueCounts


class ManagementApi(Protocol):
    """Requests below ``/api`` of the management plugin. A path is a sequence of unquoted segments."""

    def get(
        self, *path: str, query: Mapping[str, str] | None = None, fields: Mapping[str, type] | None = None
    ) -> Any:  # noqa: ANN401  # JSON
        """Return an object that has these fields with these types; None: any answer is accepted."""

    def get_list(
        self, *path: str, query: Mapping[str, str] | None = None, fields: Mapping[str, type]
    ) -> list[dict[str, Any]]:
        """Return a list of objects, each of which has these fields with these types."""

    def put(self, *path: str, body: object) -> None:
        """Create or update an object."""

    def delete(self, *path: str) -> None:
        """Delete an object."""


class AmqpChannel(Protocol):
    """Operations over one channel. An error of the broker names the object and the missing permission."""

    def perform(self, operation: Operation) -> None:
        """Perform an operation, and wait for the answer."""

    def perform_together(self, operations: Sequence[Operation]) -> bool:
        """Perform operations in order, and wait only for the last answer.

        Return False if the broker refused one of them. It does not report which one; earlier operations are done.
        """

    def check_sendable(self, operations: Sequence[Operation]) -> None:
        """Refuse arguments that the client cannot send. Nothing is sent."""

    def count(self, queue: str) -> QueueCounts:
        """Return the counts of a queue, by a passive declaration."""

    def check_exchange(self, exchange: str) -> None:
        """Check that an exchange exists, of any type, by a passive declaration."""


class MessageCarrier(Protocol):
    """A second connection that moves messages and sends the markers of a hand-over."""

    def move_messages(self, queue: str, exchange: str, limit: int) -> int:
        """Publish the first messages of a queue to an exchange, with all their properties, and return their number.

        Each message is removed only after the broker has confirmed its copy. So a crash may duplicate a message, but does not lose one. The
        number is less than `limit` if the queue has no more messages.
        """

    def send_marker(self, queue: str, marker: HandOverMarker) -> None:
        """Send a marker to a queue, with a confirm. Replies are sent to a queue of the carrier."""

    def wait_for_reply(
        self,
        marker: HandOverMarker,
        kind: Literal["flushed", "taken"],
        *,
        timeout_s: float,
        longest_s: float,
        queues: Sequence[str],
    ) -> bool:
        """Wait for the reply to a marker, and return True if it arrived in time.

        Args:
            marker: the marker.
            kind: the kind of the reply.
            timeout_s: the largest time in seconds without progress. The time starts again when one of the queues gets shorter.
            longest_s: the largest time in seconds in total.
            queues: the queues that are read before the reply arrives.
        """

    def close(self) -> None:
        """Close the connection, if there is one."""


class LiveBroker(Protocol):
    """A live broker.

    Attributes:
        where: its AMQP address without password, for errors.
        has_management: True if a management API is configured.
        has_source: True if a ring source is configured.
    """

    where: str
    vhost: str
    has_management: bool
    has_source: bool

    @property
    def amqp(self) -> AmqpChannel:
        """The AMQP connection."""

    @property
    def api(self) -> ManagementApi:
        """The management API. Raises ManagementNeededError if it is not configured."""

    @property
    def carrier(self) -> MessageCarrier:
        """The second connection, which is opened on first use."""

    def overview(self) -> dict[str, Any]:
        """Return the overview of the management API: at least ``rabbitmq_version``. That of another cluster is refused."""

    def read_rings(self, exchanges: Sequence[str], release: Release) -> Mapping[str, HashRing]:
        """Read rings by the ring source. Exchanges that do not exist or have another type are not in the mapping."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


def try_count(amqp: AmqpChannel, queue: str) -> QueueCounts | None:
    """Return the counts of a queue; None if the broker refuses, for example because the queue does not exist or its node is down.

    Raises:
        UnreachableError: the connection is closed, or the broker does not answer.
    """
    try:
        return amqp.count(queue)
    except RabbitChxError as error:
        if error.reply_code is None:
            raise
        return None
