"""Close connections as an operator does: by the management API."""

from __future__ import annotations

from rabbit_chx.broker.management import Management
from rabbit_chx.errors import BrokerRefusedError, NotFoundError

_HAS_ENDED = "was answered 500"


def force_close(management: Management, connection: str) -> bool:
    """Close a connection of that name; return whether it was there.

    The list of connections is some seconds behind. A connection of the list that has ended is answered with 404, or with 500 if it
    ends while the broker looks for it (3.10.8).
    """
    try:
        management.request("DELETE", "connections", connection)
    except NotFoundError:
        return False
    except BrokerRefusedError as refused:
        if _HAS_ENDED not in str(refused):
            raise
        return False
    return True
