"""Mirror, plan and use RabbitMQ's ``x-consistent-hash`` exchange.

The package exports its main classes and functions, and every error of `rabbit_chx.errors`. Types of their arguments and results are
exported by the packages, for example ``rabbit_chx.publishing.PublishReport``. The site of `make site` lists all public names. The classes and functions are
imported on first use: ``import rabbit_chx`` loads neither NumPy nor a client library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.lazy_names import is_installed, lazy

if TYPE_CHECKING:
    from rabbit_chx.amqp import AmqpField as AmqpField
    from rabbit_chx.broker import Broker as Broker
    from rabbit_chx.consuming import ConsumerGroup as ConsumerGroup
    from rabbit_chx.consuming import StreamGroup as StreamGroup
    from rabbit_chx.erlang import Atom as Atom
    from rabbit_chx.erlang import ErlangMap as ErlangMap
    from rabbit_chx.erlang import phash2 as phash2
    from rabbit_chx.errors import AccessRefusedError as AccessRefusedError
    from rabbit_chx.errors import ApplyError as ApplyError
    from rabbit_chx.errors import BrokerRefusedError as BrokerRefusedError
    from rabbit_chx.errors import BrokerTimeoutError as BrokerTimeoutError
    from rabbit_chx.errors import BufferFullError as BufferFullError
    from rabbit_chx.errors import ChannelClosedError as ChannelClosedError
    from rabbit_chx.errors import ConnectionLimitError as ConnectionLimitError
    from rabbit_chx.errors import ConnectionLostError as ConnectionLostError
    from rabbit_chx.errors import ContradictedError as ContradictedError
    from rabbit_chx.errors import DamagedChunkError as DamagedChunkError
    from rabbit_chx.errors import DeduplicationError as DeduplicationError
    from rabbit_chx.errors import EmptyRingError as EmptyRingError
    from rabbit_chx.errors import HandlerError as HandlerError
    from rabbit_chx.errors import InputError as InputError
    from rabbit_chx.errors import ManagementNeededError as ManagementNeededError
    from rabbit_chx.errors import MismatchError as MismatchError
    from rabbit_chx.errors import MissingExtraError as MissingExtraError
    from rabbit_chx.errors import MissingRowsError as MissingRowsError
    from rabbit_chx.errors import NackedError as NackedError
    from rabbit_chx.errors import NoBrokerError as NoBrokerError
    from rabbit_chx.errors import NotDeterminedError as NotDeterminedError
    from rabbit_chx.errors import NotFoundError as NotFoundError
    from rabbit_chx.errors import PlanOutdatedError as PlanOutdatedError
    from rabbit_chx.errors import PlanRefusedError as PlanRefusedError
    from rabbit_chx.errors import PublishError as PublishError
    from rabbit_chx.errors import RabbitChxError as RabbitChxError
    from rabbit_chx.errors import RingSourceError as RingSourceError
    from rabbit_chx.errors import RowError as RowError
    from rabbit_chx.errors import TopologyError as TopologyError
    from rabbit_chx.errors import UnknownOutcomeError as UnknownOutcomeError
    from rabbit_chx.errors import UnreachableError as UnreachableError
    from rabbit_chx.errors import UnroutableError as UnroutableError
    from rabbit_chx.errors import UriError as UriError
    from rabbit_chx.publishing import Limits as Limits
    from rabbit_chx.publishing import Publisher as Publisher
    from rabbit_chx.publishing import Retries as Retries
    from rabbit_chx.publishing import SharedPublisher as SharedPublisher
    from rabbit_chx.routing import ConsistentHashExchange as ConsistentHashExchange
    from rabbit_chx.routing import ExchangeRef as ExchangeRef
    from rabbit_chx.routing import HashRing as HashRing
    from rabbit_chx.routing import ModulusHashExchange as ModulusHashExchange
    from rabbit_chx.routing import Release as Release
    from rabbit_chx.routing import SlotTable as SlotTable
    from rabbit_chx.routing import SuperStream as SuperStream
    from rabbit_chx.routing import jump_consistent_hash as jump_consistent_hash
    from rabbit_chx.streams import StreamPublisher as StreamPublisher
    from rabbit_chx.streams import StreamReader as StreamReader
    from rabbit_chx.streams import replay as replay
    from rabbit_chx.topology import Topology as Topology
    from rabbit_chx.version import __version__ as __version__

_NAMES = {
    "rabbit_chx.amqp": ["AmqpField"],
    "rabbit_chx.broker": ["Broker"],
    "rabbit_chx.consuming": ["ConsumerGroup", "StreamGroup"],
    "rabbit_chx.erlang": ["Atom", "ErlangMap", "phash2"],
    "rabbit_chx.errors": [
        "AccessRefusedError",
        "ApplyError",
        "BrokerRefusedError",
        "BrokerTimeoutError",
        "BufferFullError",
        "ChannelClosedError",
        "ConnectionLimitError",
        "ConnectionLostError",
        "ContradictedError",
        "DamagedChunkError",
        "DeduplicationError",
        "EmptyRingError",
        "HandlerError",
        "InputError",
        "ManagementNeededError",
        "MismatchError",
        "MissingExtraError",
        "MissingRowsError",
        "NackedError",
        "NoBrokerError",
        "NotDeterminedError",
        "NotFoundError",
        "PlanOutdatedError",
        "PlanRefusedError",
        "PublishError",
        "RabbitChxError",
        "RingSourceError",
        "RowError",
        "TopologyError",
        "UnknownOutcomeError",
        "UnreachableError",
        "UnroutableError",
        "UriError",
    ],
    "rabbit_chx.publishing": ["Limits", "Publisher", "Retries", "SharedPublisher"],
    "rabbit_chx.routing": [
        "ConsistentHashExchange",
        "ExchangeRef",
        "HashRing",
        "ModulusHashExchange",
        "Release",
        "SlotTable",
        "SuperStream",
        "jump_consistent_hash",
    ],
    "rabbit_chx.streams": ["StreamPublisher", "StreamReader", "replay"],
    "rabbit_chx.topology": ["Topology"],
}

__all__ = [
    name
    for package, names in _NAMES.items()
    if package != "rabbit_chx.streams" or is_installed("pyarrow")
    for name in names
]

__getattr__, __dir__ = lazy(__name__, {**_NAMES, "rabbit_chx.version": ["__version__"]})
