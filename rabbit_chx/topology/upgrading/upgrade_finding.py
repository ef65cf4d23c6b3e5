"""One thing that an upgrade does to a hash exchange, and what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["UpgradeFinding", "UpgradeKind"]

UpgradeKind: TypeAlias = Literal[
    "order", "hashed-differently", "refused-message", "modulus-order", "second-binding", "weight", "transient-destination",
    "ring-differs",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class UpgradeFinding:
    """Something that an upgrade does to an exchange.

    Attributes:
        kind: ``order`` (the ring may come back in another order), ``hashed-differently`` (the same header value has another
            hash), ``refused-message`` (the broker closes the connection on some messages), ``modulus-order``
            (bindings are counted in another order), ``second-binding`` (a destination that is bound twice has other
            buckets), ``weight`` (a binding cannot be made again), ``transient-destination`` (a member does not survive the
            restart), ``ring-differs`` (the ring that was read is not what its bindings make).
        says: what happens.
        cure: what can be done about it.
    """

    kind: UpgradeKind
    says: str
    cure: str
