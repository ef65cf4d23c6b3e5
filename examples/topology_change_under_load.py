"""Change a topology while messages are published and consumed, and account for every message.

python examples/topology_change_under_load.py [--rate MESSAGES_PER_SECOND] [--seconds BEFORE_AND_AFTER]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from rabbit_chx import AsyncBroker, AsyncPublisher, ConsistentHashExchange, PublishReport, Topology
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.rendering import TableColumn, render_table
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost
from rabbit_chx.topology import Plan, RingPlan, plan

FOLDER = Path(__file__).with_name("topology_change")
BEFORE, AFTER, WITHOUT_GAP = (
    FOLDER / name for name in ("before.toml", "after.toml", "after_without_gap.toml")
)
EXCHANGE = "orders"
PAUSE_S = 0.004
DRAIN_S = 15
DRAIN_PAUSE_S = 0.05
#: A machine that consumes more slowly than it publishes would never come to an end.
MOST_WAITING = 5_000


def read_file(path: Path) -> Topology:
    """Return the topology of a file."""
    return Topology.from_toml(path.read_text(), file=path.name)


def key(number: int) -> str:
    """Return the routing key of a message."""
    return f"customer-{number}"


# -- the load


@dataclass(slots=True)
class Load:
    """Messages that are published and consumed; the body of each is its number.

    Attributes:
        publisher: publishes to the exchange, with confirms. It counts the messages that come back.
        channel: consumes.
        rate: messages per second.
        sent: how many messages were sent; their numbers are 0 to `sent` - 1.
        consumed: how many messages were consumed.
        found: the queue of each message that was consumed, by its number.
        ending: set when no more messages shall be sent.
    """

    publisher: AsyncPublisher
    channel: AbstractChannel
    rate: int
    sent: int = 0
    consumed: int = 0
    found: dict[int, str] = field(default_factory=dict)
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    async def publish(self) -> PublishReport:
        """Publish at the rate until the end, and return what became of the messages."""
        clock = asyncio.get_running_loop().time
        started = clock()
        while not self.ending.is_set():
            room = self.consumed + self.publisher.report.returned + MOST_WAITING
            numbers = range(self.sent, min(int((clock() - started) * self.rate), room))
            await self.publisher.send(
                [key(number) for number in numbers], [str(number) for number in numbers]
            )
            self.sent += len(numbers)
            await asyncio.sleep(PAUSE_S)
        return await self.publisher.flush()

    async def consume(self, name: str) -> None:
        """Consume a queue from now on."""

        async def note(message: AbstractIncomingMessage) -> None:
            self.consumed += 1
            self.found[int(message.body)] = name

        queue = await self.channel.get_queue(name)
        await queue.consume(note, no_ack=True)

    async def consume_the_rest(self, confirmed: int) -> None:
        """Wait until all that was confirmed is consumed, but not for ever."""
        for _ in range(int(DRAIN_S / DRAIN_PAUSE_S)):
            if self.consumed >= confirmed:
                return
            await asyncio.sleep(DRAIN_PAUSE_S)


# -- the account


@dataclass(slots=True)
class Moment:
    """The exchange between two steps of the plan, and the messages that it routed then.

    Attributes:
        says: the step that made it so.
        exchange: the mirror.
        routed: messages that were found in the queue that the mirror names.
        returned: messages that came back while the mirror has no queue for them.
    """

    says: str
    exchange: ConsistentHashExchange
    routed: int = 0
    returned: int = 0


def moments_of(change: RingPlan) -> list[Moment]:
    """Return the moments of a change, from the ring before to the ring afterwards."""
    ring = change.before
    moments = [Moment("before", ConsistentHashExchange(EXCHANGE, ring))]
    for step in change.steps:
        destination, key = step.binding.destination, step.binding.routing_key
        ring = (ring.bind if step.action == "bind" else ring.unbind)(destination, key)
        says = f"{step.action} {destination} (key {key})"
        moments.append(Moment(says, ConsistentHashExchange(EXCHANGE, ring)))
    return moments


def account(load: Load, moments: list[Moment]) -> int:
    """Count each message at its moment, and return how many no moment explains.

    The messages went over one channel, which routes them in order. So no message belongs to a moment before that of
    an earlier message.
    """
    now = unexplained = 0
    for number in range(load.sent):
        queue = load.found.get(number)  # None: it was returned
        at = (n for n in range(now, len(moments)) if moments[n].exchange.route(key(number)) == queue)
        then = next(at, None)
        if then is None:
            unexplained += 1
        else:
            now = then
            moments[now].routed += queue is not None
            moments[now].returned += queue is None
    return unexplained


# -- the change


def show_plan(file: Path, planned: Plan) -> None:
    """Print what a plan does, and how many keys it moves."""
    ring = planned.rings[EXCHANGE]
    print(f"\n{file.name}: {len(planned.changes)} changes")
    for change in planned.changes:
        print(f"  {change}")
    print(f"  {ring.moved:.1%} of the keys move in the end, {ring.moved_at_worst:.1%} at the worst moment;")
    print(f"  {ring.lost_at_worst:.1%} have no queue at the worst moment")


def show_account(load: Load, report: PublishReport, change: RingPlan) -> bool:
    """Print what became of the messages, and return whether it is as the plan says."""
    moments = moments_of(change)
    unexplained = account(load, moments)
    columns = [TableColumn("the ring", numeric=False), TableColumn("queued"), TableColumn("returned")]
    print(render_table(columns, [(moment.says, moment.routed, moment.returned) for moment in moments]))
    print(f"sent {load.sent:,} = confirmed {report.confirmed:,} + returned {report.returned:,}")
    print(f"consumed {load.consumed:,}; {unexplained} in a queue that no ring of the plan explains")

    before, after = moments[0].exchange, moments[-1].exchange
    since = range(load.sent - moments[-1].routed, load.sent)
    moved = sum(before.route(key(number)) != after.route(key(number)) for number in since)
    print(
        f"moved: {moved / len(since):.1%} of the {len(since):,} messages afterwards; forecast {change.moved:.1%}"
    )
    returned = sum(moment.returned for moment in moments)
    complete = load.sent == report.confirmed + report.returned and load.consumed == report.confirmed
    return complete and unexplained == 0 and returned == report.returned


async def changed_under_load(broker: RunningBroker, file: Path, rate: int, seconds: float) -> bool:
    """Change the topology to that of a file under load. Return whether each message is accounted for.

    Args:
        broker: a broker with an empty vhost.
        file: the topology to change to.
        rate: messages per second.
        seconds: how long to publish before the change, and after it.
    """
    before, wanted = read_file(BEFORE), read_file(file)
    async with AsyncBroker(broker.url, broker.management_url, ring_source=broker.ring_via) as live:
        await live.apply(plan(before, await live.topology()))
        change = plan(wanted, await live.topology())
        show_plan(file, change)
        async with (
            AsyncPublisher(broker.url, EXCHANGE, on_unroutable="report") as publisher,
            await aio_pika.connect(broker.url) as connection,
        ):
            load = Load(publisher, await connection.channel(), rate)
            for queue in before.queues:
                await load.consume(queue.name)
            publishing = asyncio.create_task(load.publish())
            await asyncio.sleep(seconds)
            await live.apply(change)
            for queue in {*wanted.queues} - {*before.queues}:
                await load.consume(queue.name)
            await asyncio.sleep(seconds)
            load.ending.set()
            report = await publishing
            await load.consume_the_rest(report.confirmed)
    return show_account(load, report, change.rings[EXCHANGE])


def main() -> int:
    """Make the change as written, then in an order without a gap. Return 0 if each message is accounted for, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=3_000, help="messages per second (3000)")
    parser.add_argument("--seconds", type=float, default=1, help="how long to publish before and after (1)")
    arguments = parser.parse_args()
    accounted = []
    try:
        with find_broker() as broker:
            for file in (AFTER, WITHOUT_GAP):
                with temporary_vhost(broker) as vhost:
                    accounted.append(
                        asyncio.run(changed_under_load(vhost, file, arguments.rate, arguments.seconds))
                    )
    except RabbitChxError as cause:
        print(cause, file=sys.stderr)
        return 1
    return 0 if all(accounted) else 1


if __name__ == "__main__":
    sys.exit(main())
