"""Alarms of a broker that tests started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rabbit_chx.testing import RunningBroker


@contextmanager
def memory_alarm(broker: RunningBroker) -> Iterator[None]:
    """Have a memory alarm during a block."""
    broker.run("rabbitmqctl", "set_vm_memory_high_watermark", "0.00001")
    try:
        yield
    finally:
        broker.run("rabbitmqctl", "set_vm_memory_high_watermark", "0.6")


@contextmanager
def disk_alarm(broker: RunningBroker) -> Iterator[None]:
    """Have a disk alarm during a block."""
    broker.run("rabbitmqctl", "set_disk_free_limit", "1000000GB")
    try:
        yield
    finally:
        broker.run("rabbitmqctl", "set_disk_free_limit", "50MB")
