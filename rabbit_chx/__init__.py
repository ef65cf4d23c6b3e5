"""Sight and control over RabbitMQ's ``x-consistent-hash`` exchange.

The public names are loaded when they are first used: importing this package loads neither NumPy nor a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.lazy_names import lazy

if TYPE_CHECKING:
    from rabbit_chx.amqp import AmqpField
    from rabbit_chx.broker import Broker
    from rabbit_chx.erlang import Atom, ErlangMap, phash2
    from rabbit_chx.errors import PublishError, RabbitChxError
    from rabbit_chx.publishing import AsyncPublisher, Publisher, PublishReport
    from rabbit_chx.routing import (
        ConsistentHashExchange,
        ExchangeRef,
        HashRing,
        ModulusHashExchange,
        Release,
        jump_consistent_hash,
    )
    from rabbit_chx.version import (
        __version__ as __version__,
    )  # not in __all__, so that no star import takes it

_HOMES = {
    "__version__": "rabbit_chx.version",
    "AmqpField": "rabbit_chx.amqp",
    "AsyncPublisher": "rabbit_chx.publishing",
    "Atom": "rabbit_chx.erlang",
    "Broker": "rabbit_chx.broker",
    "ConsistentHashExchange": "rabbit_chx.routing",
    "ErlangMap": "rabbit_chx.erlang",
    "ExchangeRef": "rabbit_chx.routing",
    "HashRing": "rabbit_chx.routing",
    "ModulusHashExchange": "rabbit_chx.routing",
    "PublishError": "rabbit_chx.errors",
    "PublishReport": "rabbit_chx.publishing",
    "Publisher": "rabbit_chx.publishing",
    "RabbitChxError": "rabbit_chx.errors",
    "Release": "rabbit_chx.routing",
    "jump_consistent_hash": "rabbit_chx.routing",
    "phash2": "rabbit_chx.erlang",
}

__all__ = [
    "AmqpField",
    "AsyncPublisher",
    "Atom",
    "Broker",
    "ConsistentHashExchange",
    "ErlangMap",
    "ExchangeRef",
    "HashRing",
    "ModulusHashExchange",
    "PublishError",
    "PublishReport",
    "Publisher",
    "RabbitChxError",
    "Release",
    "jump_consistent_hash",
    "phash2",
]


__getattr__, __dir__ = lazy(__name__, _HOMES)
