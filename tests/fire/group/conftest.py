"""A group of three members on a broker, and the record of what happens to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from delivery_checker import Verdict
from fire_group import GroupFire, group_fire, keep

from rabbit_chx.testing import RunningBroker


@pytest.fixture
def group(vhost: RunningBroker, tmp_path: Path) -> Iterator[GroupFire]:
    """Exchange, queues and user; at the end no member is left."""
    with group_fire(vhost, tmp_path) as stage_:
        yield stage_


@pytest.fixture
def kept(group: GroupFire, record: Callable[..., Verdict]) -> Callable[..., None]:
    """Checks what a group promises, and records it: ``kept(figures, fault=..., promise=...)``."""
    return partial(keep, group, record=record, path="ConsumerGroup")
