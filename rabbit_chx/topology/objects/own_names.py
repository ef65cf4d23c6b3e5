"""The names of the exchanges and queues that this program keeps in a vhost. They belong to no topology."""

from __future__ import annotations

#: The name of the queue.
MARK = "rabbit-chx.mark"
#: The exchange with the record of an exchange has this prefix.
RECORD_PREFIX = "rabbit-chx.ring."
#: The exchange with the steps of an apply that has not ended. The lock of an apply is a queue of this name, so that nobody applies without
#: the permission to declare it.
PENDING_APPLY = "rabbit-chx.apply"
#: The exchange that says who has switched tracing on, and the exclusive queue of the connection that gets the copies.
TRACE = "rabbit-chx.trace"
#: What replaces another object is declared under this name first, and deleted at once.
TRIAL = "rabbit-chx.trial"


def is_own(name: object) -> bool:
    """Return True if an exchange or a queue of this name belongs to this program and not to the user.

    An import can make a name that is no text.
    """
    return isinstance(name, str) and (
        name in (MARK, PENDING_APPLY, TRACE, TRIAL) or name.startswith(RECORD_PREFIX)
    )
