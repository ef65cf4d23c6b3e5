"""How the broker routes a message: releases and their rules, rings, exchanges that hash, and slots.

`ring` is the ring of a consistent-hash exchange and `ring_changes` its binds and unbinds. `jump` maps a hash to a bucket. `exchange`
applies `rules` of a `release` to a message: `message` is the message as sent, `received_message` as the broker sees it.
`slot_table` adds slots to a ring. `super_stream` and `sharding` name partitions and shards. `arrays` does the same for columns.
"""

from rabbit_chx.routing.bindings import Binding, Destination, ExchangeRef, Place
from rabbit_chx.routing.exchange import ConsistentHashExchange, Explanation, ModulusHashExchange
from rabbit_chx.routing.jump import bucket_of_seed, jump_consistent_hash, seed_of
from rabbit_chx.routing.message import HASH_ARGUMENTS, HASH_PROPERTIES, HashedOn
from rabbit_chx.routing.release import NEWEST, Release
from rabbit_chx.routing.ring import HashRing, check_ring
from rabbit_chx.routing.ring_changes import Provenance
from rabbit_chx.routing.sharding import shard_names
from rabbit_chx.routing.slot_table import (
    KeyMap,
    SlotTable,
    check_key_map,
    key_map_from_json,
    queue_behind,
    ring_beneath,
    share_between,
)
from rabbit_chx.routing.super_stream import SuperStream

__all__ = [
    "HASH_ARGUMENTS",
    "HASH_PROPERTIES",
    "NEWEST",
    "Binding",
    "ConsistentHashExchange",
    "Destination",
    "ExchangeRef",
    "Explanation",
    "HashRing",
    "HashedOn",
    "KeyMap",
    "ModulusHashExchange",
    "Place",
    "Provenance",
    "Release",
    "SlotTable",
    "SuperStream",
    "bucket_of_seed",
    "check_key_map",
    "check_ring",
    "jump_consistent_hash",
    "key_map_from_json",
    "queue_behind",
    "ring_beneath",
    "seed_of",
    "shard_names",
    "share_between",
]
