"""Members whose broker does not answer: they leave within seconds, and give up in the time that was given to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from group_stage import GroupStage, eventually
from publishing_support import through
from stream_group_stage import StreamGroupStage
from tcp_proxy import Proxy

from rabbit_chx import ConsumerGroup, StreamGroup
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.11"), pytest.mark.timeout(300)]

NAMES = [f"n.{number}" for number in range(3)]
STOP_S = 25.0
RECONNECT_S = 10.0


def refuse(line: Proxy) -> None:
    """As a broker that is killed."""
    line.refuse()
    line.cut()


@pytest.fixture(params=["queues", "streams"])
def stage(vhost: RunningBroker, request: pytest.FixtureRequest) -> GroupStage:
    streams = request.param == "streams"
    made = StreamGroupStage(vhost.stream_url, NAMES) if streams else GroupStage(vhost.url, NAMES)
    made.declare()
    made.publish(20)
    return made


@pytest.fixture
def line(stage: GroupStage) -> Iterator[Proxy]:
    with closing(Proxy(stage.url)) as proxy:
        yield proxy


def member(stage: GroupStage, line: Proxy, **how: Any) -> Any:
    """A member with the default times of a group."""
    url = through(stage.url, line.port)
    if isinstance(stage, StreamGroupStage):
        return StreamGroup(url, streams=NAMES, name=stage.group, member="a", **how)
    return ConsumerGroup(url, NAMES, member="a", **how)


def owns_all(group: ConsumerGroup | StreamGroup) -> bool:
    """Whether a member has every queue, and is known to the others."""
    is_known = isinstance(group, StreamGroup) or bool(group.members)
    return len(group.held) == len(NAMES) and is_known


@pytest.mark.representative
@pytest.mark.parametrize("fault", [refuse, Proxy.freeze])  # freeze: as a network that loses all packets
@pytest.mark.parametrize("after_s", [0.0, 4.0])
def test_a_group_stops_in_time_during_an_outage(
    stage: GroupStage, line: Proxy, fault: Any, after_s: float
) -> None:
    """Kubernetes kills a process 30 s after SIGTERM."""
    handled: list[object] = []

    async def handle(*what: object) -> None:
        handled.append(what)

    async def story() -> float:
        async with member(stage, line) as group:
            running = asyncio.create_task(group.run(handle))
            await eventually(lambda: len(handled) >= 3 and owns_all(group), "it owns all")
            fault(line)
            await asyncio.sleep(after_s)
            began = time.monotonic()
            group.stop()
            await running
        return time.monotonic() - began

    assert asyncio.run(story()) < STOP_S


@pytest.mark.representative
def test_a_member_ends_with_an_error_when_an_outage_lasts(stage: GroupStage, line: Proxy) -> None:
    async def handle(*_: object) -> None:
        pass

    async def story() -> float:
        async with member(stage, line, reconnect_timeout_s=RECONNECT_S) as group:
            running = asyncio.create_task(group.run(handle))
            await eventually(lambda: owns_all(group), "it owns all")
            refuse(line)
            began = time.monotonic()
            with pytest.raises(RabbitChxError):
                await running
        return time.monotonic() - began

    assert RECONNECT_S - 5 < asyncio.run(story()) < RECONNECT_S * 6
