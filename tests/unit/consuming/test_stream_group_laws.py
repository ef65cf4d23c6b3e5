"""Laws of a group of streams, whatever happens to it: no row is lost, none is handled by two members at a time, few are repeated.

`GroupWorld.check` has the laws of rows. A loss that heals is seen, too: by the sessions, the calls of hooks, and the open connections.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

import pytest
from stream_group_world import Call, GroupWorld, Member
from stream_node import Session

from rabbit_chx.streams.frames import StreamChanged

#: More by `make long WHAT=simulate`.
_SEEDS = int(os.environ.get("GROUP_SEEDS", "5"))
#: Events of a life, by their weights.
EVENTS = {
    "publish": 8,
    "cut": 3,
    "cut waiting": 1,
    "change": 1,
    "move": 3,
    "kill": 1,
    "stop": 1,
    "join": 2,
}
_UNAVAILABLE = 6


class Life:
    """The life of a group, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311  # the same life each time
        self.world = GroupWorld(seed)
        self.world.node.store_delay_s = self.chance.choice([0.0, 0.0, 0.4])
        self.is_faulty = True
        self.disturbances = 0

    def join(self) -> Member:
        """Let a member join."""
        how = {"batch_rows": self.chance.choice([3, 7, 100]), "before": self.work, "gain": self.gain}
        return self.world.member(f"m{len(self.world.members)}", **how)

    async def work(self, _call: Call) -> None:
        """Handle a batch, or fail."""
        await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.2, 0.6]))
        if self.is_faulty and self.chance.random() < 0.1:
            raise ValueError("I cannot")

    async def gain(self, _stream: str) -> None:
        """Gain a stream, or fail."""
        await asyncio.sleep(self.chance.choice([0.0, 0.1]))
        if self.is_faulty and self.chance.random() < 0.1:
            raise OSError("the store does not answer")

    @property
    def present(self) -> list[Member]:
        """The members that run."""
        return [each for each in self.world.members if each.running and not each.running.done()]

    def is_shared(self) -> bool:
        """Whether each stream has one owner. How many a member has is the broker's decision."""
        held = Counter(stream for member in self.present for stream in member.group.held)
        return held == Counter(self.world.streams) and all(member.group.healthy() for member in self.present)

    @staticmethod
    def is_moving(session: Session, number: int) -> bool:
        """Whether the broker still waits for the answer of the active consumer."""
        subscription = session.subscriptions[number]
        return subscription.is_stepping_down or not subscription.is_active

    async def happen(self) -> None:
        """Let something happen."""
        world, chance = self.world, self.chance
        stream = chance.choice(world.streams)
        event = chance.choices(list(EVENTS), list(EVENTS.values()))[0]
        consumers = world.node.consumers.get(("billing", stream), [])
        self.disturbances += event != "publish"
        if event == "publish":
            for _ in range(chance.randint(1, 4)):
                world.node.publish(stream, chance.randint(1, 12))
        elif event == "join" and len(self.present) < 4:
            self.join()
        elif event == "stop" and len(self.present) > 1:
            await chance.choice(self.present).stop()
        elif event == "kill" and len(self.present) > 1:
            await chance.choice(self.present).kill()
        elif event == "move" and len(consumers) > 1 and not self.is_moving(*consumers[0]):
            world.node.move(("billing", stream))
        elif event == "cut" and consumers:
            world.lose(consumers[0][0])
        elif event == "cut waiting" and len(consumers) > 1:
            world.lose(consumers[-1][0])
        elif event == "change" and consumers:
            session = consumers[0][0]
            world.note_losses(session)
            session.tell(StreamChanged(stream, _UNAVAILABLE))

    async def live(self) -> None:
        """Live, and heal."""
        world, chance = self.world, self.chance
        for _ in range(chance.randint(1, 3)):
            self.join()
        for _ in range(15):
            await asyncio.sleep(chance.choice([0.01, 0.3, 1.0, 3.0]))
            await self.happen()
        self.is_faulty = False
        await world.until(world.is_all_handled, "all is handled", 30)
        for stream in world.streams:
            world.node.publish(stream, 1)
        await world.until(world.is_all_handled, "the last rows are handled", 30)
        await world.until(self.is_shared, "each stream has one owner", 60)
        for member in self.present:
            await member.stop()


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_whatever_happens(seed: int) -> None:
    life = Life(seed)
    life.world.run(life.live)
    life.world.check()
    for member in life.world.members:
        assert member.group.reconnects == 0, "a session lives as long as its member"
        assert set(member.lost) <= set(member.gained)
    gained = sum(len(member.gained) for member in life.world.members)
    assert gained <= 12 * (life.disturbances + 3), "hooks are called at elections alone"


async def test_a_member_whose_connection_the_broker_has_dropped_ends_its_batch_and_begins_no_other(
    world: GroupWorld,
) -> None:
    """It does not know that, and has read further rows: the answer of the broker is missing after each batch."""
    world.node.publish("s", 6)
    first = world.member("first", batch_rows=3, before=lambda _: asyncio.sleep(2))
    await world.until(lambda: world.calls, "the first handles a batch")
    second = world.member("second")
    await world.until(lambda: len(world.node.consumers["billing", "s"]) == 2, "the second waits")
    world.node.forget(world.node.reader_of("s"))
    await world.until(world.is_all_handled, "the second handles all")
    await world.until(lambda: first.lost == ["s"], "the first has noticed")
    await asyncio.sleep(30)
    assert [(call.member, call.offsets) for call in world.calls] == [
        ("first", [0, 1, 2]),
        ("second", [0, 1, 2, 3, 4, 5]),
    ]
    for member in (first, second):
        assert member.group.reconnects == 0
        await member.stop()


async def test_a_stream_that_moves_loses_and_repeats_nothing_and_its_connection_stays(
    world: GroupWorld,
) -> None:
    """The next member is elected once the batch in progress is handled, its offset stored, and `on_lost` has returned."""
    world.node.store_delay_s = 0.3
    async with world.joined("a", batch_rows=3, before=lambda _: asyncio.sleep(0.4)) as a:
        await world.until(lambda: a.group.held, "it has the stream")
        async with world.joined("b", batch_rows=3, before=lambda _: asyncio.sleep(0.4)) as b:
            await world.until(lambda: len(world.node.consumers["billing", "s"]) == 2, "the second waits")
            sessions = len(world.node.sessions)
            for moves in range(1, 7):
                world.node.publish("s", 10)
                await asyncio.sleep(0.7)
                world.node.move(("billing", "s"))
                await world.until(lambda moves=moves: len(a.lost) + len(b.lost) == moves, "it moves")  # type: ignore[misc]
            await world.until(world.is_all_handled, "all is handled")
            assert len(a.gained) + len(b.gained) == 7
            # Each election asks the leader for the end of the stream.
            assert len(world.node.sessions) == sessions + 6
            assert {call.member for call in world.calls} == {"a", "b"}
    world.check()
    assert sorted(world.handled("s")) == world.handled("s"), "in order, and none again"


async def test_a_member_that_gets_credit_back_reads_on_after_it_was_passive(world: GroupWorld) -> None:
    """The broker may drop the credit of a passive consumer."""
    async with world.joined("a") as a:
        await world.until(lambda: a.group.held, "it has the stream")
        async with world.joined("b"):
            await world.until(lambda: len(world.node.consumers["billing", "s"]) == 2, "the second waits")
            for _ in range(2):
                session, number = world.node.consumers["billing", "s"][0]
                world.node.move(("billing", "s"))
                session.subscriptions[number].credit = 0
                await asyncio.sleep(1)
            for _ in range(30):
                world.node.publish("s", 2)
            await world.until(world.is_all_handled, "all is handled")
    world.check()
