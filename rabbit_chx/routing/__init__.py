"""Routing of messages by the broker: releases and their rules, rings, hashing exchanges, and slots.

`key_map` is the value that maps keys to destinations, and `flows` is what moves between two. `ring` makes that of a consistent-hash exchange,
with its binds and unbinds. `slot_table` adds slots to a ring. `modulus_exchange` and `super_stream` take a hash modulo a number.
`jump` maps a hash to a bucket. `exchange` applies `rules` of a `release` to a `message`, as sent and as received. `arrays` routes columns of keys.
"""

from rabbit_chx.routing.bindings import Binding, Destination, ExchangeRef, OrderKnowledge, Provenance
from rabbit_chx.routing.exchange import ConsistentHashExchange, Explanation
from rabbit_chx.routing.jump import jump_consistent_hash
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.modulus_exchange import ModulusHashExchange
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.ring import HashRing
from rabbit_chx.routing.slot_table import SlotTable
from rabbit_chx.routing.super_stream import SuperStream

__all__ = [
    "Binding",
    "ConsistentHashExchange",
    "Destination",
    "ExchangeRef",
    "Explanation",
    "HashRing",
    "KeyMap",
    "ModulusHashExchange",
    "OrderKnowledge",
    "Provenance",
    "Release",
    "SlotTable",
    "SuperStream",
    "jump_consistent_hash",
]
