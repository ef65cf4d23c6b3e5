"""An ``x-modulus-hash`` exchange or a super stream, read from the management API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.analysis.modulo_map import ModuloMap
from rabbit_chx.errors import MismatchError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.sequences.exchange_reading import destination_of, exchange_found, release_read
from rabbit_chx.topology.sequences.steps import ApiRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from rabbit_chx.routing import Destination, Release
    from rabbit_chx.topology.sequences.steps import ApiSequence

__all__ = ["modulo_map_of", "modulo_map_read"]

_MODULUS = "x-modulus-hash"
_SUPER_STREAM = "x-super-stream"
_ORDER = "x-stream-partition-order"


def modulo_map_of(
    name: str,
    type_: str,
    arguments: Mapping[str, Any],
    bindings: Iterable[tuple[Destination, str, Mapping[str, Any]]],
    release: Release | None,
) -> ModuloMap | None:
    """Return what sends keys by a hash modulo the number of bindings; None for an exchange that does not.

    A super stream is a direct exchange with the argument ``x-super-stream``. Its partitions are in the order that the
    bindings say, as the broker gives them to clients (``rabbit_stream_utils.erl``, ``sort_partitions/1``).

    Args:
        name: the exchange's name.
        type_: its type.
        arguments: its arguments.
        bindings: the destination, the key and the arguments of each of its bindings.
        release: the broker's release.
    """
    if type_ == _MODULUS:
        return ModuloMap(name, "x-modulus-hash", tuple((place, key) for place, key, _ in bindings), release)
    if type_ != "direct" or arguments.get(_SUPER_STREAM) is not True:
        return None
    streams = [one for one in bindings if not isinstance(one[0], ExchangeRef)]
    ordered = sorted(streams, key=lambda one: (_ORDER not in one[2], one[2].get(_ORDER, 0)))
    return ModuloMap(name, "super-stream", tuple((place, key) for place, key, _ in ordered), release)


def modulo_map_read(vhost: str, name: str) -> ApiSequence[ModuloMap]:
    """Read what sends keys by a hash modulo the number of bindings.

    Args:
        vhost: the exchange's vhost.
        name: the exchange's name.

    Raises:
        NotFoundError: there is no such exchange or vhost.
        MismatchError: the exchange does not do that.
    """
    found = yield from exchange_found(vhost, name)
    fields = {"destination": str, "destination_type": str, "routing_key": str}
    path = ("exchanges", vhost, name, "bindings", "source")
    listed = yield ApiRequest("GET", path, listed=True, fields=fields)
    bindings = [(destination_of(one), str(one["routing_key"]), one.get("arguments") or {}) for one in listed]
    release = yield from release_read()
    given = modulo_map_of(name, found["type"], found["arguments"], bindings, release)
    if given is None:
        raise MismatchError(
            f"exchange {name!r} in vhost {vhost!r} is of type {found['type']}, which does not hash: give one of type "
            "x-consistent-hash or x-modulus-hash, or a super stream",
            exchange=name,
        )
    return given
