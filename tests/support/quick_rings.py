"""Rings of a container's broker, read in some milliseconds: tests that read many cannot start ``rabbitmqctl`` for each.

The rings that ``rabbitmqctl`` itself prints are those of ``tests/broker/test_ring_source.py`` and of ``test_routes.py`` and
``test_ring_end.py`` of the parity suite.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from rabbit_chx.testing import RunningBroker

_SCRIPT = Path(__file__).with_name("quick_rabbitmqctl.sh")


def quick_prefix(broker: RunningBroker) -> tuple[str, ...]:
    """Return a command prefix, as for `DiagnosticsRing`; that of the broker itself if it is in no container of ours.

    Args:
        broker: a broker whose rings can be read.
    """
    assert broker.ring_via is not None, "these tests read rings: set RABBIT_CHX_TEST_RING_VIA"
    if not broker.owned or broker.ring_via[:2] != ("docker", "exec"):
        return broker.ring_via
    return ("bash", str(_SCRIPT), _folder(), broker.ring_via[2])


def quick_broker(broker: RunningBroker) -> RunningBroker:
    """Return the broker with `quick_prefix` as its command prefix, if it has one."""
    return broker if broker.ring_via is None else replace(broker, ring_via=quick_prefix(broker))


@cache
def _folder() -> str:
    """Return a folder for the addresses of the brokers; it goes with this process."""
    folder = tempfile.mkdtemp(prefix="quick-rings-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
