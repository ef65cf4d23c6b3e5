"""The arguments of a group, checked."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from typing import TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.names import check_name
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable

__all__ = ["GroupQueues", "default_member", "group_settings", "queue_names", "static_share"]

#: Names of queues, or what has queues: a ring or a slot table.
GroupQueues: TypeAlias = "Iterable[str] | HashRing | SlotTable"


def queue_names(queues: GroupQueues) -> tuple[str, ...]:
    """Return the names of the queues, each once.

    Args:
        queues: names, a ring whose destinations are queues, or a slot table.

    Raises:
        InputError: there is none, or a name that no queue can have, or a ring with exchanges as destinations.
    """
    if isinstance(queues, SlotTable):
        names: Iterable[object] = queues.destinations
    elif isinstance(queues, HashRing):
        names = queues.destinations
    elif isinstance(queues, str):
        raise InputError(f"queues is the text {queues!r}: give a list of names")
    else:
        names = queues
    found = list(dict.fromkeys(name for name in names if name is not None))  # None: a hole
    for name in found:
        if isinstance(name, ExchangeRef):
            raise InputError(
                f"{name} is an exchange: give the slot table, or the names of the queues behind it"
            )
        check_name(name, "queue")
    if not found:
        raise InputError("queues is empty: give one queue or more")
    return tuple(str(name) for name in found)


def default_member() -> str:
    """Return a name for this process: the host's name, which is that of the pod on Kubernetes, and the process id."""
    return f"{socket.gethostname()}-{os.getpid()}"


def static_share(queues: tuple[str, ...], static: tuple[int, int] | None) -> tuple[str, ...]:
    """Return the queues that a member consumes.

    Args:
        queues: all queues of the group.
        static: the member's number from 0 and the count of members; None where the group shares by itself.

    Raises:
        InputError: the number is none from 0 to the count less 1.
    """
    if static is None:
        return queues
    try:
        index, count = static
        good = 0 <= index < count
    except (TypeError, ValueError):
        good = False
    if not good:
        raise InputError(f"static is {static!r}: give (index, count) with an index from 0 to count - 1")
    return tuple(sorted(queues)[index::count])


def group_settings(url: str | ConnectionSettings) -> ConnectionSettings:
    """Return the settings of the connection.

    Args:
        url: an AMQP URI, or settings.

    Raises:
        InputError: it is neither, or the URI cannot be followed.
    """
    if isinstance(url, ConnectionSettings):
        return url
    if not isinstance(url, str):
        raise InputError(f"url is of type {type(url).__name__}: give an AMQP URI, such as amqp://localhost")
    return ConnectionSettings.from_uri(url)
