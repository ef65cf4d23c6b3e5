"""Mirror, plan and use RabbitMQ's ``x-consistent-hash`` exchange.

The package exports its main classes and functions, and every error of `rabbit_chx.errors`. Types of their arguments and results are
exported by the packages, for example ``rabbit_chx.publishing.PublishReport``. The site of `make site` lists all public names. The classes and functions are
imported on first use: ``import rabbit_chx`` loads neither NumPy nor a client library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx import errors
from rabbit_chx.lazy_names import is_installed, lazy

if TYPE_CHECKING:
    from rabbit_chx.amqp import AmqpField as AmqpField
    from rabbit_chx.broker import Broker as Broker
    from rabbit_chx.consuming import ConsumerGroup as ConsumerGroup
    from rabbit_chx.consuming import StreamGroup as StreamGroup
    from rabbit_chx.erlang import Atom as Atom
    from rabbit_chx.erlang import ErlangMap as ErlangMap
    from rabbit_chx.erlang import phash2 as phash2
    from rabbit_chx.errors import *  # noqa: F403
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
    from rabbit_chx.topology import Topology as Topology
    from rabbit_chx.version import __version__ as __version__

_NAMES = {
    "rabbit_chx.amqp": ["AmqpField"],
    "rabbit_chx.broker": ["Broker"],
    "rabbit_chx.consuming": ["ConsumerGroup", "StreamGroup"],
    "rabbit_chx.erlang": ["Atom", "ErlangMap", "phash2"],
    "rabbit_chx.errors": [name for name in vars(errors) if name.endswith("Error")],
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
    "rabbit_chx.streams": ["StreamPublisher", "StreamReader"],
    "rabbit_chx.topology": ["Topology"],
}

__all__ = [
    name
    for package, names in _NAMES.items()
    if package != "rabbit_chx.streams" or is_installed("pyarrow")
    for name in names
]

__getattr__, __dir__ = lazy(__name__, {**_NAMES, "rabbit_chx.version": ["__version__"]})
