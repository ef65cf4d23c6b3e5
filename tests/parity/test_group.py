"""A group on every release: members come, leave and are killed under load, and each queue keeps its order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from group_stage import GroupStage, eventually, in_order

from rabbit_chx import ConsumerGroup
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.errors import InputError
from rabbit_chx.testing import temporary_vhost
from tests.parity.conftest import Rabbit

pytestmark = [pytest.mark.docker, pytest.mark.timeout(240)]

QUEUES = [f"q.{number}" for number in range(8)]


@pytest.fixture
def stage(rabbit: Rabbit) -> Iterator[GroupStage]:
    with temporary_vhost(rabbit.broker) as inside:
        made = GroupStage(inside.url, QUEUES, journal=JOURNAL)
        made.declare()
        yield made


def has(group: ConsumerGroup, count: int) -> bool:
    return len(group.held) == count


def empty(stage: GroupStage) -> bool:
    """Whether the heir has handled the last message of each queue, after which there is none."""
    handled = stage.by_queue()
    return all(handled[queue] and handled[queue][-1].number == stage.sent - 1 for queue in QUEUES)


def test_members_come_and_leave(stage: GroupStage) -> None:
    """Nothing is lost, repeated or out of order. With a journal the queues are shared, also where priorities are ignored."""

    async def story() -> None:
        async with AsyncExitStack() as stay, stage.member("b") as b:
            with stage.load():
                await eventually(partial(has, b, 8), "it has all queues")
                c = await stay.enter_async_context(stage.member("c"))
                if stage.journal:
                    await eventually(partial(has, c, 4), "the other one has its share")
                    await eventually(partial(has, b, 4), "and so has the first one")
                b.stop()
                await eventually(partial(has, c, 8), "the other one has all queues")
            await eventually(stage.all_handled, "all is handled")

    asyncio.run(story())
    assert len(stage.handled) == stage.sent * len(QUEUES), "nothing is repeated"
    for handled in stage.by_queue().values():
        assert in_order(handled)


def test_the_journal_needs_streams(rabbit: Rabbit, stage: GroupStage) -> None:
    async def enter() -> None:
        async with ConsumerGroup(stage.url, QUEUES):
            pass

    if stage.journal:
        asyncio.run(enter())
        return
    with pytest.raises(
        InputError, match=rf"RabbitMQ {rabbit.release.version} has none: .* pass journal=None"
    ):
        asyncio.run(enter())


def test_a_member_is_killed(rabbit: Rabbit, stage: GroupStage, tmp_path: Path) -> None:
    file = tmp_path / "handled"
    killed = 0.0

    async def story() -> None:
        nonlocal killed
        with stage.process("victim", file) as victim:
            try:
                with stage.load():
                    await eventually(lambda: file.exists() and file.stat().st_size, "it handles messages")
                async with stage.member("heir") as heir:
                    with stage.load():
                        if stage.journal:
                            await eventually(lambda: heir.held, "the heir has a share")
                        else:
                            await asyncio.sleep(1)
                        victim.kill()
                        victim.wait()
                        killed = time.monotonic()
                        await eventually(partial(has, heir, 8), "the heir has every queue")
                        killed = time.monotonic() - killed
                    await eventually(partial(empty, stage), "all is handled")
            finally:
                victim.kill()

    asyncio.run(story())
    by_victim = GroupStage(stage.url, QUEUES)
    by_victim.read(file)
    mine, heirs = by_victim.by_queue(), stage.by_queue()
    for queue in QUEUES:
        assert in_order(heirs[queue])
        numbers = {message.number for message in [*mine[queue], *heirs[queue]]}
        assert numbers == set(range(stage.sent)), "nothing is lost"
        repeated = {message.number for message in mine[queue]} & {message.number for message in heirs[queue]}
        assert repeated <= {message.number for message in mine[queue][-32:]}, "only what the dead member held"
    rabbit.note(f"the last queue of a member that was killed was handled again {killed:.1f} s later")
