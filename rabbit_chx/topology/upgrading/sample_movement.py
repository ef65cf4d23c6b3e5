"""Where two exchanges send the messages of a sample: which of them move."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.analysis import MovementMatrix, Refused
from rabbit_chx.errors import ChannelClosedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rabbit_chx.routing import Place
    from rabbit_chx.routing.exchange import HashExchange
    from rabbit_chx.topology.upgrading.sampled_message import SampledMessage

__all__ = ["MovedMessage", "SampleMovement", "routes_of"]


@dataclass(frozen=True, slots=True)
class MovedMessage:
    """A message of a sample that does not stay where it was.

    Attributes:
        message: the message.
        before: where it went, or that it was refused.
        after: where it goes, or that it is refused.
    """

    message: SampledMessage
    before: Place | Refused
    after: Place | Refused


@dataclass(frozen=True, slots=True, repr=False)
class SampleMovement:
    """Where the messages of a sample go before and after.

    Attributes:
        messages: the messages.
        before: where each went, or that it was refused.
        after: where each goes, or that it is refused.
    """

    messages: Sequence[SampledMessage]
    before: Sequence[Place | Refused]
    after: Sequence[Place | Refused]

    @property
    def moved(self) -> tuple[MovedMessage, ...]:
        """The messages that do not stay, in the order of the sample. Two refusals are equal."""
        return tuple(
            MovedMessage(*one)
            for one in zip(self.messages, self.before, self.after, strict=True)
            if one[1] != one[2] and not (isinstance(one[1], Refused) and isinstance(one[2], Refused))
        )

    @property
    def matrix(self) -> MovementMatrix:
        """How many messages that both route go from where to where."""
        pairs: Counter[tuple[Place, Place]] = Counter()
        for one, other in zip(self.before, self.after, strict=True):
            if not isinstance(one, Refused) and not isinstance(other, Refused):
                pairs[one, other] += 1
        rows, columns = (dict.fromkeys(pair[side] for pair in pairs) for side in (0, 1))
        # The same order on both sides, so that what stays is on the diagonal.
        places = sorted({*rows, *columns}, key=lambda place: (place is None, str(place)))
        return MovementMatrix(
            tuple(place for place in places if place in rows),
            tuple(place for place in places if place in columns),
            {(one, other): pairs[one, other] for one in places for other in places if pairs[one, other]},
        )

    def refused(self, *, after: bool) -> int:
        """Return how many messages are refused on one side.

        Args:
            after: whether it is the side after.
        """
        return sum(isinstance(one, Refused) for one in (self.after if after else self.before))


def routes_of(exchange: HashExchange, messages: Sequence[SampledMessage]) -> list[Place | Refused]:
    """Return where an exchange sends each message, or that the broker closes the connection on it.

    Args:
        exchange: the exchange.
        messages: the messages.

    Raises:
        NotDeterminedError: no rule of the release decides it.
    """

    def route(message: SampledMessage) -> Place | Refused:
        try:
            return exchange.route(message.routing_key, message.headers, message.properties)
        except ChannelClosedError as error:
            return Refused(str(error))

    return list(map(route, messages))
