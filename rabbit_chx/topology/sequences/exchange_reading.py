"""One exchange, read from the management API: its type, its arguments, its bindings, and its alternate exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    InputError,
    MismatchError,
    NotFoundError,
)
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, ModulusHashExchange, Release
from rabbit_chx.topology.sequences.operations import CHX, check_declared_name
from rabbit_chx.topology.sequences.passive_checks import check_exchange
from rabbit_chx.topology.sequences.steps import ApiRequest, RingRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rabbit_chx.routing import Binding, Destination
    from rabbit_chx.topology.sequences.steps import Access, ApiSequence, Sequence

__all__ = [
    "OVERVIEW",
    "LiveExchange",
    "bindings_listed",
    "destination_of",
    "exchange_found",
    "exchange_mirror",
    "hash_exchange",
    "policy_of",
    "release_read",
    "ring_read",
]

#: What the broker says of itself: its version, and most often the name of its cluster.
OVERVIEW = ApiRequest("GET", ("overview",), fields={"rabbitmq_version": str})
_MODULUS = "x-modulus-hash"
_HASH_ARGUMENTS = ("hash-header", "hash-property")
_ALTERNATE = "alternate-exchange"


@dataclass(frozen=True, slots=True)
class LiveExchange:
    """An x-consistent-hash exchange.

    Attributes:
        vhost: the exchange's vhost.
        name: the exchange's name.
        arguments: the arguments that decide about routing: ``hash-header`` or ``hash-property``.
        bindings: ``(destination, binding key)`` pairs; their order means nothing.
        alternate: the alternate exchange, by argument or policy; None where there is none.
        release: the broker's release.
    """

    vhost: str
    name: str
    arguments: Mapping[str, str]
    bindings: tuple[Binding, ...]
    alternate: str | None
    release: Release

    @property
    def assumed_ring(self) -> HashRing:
        """The ring that the bindings would make in the order in which they are listed."""
        return HashRing.from_bindings(self.bindings, self.release, "assumed")


def release_read(version: str | None = None) -> ApiSequence[Release]:
    """Read the broker's version, and its metadata store from its feature flags (``khepri_db`` exists since 3.13).

    A user who may not read feature flags gets the default store of the version, marked as not known.

    Args:
        version: the version, if it is known already.
    """
    if version is None:
        version = str((yield OVERVIEW)["rabbitmq_version"])
    try:
        listed = yield ApiRequest("GET", ("feature-flags",), listed=True, fields={"name": str, "state": str})
    except AccessRefusedError:
        return _release(version)
    flags = {flag["name"]: flag["state"] for flag in listed}
    if "khepri_db" not in flags:
        return _release(version)
    return _release(version, "khepri" if flags["khepri_db"] == "enabled" else "mnesia")


def _release(version: str, store: Literal["khepri", "mnesia"] | None = None) -> Release:
    try:
        return Release(version, store)
    except InputError as error:
        raise BrokerRefusedError(
            f"the management API names the version {version:.50} of the broker: {error}"
        ) from None


def hash_exchange(vhost: str, name: str) -> ApiSequence[LiveExchange]:
    """Read an x-consistent-hash exchange.

    Args:
        vhost: the exchange's vhost.
        name: the exchange's name.

    Raises:
        NotFoundError: there is no such exchange or vhost.
        MismatchError: the exchange is of another type.
        BrokerRefusedError: the user lacks a permission.
        UnreachableError: nothing answers at the address.
        InputError: AMQP has no exchange of such a name.
    """
    check_declared_name(name, "exchange")
    found = yield from exchange_found(vhost, name)
    if found["type"] != CHX:
        raise MismatchError(
            f"exchange {name!r} in vhost {vhost!r} is of type {found['type']}, not {CHX}: give another one",
            exchange=name,
        )
    return LiveExchange(
        vhost,
        name,
        {
            argument: found["arguments"][argument]
            for argument in _HASH_ARGUMENTS
            if argument in found["arguments"]
        },
        (yield from bindings_listed(vhost, name)),
        found["arguments"].get(_ALTERNATE) or (yield from policy_of(vhost, found)).get(_ALTERNATE),
        (yield from release_read()),
    )


def ring_read(access: Access, exchange: str, release: Release) -> Sequence[HashRing]:
    """Read the ring of an exchange; without a ring source it is assumed from its bindings.

    Args:
        access: what the sequence may ask.
        exchange: the exchange's name.
        release: the release whose rules apply.

    Raises:
        NotFoundError: there is no such exchange.
        MismatchError: the exchange is of another type.
        RingSourceError: the ring could not be read.
    """
    check_declared_name(exchange, "exchange")
    if not access.has_source:
        return (yield from hash_exchange(access.vhost, exchange)).assumed_ring
    if access.has_management:  # over AMQP it would need configure on the exchange
        yield from exchange_found(access.vhost, exchange)
    else:
        yield from check_exchange(access.where, exchange)
    found = yield RingRequest((exchange,))
    if exchange not in found:
        raise MismatchError(
            f"exchange {exchange!r} in vhost {access.vhost!r} is not of type {CHX}, or the ring source asks another broker: check "
            "the exchange and the ring source",
            exchange=exchange,
        )
    return HashRing.from_buckets(
        found[exchange], release, next_bucket=getattr(found[exchange], "next_bucket", None)
    )


def exchange_mirror(
    access: Access, name: str, release: Release
) -> Sequence[ConsistentHashExchange | ModulusHashExchange]:
    """Read an exchange that hashes, as a mirror of its routing.

    Args:
        access: what the sequence may ask.
        name: the exchange's name.
        release: the release whose rules apply.

    Raises:
        NotFoundError: there is no such exchange.
        MismatchError: the exchange does not hash.
        RingSourceError: the ring could not be read.
    """
    check_declared_name(name, "exchange")
    found = yield from exchange_found(access.vhost, name)
    if found["type"] == _MODULUS:
        return ModulusHashExchange(name, (yield from bindings_listed(access.vhost, name)), release=release)
    if found["type"] != CHX:
        raise MismatchError(
            f"exchange {name!r} in vhost {access.vhost!r} is of type {found['type']}, which does not hash: give one of type {CHX} "
            f"or {_MODULUS}",
            exchange=name,
        )
    ring = yield from ring_read(access, name, release)
    arguments = {one: value for one, value in found["arguments"].items() if one in _HASH_ARGUMENTS}
    return ConsistentHashExchange(name, ring, arguments=arguments)


def destination_of(binding: Mapping[str, Any]) -> Destination:
    """Return the destination of a binding, as the management API lists it.

    Args:
        binding: the entry of the list.
    """
    name = str(binding["destination"])
    return name if binding["destination_type"] == "queue" else ExchangeRef(name)


def exchange_found(vhost: str, name: str) -> ApiSequence[dict[str, Any]]:
    """Read an exchange, as the management API describes it.

    Args:
        vhost: the exchange's vhost.
        name: the exchange's name.

    Raises:
        NotFoundError: there is no such exchange or vhost.
    """
    try:
        found: dict[str, Any] = yield ApiRequest(
            "GET", ("exchanges", vhost, name), fields={"type": str, "arguments": dict}
        )
    except NotFoundError:
        raise NotFoundError(
            f"there is no exchange {name!r} in vhost {vhost!r}: check its name and the vhost of the URL",
            exchange=name,
            reply_code=404,
        ) from None
    return found


def bindings_listed(vhost: str, name: str) -> ApiSequence[tuple[Binding, ...]]:
    """Read the bindings of an exchange, in the order in which they are listed.

    Args:
        vhost: the exchange's vhost.
        name: the exchange's name.
    """
    fields = {"destination": str, "destination_type": str, "routing_key": str}
    path = ("exchanges", vhost, name, "bindings", "source")
    listed = yield ApiRequest("GET", path, listed=True, fields=fields)
    return tuple((destination_of(binding), str(binding["routing_key"])) for binding in listed)


def policy_of(vhost: str, found: Mapping[str, Any]) -> ApiSequence[Mapping[str, Any]]:
    """Read what the policy sets that applies to an exchange; nothing where none does.

    Args:
        vhost: the exchange's vhost.
        found: the exchange, as `exchange_found` returns it.
    """
    if not found.get("policy"):
        return {}
    request = ApiRequest("GET", ("policies", vhost, found["policy"]), fields={"definition": dict})
    definition: dict[str, Any] = (yield request)["definition"]
    return definition
