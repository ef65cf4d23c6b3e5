"""The ``x-modulus-hash`` exchange: the hash of all routing keys modulo the number of bindings.

Mirrors rabbitmq-server ``deps/rabbitmq_sharding/src/rabbit_sharding_exchange_type_modulus_hash.erl``,
``route/3`` (until 4.2), and ``deps/rabbit/src/rabbit_exchange_type_modulus_hash.erl``, ``route/3`` (v4.3.0 to
v4.3.6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rabbit_chx.amqp.names import short_string
from rabbit_chx.erlang import phash2
from rabbit_chx.errors import NotDeterminedError
from rabbit_chx.routing.bindings import (
    Destination,
    Place,
    binding_key,
    check_destination,
    order_of_binding,
    order_of_destination,
    tuples_of,
)
from rabbit_chx.routing.exchange import HashExchange, received
from rabbit_chx.routing.message import SentMessage
from rabbit_chx.routing.release import NEWEST, Release, check_release
from rabbit_chx.routing.rules import MODULUS_BY_BINDING_KEY, MODULUS_BY_NAME, MODULUS_UNORDERED


@dataclass(frozen=True, slots=True, init=False)
class ModulusHashExchange(HashExchange):
    """An exchange of type ``x-modulus-hash``, by the rules of a release.

    Every binding counts, so a destination that is bound with two keys counts twice.

    Attributes:
        name: the exchange's name.
        destinations: the destination of each binding, in the order that the release counts in; where nobody
            can know that order, in the order given.
        release: the release whose rules apply.
    """

    name: str
    destinations: tuple[Destination, ...]
    release: Release

    def __init__(
        self, name: str, bindings: Iterable[tuple[Destination, int | str]], release: Release | None = None
    ) -> None:
        """Make an exchange with its bindings.

        Args:
            name: the exchange's name.
            bindings: ``(destination, binding key)`` in any order; the same pair again is the same binding.
                Bindings have no arguments.
            release: the release whose rules apply; None for the newest.

        Raises:
            InputError: an entry is not a binding.
        """
        short_string(name, "the exchange's name")
        release = NEWEST if release is None else check_release(release)
        distinct = dict.fromkeys(
            _checked(*pair) for pair in tuples_of(bindings, 2, "(destination, binding key) pairs")
        )
        if release.follows(MODULUS_BY_BINDING_KEY):
            ordered = sorted(distinct, key=order_of_binding)
        elif release.follows(MODULUS_BY_NAME):
            ordered = sorted(distinct, key=lambda binding: order_of_destination(binding[0]))
        else:
            ordered = list(distinct)  # MODULUS_UNORDERED, which `route` refuses
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "destinations", tuple(destination for destination, _ in ordered))
        object.__setattr__(self, "release", release)

    def _destination(self, sent: SentMessage) -> Place:
        message = received(sent, self.release)
        if not self.destinations:
            return None
        if self.release.follows(MODULUS_UNORDERED) and len(set(self.destinations)) > 1:
            raise NotDeterminedError(
                f"{MODULUS_UNORDERED.about} {self.name!r} on RabbitMQ {self.release}: "
                f"{MODULUS_UNORDERED.says}; use 4.3 or x-consistent-hash, or send probes",
                exchange=self.name,
            )
        return self.destinations[phash2(list(message.routing_keys)) % len(self.destinations)]


def _checked(destination: object, key: int | str) -> tuple[Destination, str]:
    short_string(binding_key(key), "the binding key")
    return check_destination(destination), binding_key(key)
