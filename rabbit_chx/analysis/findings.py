"""A finding: what is wrong with a ring, with what is on a broker, with a group or with a load. One value for all of them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rabbit_chx.routing import Place

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, what that does to messages, and what cures it.

    Attributes:
        kind: what kind of thing is wrong, in a word such as ``ghost-bucket``. What returns findings lists its kinds.
        says: the finding, and what it does to messages.
        cure: a command, or what to do; empty where `says` is all.
        exchange: the exchange that it is about; None for none.
        destination: the queue or exchange whose bucket, binding or declaration it is about; None for none.
        share: the exact share of the exchange's keys that it concerns; None where it is not about keys.
        names: the names of the queues or shards, or the key, that it is about, where no single destination is.
    """

    kind: str
    says: str
    cure: str = ""
    _: KW_ONLY
    exchange: str | None = None
    destination: Place = None
    share: float | None = None
    names: tuple[str, ...] = ()
