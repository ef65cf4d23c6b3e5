"""The ring of an exchange during a write: it may change when connections are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from spark_connector.placing.prediction import as_ring

if TYPE_CHECKING:
    from collections.abc import Callable

    from rabbit_chx.routing import HashRing

__all__ = ["GivenRing", "WatchedRing"]

#: A ring, its JSON, or a function that reads it.
GivenRing: TypeAlias = "HashRing | str | Callable[[], HashRing]"


class WatchedRing:
    """A ring that can be read again, if the caller has given a function for it.

    Args:
        given: a ring, its JSON, or a function that reads it; None for no ring.

    Attributes:
        ring: the ring as it was read last; None if none was given.

    Raises:
        InputError: the argument is not a ring, or the ring has no buckets.
    """

    def __init__(self, given: GivenRing | None) -> None:
        self._read = given if callable(given) else None
        self.ring = None if given is None else as_ring(given() if callable(given) else given)

    def look_again(self) -> str | None:
        """Read the ring again, and return a note on whether it changed.

        Without a function that reads the ring, the result is None.
        """
        before = self.ring
        if self._read is None or before is None:
            return None
        try:
            self.ring = as_ring(self._read())
        except Exception as cause:  # noqa: BLE001  # the messages are out: this must not fail the write
            return f"the ring could not be read again, so it may have changed: {cause}"
        moved = before.share_moved(self.ring)
        if before.buckets == self.ring.buckets:
            return "the ring is the same as before"
        return (
            f"the ring has changed, and {moved:.1%} of all keys changed queue during the write: rows by predicted "
            "queue are wrong"
        )
