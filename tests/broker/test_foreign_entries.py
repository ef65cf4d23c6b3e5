"""What other clients write into the journal of groups is ignored and counted; members join and share as before."""

from __future__ import annotations

import asyncio

import pytest
from group_stage import GroupStage, eventually, nothing_was_skipped

from rabbit_chx import AmqpField, Publisher
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.cli.show import read_roster
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.11")]

#: Two that are no entries, and two with values that none has. The unit tests of the journal have others.
ENTRIES = [b"", b"not JSON"]
ENTRIES += [b'{"kind": "ready", "member": "x", "at": NaN}', b'{"kind": "claim", "member": "x", "at": 1e18}']


def write(url: str) -> None:
    """The headers are some that pika and pamqp do not decode."""
    headers = [{"at": AmqpField("timestamp", 1 << 60)}] * len(ENTRIES)
    with Publisher(url, "") as publisher:
        publisher.publish_many([JOURNAL] * len(ENTRIES), ENTRIES, properties={"headers": headers})


def test_a_group_ignores_and_counts_foreign_entries_of_its_journal(vhost: RunningBroker) -> None:
    stage = GroupStage(vhost.url, ["n.0", "n.1"])
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
                at = ConnectionSettings.from_uri(vhost.url)
                roster, ignored = await asyncio.to_thread(read_roster, at, JOURNAL)
                assert (sorted(roster.members), ignored) == (["a", "b"], 4)

    asyncio.run(story())
    assert nothing_was_skipped(stage)
