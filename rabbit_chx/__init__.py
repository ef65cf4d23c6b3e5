"""Sight and control over RabbitMQ's ``x-consistent-hash`` exchange.

These names are the ones to call, catch and annotate; `rabbit_chx.errors` has the whole tree of errors. Each is loaded
when it is first used, so that importing this package loads neither NumPy nor a client.

Docstrings name pages such as docs/publishing.md. They are installed with this package, in its folder `docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.lazy_names import lazy

if TYPE_CHECKING:
    from rabbit_chx.amqp import AmqpField as AmqpField
    from rabbit_chx.broker import Broker as Broker
    from rabbit_chx.broker import Declared as Declared
    from rabbit_chx.consuming import ConsumerGroup as ConsumerGroup
    from rabbit_chx.consuming import Deduplicator as Deduplicator
    from rabbit_chx.consuming import GroupMessage as GroupMessage
    from rabbit_chx.consuming import GroupPace as GroupPace
    from rabbit_chx.erlang import Atom as Atom
    from rabbit_chx.erlang import ErlangMap as ErlangMap
    from rabbit_chx.erlang import phash2 as phash2
    from rabbit_chx.errors import BrokerRefusedError as BrokerRefusedError
    from rabbit_chx.errors import HandlerError as HandlerError
    from rabbit_chx.errors import InputError as InputError
    from rabbit_chx.errors import PublishError as PublishError
    from rabbit_chx.errors import RabbitChxError as RabbitChxError
    from rabbit_chx.errors import TopologyError as TopologyError
    from rabbit_chx.errors import UnreachableError as UnreachableError
    from rabbit_chx.publishing import AsyncPublisher as AsyncPublisher
    from rabbit_chx.publishing import Limits as Limits
    from rabbit_chx.publishing import Publisher as Publisher
    from rabbit_chx.publishing import PublishReport as PublishReport
    from rabbit_chx.publishing import Retries as Retries
    from rabbit_chx.publishing import Returned as Returned
    from rabbit_chx.publishing import stable_ids as stable_ids
    from rabbit_chx.routing import ConsistentHashExchange as ConsistentHashExchange
    from rabbit_chx.routing import ExchangeRef as ExchangeRef
    from rabbit_chx.routing import Explanation as Explanation
    from rabbit_chx.routing import HashRing as HashRing
    from rabbit_chx.routing import ModulusHashExchange as ModulusHashExchange
    from rabbit_chx.routing import Release as Release
    from rabbit_chx.routing import SlotTable as SlotTable
    from rabbit_chx.routing import SuperStream as SuperStream
    from rabbit_chx.routing import jump_consistent_hash as jump_consistent_hash
    from rabbit_chx.streams import StreamPublisher as StreamPublisher
    from rabbit_chx.streams import StreamReader as StreamReader
    from rabbit_chx.streams import replay as replay
    from rabbit_chx.testing import OrderChecker as OrderChecker
    from rabbit_chx.topology import Topology as Topology
    from rabbit_chx.version import __version__ as __version__

_NAMES = {
    "rabbit_chx.amqp": ["AmqpField"],
    "rabbit_chx.broker": ["Broker", "Declared"],
    "rabbit_chx.consuming": ["ConsumerGroup", "Deduplicator", "GroupMessage", "GroupPace"],
    "rabbit_chx.erlang": ["Atom", "ErlangMap", "phash2"],
    "rabbit_chx.errors": [
        "BrokerRefusedError",
        "HandlerError",
        "InputError",
        "PublishError",
        "RabbitChxError",
        "TopologyError",
        "UnreachableError",
    ],
    "rabbit_chx.publishing": [
        "AsyncPublisher",
        "Limits",
        "Publisher",
        "PublishReport",
        "Retries",
        "Returned",
        "stable_ids",
    ],
    "rabbit_chx.routing": [
        "ConsistentHashExchange",
        "ExchangeRef",
        "Explanation",
        "HashRing",
        "jump_consistent_hash",
        "ModulusHashExchange",
        "Release",
        "SlotTable",
        "SuperStream",
    ],
    "rabbit_chx.streams": ["StreamPublisher", "StreamReader", "replay"],
    "rabbit_chx.testing": ["OrderChecker"],
    "rabbit_chx.topology": ["Topology"],
}

__all__ = [name for names in _NAMES.values() for name in names]

# The version is no name that a star import takes.
__getattr__, __dir__ = lazy(__name__, {**_NAMES, "rabbit_chx.version": ["__version__"]})
