"""What other clients write into the journal of groups is ignored and counted; members join and share as before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from group_stage import GroupStage, eventually, nothing_was_skipped
from stream_group_stage import StreamGroupStage

from rabbit_chx import AmqpField, Publisher
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.cli.show_consumers import read_roster
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.11")]

#: Two that are of no group, two of a `ConsumerGroup`, and two of a `StreamGroup`. The unit tests of the journal have others.
ENTRIES = [b"", b"not JSON"]
ENTRIES += [b'{"kind": "ready", "member": "x", "at": NaN}', b'{"kind": "claim", "member": "x", "at": 1e18}']
ENTRIES += [b'{"group": "billing", "entry": %b}' % entry for entry in ENTRIES[2:]]


def write(url: str) -> None:
    """The headers are some that pika and pamqp do not decode."""
    headers = [{"at": AmqpField("timestamp", 1 << 60)}] * len(ENTRIES)
    with Publisher(url, "") as publisher:
        publisher.publish_many([JOURNAL] * len(ENTRIES), ENTRIES, properties={"headers": headers})


@pytest.mark.parametrize("kind", ["queues", "streams"])
def test_a_group_ignores_and_counts_foreign_entries_of_its_journal(
    vhost: RunningBroker, answer: Callable[..., Any], kind: str
) -> None:
    stage = GroupStage(vhost.url, ["n.0", "n.1"])
    if kind == "streams":
        stage = StreamGroupStage(vhost.stream_url, stage.queues)
    stage.declare()

    async def story() -> None:
        stage.publish(10)
        async with stage.member("a") as a:
            await eventually(lambda: len(a.held) == 2, "the first member has both")
            await asyncio.to_thread(write, vhost.url)
            await eventually(lambda: a.healthy().ignored_entries == 4, "they are counted")
            async with stage.member("b") as b:
                with stage.load(5):
                    await eventually(lambda: len(a.held) == len(b.held) == 1, "each has one")
                await eventually(stage.all_handled, "all is handled")
                assert a.healthy()
                assert a.reconnects == b.reconnects == 0
                if kind == "queues":
                    at = ConnectionSettings.from_uri(vhost.url)
                    roster, ignored = await asyncio.to_thread(read_roster, at, JOURNAL)
                    assert (sorted(roster.members), ignored) == (["a", "b"], 4)
                else:
                    show = (
                        "show",
                        *stage.queues,
                        "--consumers",
                        "--stream-group",
                        "billing",
                        "--url",
                        stage.url,
                    )
                    shown = await asyncio.to_thread(answer, *show)
                    owners = {queue: group.member for group in (a, b) for queue in group.held}
                    streams = [
                        (each["stream"], each["assigned"], each["active"]) for each in shown["streams"]
                    ]
                    assert streams == [(queue, owners[queue], owners[queue]) for queue in stage.queues]
                    assert [(each["name"], each["assigned"]) for each in shown["members"]] == [
                        ("a", 1),
                        ("b", 1),
                    ]
                    assert shown["ignored_entries"] == 4

    asyncio.run(story())
    assert nothing_was_skipped(stage)
