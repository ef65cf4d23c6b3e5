"""Sight and control over RabbitMQ's ``x-consistent-hash`` exchange.

These names are the ones to call, catch and annotate; `rabbit_chx.errors` has the whole tree of errors. Each is loaded
when it is first used, so that importing this package loads neither NumPy nor a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.lazy_names import lazy

if TYPE_CHECKING:
    from rabbit_chx.amqp import AmqpField
    from rabbit_chx.broker import AsyncBroker, Broker, Declared
    from rabbit_chx.consuming import (
        ConsumerGroup,
        Deduplicator,
        GroupMessage,
        GroupPace,
        SqliteDeduplicator,
    )
    from rabbit_chx.erlang import Atom, ErlangMap, phash2
    from rabbit_chx.errors import (
        BrokerRefusedError,
        HandlerError,
        InputError,
        PublishError,
        RabbitChxError,
        TopologyError,
        UnreachableError,
    )
    from rabbit_chx.publishing import (
        AsyncPublisher,
        Limits,
        Publisher,
        PublishReport,
        Retries,
        Returned,
        stable_ids,
    )
    from rabbit_chx.routing import (
        ConsistentHashExchange,
        ExchangeRef,
        Explanation,
        HashRing,
        ModulusHashExchange,
        Release,
        SlotTable,
        jump_consistent_hash,
    )
    from rabbit_chx.testing import OrderChecker
    from rabbit_chx.topology import Topology
    from rabbit_chx.version import (
        __version__ as __version__,
    )  # not in __all__, so that no star import takes it

_HOMES = {
    "AmqpField": "rabbit_chx.amqp",
    "AsyncBroker": "rabbit_chx.broker",
    "AsyncPublisher": "rabbit_chx.publishing",
    "Atom": "rabbit_chx.erlang",
    "Broker": "rabbit_chx.broker",
    "BrokerRefusedError": "rabbit_chx.errors",
    "ConsistentHashExchange": "rabbit_chx.routing",
    "ConsumerGroup": "rabbit_chx.consuming",
    "Declared": "rabbit_chx.broker",
    "Deduplicator": "rabbit_chx.consuming",
    "ErlangMap": "rabbit_chx.erlang",
    "ExchangeRef": "rabbit_chx.routing",
    "Explanation": "rabbit_chx.routing",
    "GroupMessage": "rabbit_chx.consuming",
    "GroupPace": "rabbit_chx.consuming",
    "HandlerError": "rabbit_chx.errors",
    "HashRing": "rabbit_chx.routing",
    "InputError": "rabbit_chx.errors",
    "Limits": "rabbit_chx.publishing",
    "ModulusHashExchange": "rabbit_chx.routing",
    "OrderChecker": "rabbit_chx.testing",
    "PublishError": "rabbit_chx.errors",
    "PublishReport": "rabbit_chx.publishing",
    "Publisher": "rabbit_chx.publishing",
    "RabbitChxError": "rabbit_chx.errors",
    "Release": "rabbit_chx.routing",
    "Retries": "rabbit_chx.publishing",
    "Returned": "rabbit_chx.publishing",
    "SlotTable": "rabbit_chx.routing",
    "SqliteDeduplicator": "rabbit_chx.consuming",
    "Topology": "rabbit_chx.topology",
    "TopologyError": "rabbit_chx.errors",
    "UnreachableError": "rabbit_chx.errors",
    "__version__": "rabbit_chx.version",
    "jump_consistent_hash": "rabbit_chx.routing",
    "phash2": "rabbit_chx.erlang",
    "stable_ids": "rabbit_chx.publishing",
}

__all__ = [
    "AmqpField",
    "AsyncBroker",
    "AsyncPublisher",
    "Atom",
    "Broker",
    "BrokerRefusedError",
    "ConsistentHashExchange",
    "ConsumerGroup",
    "Declared",
    "Deduplicator",
    "ErlangMap",
    "ExchangeRef",
    "Explanation",
    "GroupMessage",
    "GroupPace",
    "HandlerError",
    "HashRing",
    "InputError",
    "Limits",
    "ModulusHashExchange",
    "OrderChecker",
    "PublishError",
    "PublishReport",
    "Publisher",
    "RabbitChxError",
    "Release",
    "Retries",
    "Returned",
    "SlotTable",
    "SqliteDeduplicator",
    "Topology",
    "TopologyError",
    "UnreachableError",
    "jump_consistent_hash",
    "phash2",
    "stable_ids",
]


__getattr__, __dir__ = lazy(__name__, _HOMES)
