"""Routing of messages by the broker: releases and their rules, rings, hashing exchanges, and slots.

`ring` is the ring of a consistent-hash exchange and `ring_changes` its binds and unbinds. `jump` maps a hash to a bucket. `exchange`
applies `rules` of a `release` to a `message`, as sent and as received. `slot_table` adds slots to a ring. `super_stream` finds the partition
of a key. `arrays` routes columns of keys.
"""

from rabbit_chx.routing.bindings import Binding, Destination, ExchangeRef
from rabbit_chx.routing.exchange import ConsistentHashExchange, Explanation, ModulusHashExchange
from rabbit_chx.routing.jump import jump_consistent_hash
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.ring import HashRing
from rabbit_chx.routing.ring_changes import Provenance
from rabbit_chx.routing.slot_table import SlotTable
from rabbit_chx.routing.super_stream import SuperStream

__all__ = [
    "Binding",
    "ConsistentHashExchange",
    "Destination",
    "ExchangeRef",
    "Explanation",
    "HashRing",
    "ModulusHashExchange",
    "Provenance",
    "Release",
    "SlotTable",
    "SuperStream",
    "jump_consistent_hash",
]
