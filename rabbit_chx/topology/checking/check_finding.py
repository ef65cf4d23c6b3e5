"""One finding of a check: what is wrong, what that does to messages, and what cures it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from rabbit_chx.routing import Place

__all__ = ["CHECK_KINDS", "CheckFinding", "CheckKind"]

CheckKind: TypeAlias = Literal[
    "ghost-bucket",
    "hole",
    "order",
    "second-binding",
    "silent-binding",
    "transient-destination",
    "missing",
    "unexpected",
    "different",
    "unroutable-share",
]
#: All kinds of findings, in the order in which reports list them.
CHECK_KINDS: tuple[CheckKind, ...] = get_args(CheckKind)


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """Something that is wrong on a broker.

    Attributes:
        kind: ``ghost-bucket`` (buckets of what is not bound), ``hole`` (buckets of nothing, or a ring without buckets),
            ``order`` (the ring has another order than the topology says), ``second-binding`` (bound more than once),
            ``silent-binding`` (bound, and no key gets there), ``transient-destination`` (it goes by itself, and keys move
            then), ``missing``, ``unexpected``, ``different`` (beside the topology, or beside the weights of the bindings),
            ``unroutable-share`` (keys that end in no queue).
        exchange: the exchange that it is about; None for other objects.
        destination: the queue or exchange whose bucket, binding or declaration it is about; None for none.
        share: the exact share of the exchange's keys that the finding concerns; None where it is not about keys of a hash
            exchange.
        says: the finding, and what it does to messages.
        cure: a command, or what to do.
    """

    kind: CheckKind
    exchange: str | None
    destination: Place
    share: float | None
    says: str
    cure: str
