"""What an upgrade does to the hash exchanges of a topology, by the mirror. A value, made without I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashedOn
from rabbit_chx.topology.checking.cures import Cures
from rabbit_chx.topology.checking.transient_destinations import transient_destinations
from rabbit_chx.topology.objects import HASH_EXCHANGE, RingMember, SlotNames
from rabbit_chx.topology.upgrading.exchange_upgrade import hash_upgrade, modulus_upgrade
from rabbit_chx.topology.upgrading.upgrade_findings import findings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rabbit_chx.routing import Binding, Release
    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.objects import ExchangeDefinition
    from rabbit_chx.topology.upgrading.exchange_upgrade import ExchangeUpgrade
    from rabbit_chx.topology.upgrading.sampled_message import SampledMessage

__all__ = [
    "MODULUS_EXCHANGE", "UpgradePrediction", "bound_to", "hash_exchanges", "hashed_on",
    "predict_exchange", "predict_upgrade",
]  # fmt: skip

MODULUS_EXCHANGE = "x-modulus-hash"
_HASH_ARGUMENTS = ("hash-header", "hash-property")


@dataclass(frozen=True, slots=True)
class UpgradePrediction:
    """What an upgrade does to the hash exchanges of a topology.

    Attributes:
        before: the release before.
        after: the release after.
        exchanges: the hash exchanges, by name.
    """

    before: Release
    after: Release
    exchanges: tuple[ExchangeUpgrade, ...]

    @property
    def moves(self) -> bool:
        """Whether keys of an exchange move, or may move."""
        return any(one.verdict != "safe" for one in self.exchanges)


def hash_exchanges(topology: Topology) -> tuple[ExchangeDefinition, ...]:
    """Return the exchanges of a topology that hash.

    Args:
        topology: what there is.
    """
    return tuple(one for one in topology.exchanges if one.type in (HASH_EXCHANGE, MODULUS_EXCHANGE))


def hashed_on(exchange: ExchangeDefinition) -> HashedOn | None:
    """Return what a hash exchange hashes; None for an ``x-modulus-hash`` exchange, which hashes all routing keys.

    Args:
        exchange: the exchange.

    Raises:
        InputError: the broker would refuse its arguments.
    """
    if exchange.type == MODULUS_EXCHANGE:
        return None
    named = {name: exchange.arguments[name] for name in _HASH_ARGUMENTS if name in exchange.arguments}
    return HashedOn.from_arguments(named)


def bound_to(topology: Topology, exchange: ExchangeDefinition) -> tuple[Binding, ...]:
    """Return what is bound to a hash exchange: in the order of the ring, as far as it has one.

    An exchange with slots has them as its ring.

    Args:
        topology: what there is.
        exchange: the exchange.
    """
    if exchange.type == MODULUS_EXCHANGE:
        return tuple(
            (one.destination, one.routing_key) for one in topology.bindings if one.source == exchange.name
        )
    if exchange.slots is not None:
        return tuple(RingMember(slot).binding for slot in SlotNames(exchange.name, exchange.slots).refs)
    return tuple(member.binding for member in exchange.ring or ())


def predict_upgrade(
    topology: Topology,
    samples: Mapping[str, Sequence[SampledMessage]],
    before: Release,
    after: Release,
    *,
    file: str | None = None,
) -> UpgradePrediction:
    """Return what an upgrade does to the hash exchanges of a topology.

    Args:
        topology: what there is; its rings count where they were read.
        samples: the messages of each hash exchange, by its name; an exchange without any has no sample.
        before: the release before.
        after: the release after.
        file: the name of the topology's file, for the commands that repair; None where there is none.

    Raises:
        InputError: the release after is older than the one before, or a client cannot send a message of the sample.
    """
    if after.numbers < before.numbers:
        raise InputError(
            f"an upgrade goes to a newer release, and {after.version} is older than {before.version}"
        )
    transient = transient_destinations(topology)
    made = []
    for exchange in hash_exchanges(topology):
        upgrade = predict_exchange(topology, exchange, samples.get(exchange.name, ()), before, after)
        cures = Cures(file, exchange.owner == "external")
        bindings = bound_to(topology, exchange)
        findings = findings_of(upgrade, bindings, transient, (before, after), cures)
        made.append(replace(upgrade, findings=tuple(findings)))
    return UpgradePrediction(before, after, tuple(made))


def predict_exchange(
    topology: Topology,
    exchange: ExchangeDefinition,
    messages: Sequence[SampledMessage],
    before: Release,
    after: Release,
) -> ExchangeUpgrade:
    """Return what an upgrade does to one hash exchange, without findings.

    Args:
        topology: what there is.
        exchange: the exchange.
        messages: its sample.
        before: the release before.
        after: the release after.
    """
    bindings, hashed = bound_to(topology, exchange), hashed_on(exchange)
    if hashed is None:
        return modulus_upgrade(exchange.name, bindings, messages, releases=(before, after))
    live = topology.rings.get(exchange.name)
    return hash_upgrade(exchange.name, bindings, live, hashed, messages, releases=(before, after))
