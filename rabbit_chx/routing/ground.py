"""What is known about a ring: the origin of its order, or why its order is not known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from rabbit_chx.errors import InputError
from rabbit_chx.result_fields import SPREAD, shown

#: The origin of a ring, as :class:`Ground` explains it.
Provenance: TypeAlias = Literal["read", "recorded", "observed", "replayed"]
PROVENANCES: tuple[Provenance, ...] = get_args(Provenance)
#: The origins of a ring that is that of a broker.
CERTAIN: tuple[Provenance, ...] = ("read", "recorded", "observed")
#: What must be true for a record to hold: it is a statement about the past, and what others did and took back since leaves no trace.
RECORD_CONDITION = (
    "known as of the record, if only rabbit_chx has changed the bindings of this exchange since"
)
#: What must be true for what is said of a ring whose order is not known: a list of bindings does not show all its buckets.
LISTED_CONDITION = "if no buckets without a queue are left, where messages are unroutable"
#: The origins in words.
ORIGINS: dict[Provenance | None, str] = {
    "read": "read from a broker",
    "recorded": f"recorded on the broker: {RECORD_CONDITION}",
    "observed": "observed from keys and their queues",
    "replayed": "replayed from the bindings in order",
    None: "order not known",
}


@dataclass(frozen=True, slots=True)
class Ground:
    """What is known about a ring.

    Attributes:
        origin: ``read`` from a broker; ``recorded``: that of a record which fits the live bindings, known on the `condition` that nobody else
            has changed these since; ``observed`` from keys and the queues that got them; ``replayed`` from bindings whose order the caller vouches for; None: the order is not known.
        doubt: the reason why it is not known, as a sentence without a full stop and without a remedy; empty if there is none to name. Only
            a ring whose order is not known has a doubt.

    Raises:
        InputError: the origin is not one of these, or a ring whose order is known has a doubt.
    """

    origin: Provenance | None = field(
        metadata=shown(
            json=SPREAD,
            as_json=lambda origin: {"provenance": origin, "condition": condition_of(origin)},
        )
    )
    doubt: str = field(
        default="",
        metadata=shown(json=SPREAD, as_json=lambda doubt: {"doubt": doubt} if doubt else {}),
    )

    def __post_init__(self) -> None:
        if self.origin is not None and self.origin not in PROVENANCES:
            raise InputError(f"the provenance is {self.origin!r:.40}: pass one of {', '.join(PROVENANCES)}")
        if not isinstance(self.doubt, str):
            raise InputError(f"the doubt is {self.doubt!r:.40}: pass text")
        if self.doubt and self.origin is not None:
            raise InputError(
                f"the ring is {self.origin} and has a doubt, {self.doubt!r:.60}: leave the doubt or the origin out"
            )

    @property
    def condition(self) -> str | None:
        """What must be true for the ring to be that of the broker now; None unless it is recorded."""
        return condition_of(self.origin)

    @property
    def is_certain(self) -> bool:
        """True if the ring is that of a broker."""
        return self.origin in CERTAIN

    @property
    def is_known(self) -> bool:
        """True if the order is known."""
        return self.origin is not None

    def after_change(self) -> Ground:
        """Return the ground of a ring after a bind or an unbind: one that was that of a broker is then replayed."""
        return Ground("replayed") if self.is_certain else self

    @property
    def text(self) -> str:
        """The origin in words, with the doubt."""
        words = ORIGINS[self.origin]
        return f"{words} ({self.doubt})" if self.doubt else words

    def __str__(self) -> str:
        words = self.origin or "of an unknown order"
        return f"{words} ({self.doubt})" if self.doubt else words


def condition_of(origin: Provenance | None) -> str | None:
    """Return the condition of an answer from a ring of this origin; None if it has none."""
    return RECORD_CONDITION if origin == "recorded" else None


#: What is known about a ring of which only the binding list is.
UNORDERED = Ground(None, "its bindings are listed without their order")
#: What is known about a ring that is taken to have its members in the order of a file, or of a call.
AS_LISTED = Ground("replayed")
