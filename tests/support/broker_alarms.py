"""Alarms of a broker that tests started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from rabbit_chx.testing import RunningBroker


def memory_alarm(broker: RunningBroker) -> AbstractContextManager[None]:
    """Have a memory alarm during a block."""
    return _limit_set(broker, "set_vm_memory_high_watermark", "0.00001", usual="0.6")


def disk_alarm(broker: RunningBroker) -> AbstractContextManager[None]:
    """Have a disk alarm during a block."""
    return _limit_set(broker, "set_disk_free_limit", "1000000GB", usual="50MB")


@contextmanager
def _limit_set(broker: RunningBroker, command: str, limit: str, *, usual: str) -> Iterator[None]:
    broker.run("rabbitmqctl", command, limit)
    try:
        yield
    finally:
        broker.run("rabbitmqctl", command, usual)
