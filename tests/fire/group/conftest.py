"""A group of three members on a broker, and the record of what happens to it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from delivery_checker import Judge
from fire_group import GroupFire, group_fire, keep

from rabbit_chx.testing import RunningBroker


@pytest.fixture
def group(vhost: RunningBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GroupFire]:
    """Exchange, queues and user, with the options `GROUP` of the module; at the end no member is left."""
    with group_fire(vhost, tmp_path, **getattr(request.module, "GROUP", {})) as made:
        yield made


@pytest.fixture
def kept(group: GroupFire, record: Judge, request: pytest.FixtureRequest) -> Judge:
    """Checks what a group promises, and records it: ``kept(figures, fault=..., promise=...)``."""
    kind = "StreamGroup" if group.streams else "ConsumerGroup"
    nodes = ", three nodes" if "chx_cluster" in request.fixturenames else ""
    return partial(keep, group, record=record, path=kind + nodes)
