"""The streams that store the rows of keys: those of a super stream, or of a ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rabbit_chx.checks import check_name
from rabbit_chx.errors import InputError
from rabbit_chx.routing import SuperStream
from rabbit_chx.routing.key_map import KeyMap, is_routed_by_broker
from rabbit_chx.routing.super_stream import StreamRouting, are_names, check_routing
from rabbit_chx.streams.connection import StreamConnection


def find_super_stream(
    connection: StreamConnection, super_stream: str, routing: StreamRouting | None, keys: Sequence[bytes]
) -> SuperStream:
    """Return the placing of keys; by binding key it has the keys that are asked for."""
    streams = connection.partitions(super_stream)
    if routing == "key":
        texts = [*dict.fromkeys(key.decode(errors="replace") for key in keys)]
        bound = [(stream, text) for text in texts for stream in connection.routes(super_stream, text)]
        if unbound := [text for text in texts if text not in {key for _, key in bound}]:
            raise InputError(
                f"no partition of super stream {super_stream!r} is bound with the key {unbound[0]!r:.60}: pass a binding key"
            )
        return SuperStream([stream for stream, _ in bound], [key for _, key in bound], routing="key")
    if routing is None and are_names(connection.binding_keys(super_stream, streams)):
        raise InputError(named_keys_text(super_stream))
    return SuperStream(streams)


def check_super_stream(super_stream: str | None, routing: StreamRouting | None) -> None:
    """Raise an InputError for an invalid name of a super stream, or for a routing without one."""
    check_routing(routing)
    if super_stream is not None:
        check_name(super_stream, "super stream")
    elif routing is not None:
        raise InputError(f"routing={routing!r} is for super streams: pass super_stream, or leave it out")


def check_stream_ring(ring: object, how_to_read: str = "") -> KeyMap:
    """Return a ring whose rows are stored by a client; an InputError unless it was read and each destination is a stream, bound once.

    Args:
        ring: the ring as given.
        how_to_read: the remedy for a ring of buckets that is assumed; by default that of a program in Python.
    """
    if not is_routed_by_broker(ring):
        raise InputError(
            f"{ring!r:.60} is not a ring: pass a HashRing, a SlotTable or a ModulusHashExchange that was read from the broker"
        )
    if not ring.ground.is_certain:
        raise InputError(
            f"the ring is {ring.ground}, and must be read from the broker, recorded or observed: "
            f"{(ring.hashing.has_order and how_to_read) or ring.hashing.how_to_read}"
        )
    if not ring.destinations:
        raise InputError("the ring has no destinations: bind streams first")
    for place, count in Counter(ring.destinations).items():
        if not isinstance(place, str):
            raise InputError(f"{place} of the ring is not a stream: bind only streams, or pass a slot table")
        if count > 1:  # to an ``x-modulus-hash`` exchange
            raise InputError(f"stream {place!r} is bound {count} times: unbind all but one")
    return ring


def named_keys_text(super_stream: str) -> str:
    """Return what is not known of a super stream whose binding keys are names, and the remedy."""
    return (
        f"the binding keys of super stream {super_stream!r} are names: AMQP clients and the Java client's .key() route by them, and other "
        "clients by a hash: pass routing='key' or routing='hash'"
    )
