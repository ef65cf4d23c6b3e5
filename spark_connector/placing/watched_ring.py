"""The ring of an exchange during a write: it may change when connections are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from rabbit_chx.routing import SlotTable, ring_beneath, share_between
from spark_connector.placing.prediction import as_ring

if TYPE_CHECKING:
    from collections.abc import Callable

    from rabbit_chx.routing import KeyMap

__all__ = ["GivenRing", "WatchedRing"]

#: A ring or a table of slots, its JSON, or a function that reads it.
GivenRing: TypeAlias = "KeyMap | str | Callable[[], KeyMap]"


class WatchedRing:
    """A ring that can be read again, if the caller has given a function for it.

    Args:
        given: a ring or a table of slots, its JSON, or a function that reads it; None for no ring.

    Attributes:
        ring: the ring or the table as it was read last; None if none was given.

    Raises:
        InputError: the argument is not a ring, or the ring has no buckets.
    """

    def __init__(self, given: GivenRing | None) -> None:
        self._read = given if callable(given) else None
        self.ring = None if given is None else as_ring(given() if callable(given) else given)

    @property
    def may_change_unseen(self) -> bool:
        """Whether keys may change queue while all connections live: slots change hands so."""
        return isinstance(self.ring, SlotTable)

    def look_again(self, *, say_same: bool = True) -> str | None:
        """Read the ring again, and return a note on whether it changed.

        Without a function that reads the ring, the result is None.

        Args:
            say_same: whether there is a note where nothing changed; else the result is None.
        """
        before = self.ring
        if self._read is None or before is None:
            return None
        try:
            self.ring = as_ring(self._read())
        except Exception as cause:  # noqa: BLE001  # the messages are out: this must not fail the write
            return f"the ring could not be read again, so it may have changed: {cause}"
        moved = share_between(before, self.ring)
        if _same(before, self.ring):
            return "the ring is the same as before" if say_same else None
        what = "the slots or the ring have" if self.may_change_unseen else "the ring has"
        return (
            f"{what} changed, and {moved:.1%} of all keys changed queue during the write: rows by predicted "
            "queue are wrong"
        )


def _same(before: KeyMap, now: KeyMap) -> bool:
    owners = [one.owners if isinstance(one, SlotTable) else None for one in (before, now)]
    return ring_beneath(before).buckets == ring_beneath(now).buckets and owners[0] == owners[1]
