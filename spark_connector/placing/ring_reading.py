"""How the driver reads the ring of an exchange: with the broker's own command line tool, through a prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rabbit_chx.routing import ConsistentHashExchange, HashRing

if TYPE_CHECKING:
    from spark_connector.options.write_options import WriteOptions

__all__ = ["RingReading"]


@dataclass(frozen=True, slots=True)
class RingReading:
    """Reads a ring when it is called.

    Attributes:
        prefix: the command prefix that reaches ``rabbitmqctl``, such as ``docker exec NAME``. No shell runs.
        vhost: the exchange's vhost.
        exchange: the exchange's name.
    """

    prefix: str
    vhost: str
    exchange: str

    @classmethod
    def of(cls, options: WriteOptions) -> Self | None:
        """Return how to read the ring of a write; None without the option ``ringVia``."""
        if options.ring_via is None:
            return None
        return cls(options.ring_via, options.brokers.addresses[0].vhost, options.exchange)

    def __call__(self) -> ConsistentHashExchange:
        """Return the exchange with its ring as it is now, and with what it hashes.

        Raises:
            InputError: the prefix is a text that a shell could not split.
            NotFoundError: there is no x-consistent-hash exchange of that name.
            RingSourceError: the ring could not be read.
        """
        from rabbit_chx.broker.ring_source import DiagnosticsRing  # only the driver loads it

        buckets, arguments = DiagnosticsRing(self.prefix).read_exchange(self.vhost, self.exchange)
        ring = HashRing.from_buckets(buckets, next_bucket=buckets.next_bucket)
        return ConsistentHashExchange(self.exchange, ring, arguments)
