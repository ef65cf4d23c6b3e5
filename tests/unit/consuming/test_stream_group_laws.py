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

from rabbit_chx.streams.frames import StreamChanged

#: More by `make long WHAT=simulate`.
_SEEDS = int(os.environ.get("GROUP_SEEDS", "5"))
#: Events of a life, by their weights.
EVENTS = {
    "publish": 8,
    "cut": 3,
    "cut waiting": 1,
    "change": 1,
    "cut journal": 1,
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
        """Whether each stream has one owner, and the shares are even."""
        held = Counter(stream for member in self.present for stream in member.group.held)
        shares = [len(member.group.held) for member in self.present]
        is_even = max(shares) - min(shares) <= 1 and held == Counter(self.world.streams)
        return is_even and all(member.group.healthy() for member in self.present)

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
        elif event == "cut journal":
            world.lose(chance.choice(world.node.open_sessions()))
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
        names = {member.name for member in self.present}
        await world.until(lambda: all(set(each.group.members) == names for each in self.present), "known", 30)
        for stream in world.streams:  # a member whose claim was superseded claims it again at the next rows
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


async def test_a_member_that_another_one_has_superseded_handles_nothing_more(world: GroupWorld) -> None:
    """The broker has dropped its connection, and it does not know that: its next claim is confirmed by the broker before it counts."""
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
