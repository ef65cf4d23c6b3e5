"""What other clients write into the journal of groups is ignored and counted; members join and share as before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pika
import pytest
from group_stage import GroupStage, eventually, nothing_was_skipped
from stream_group_stage import StreamGroupStage

from rabbit_chx.broker import pika_parameters
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.11")]

_FIELDS = [
    b'{"kind": "ready", "member": "x", "at": 1' + b"0" * 400 + b"}",
    b'{"kind": "ready", "member": "x", "at": NaN}',
    b'{"kind": "ready", "member": "\\ud800", "at": 1, "queues": ["n.0"]}',
    b'{"kind": "ready", "member": "x", "at": 1, "weight": 1e999, "queues": ["n.0"]}',
    b'{"kind": "claim", "member": "x", "at": 1e18, "queue": "n.0"}',
]
_BODIES = [b"", b"\0\xff", b"not JSON", b"[" * 10_000, b"null", *_FIELDS]  # also for a ConsumerGroup
_GROUP = "billing"


def write(url: str) -> None:
    """Write into the journal: five messages that are of no group, and five for each kind of group."""
    of_group = [b'{"group": "billing", "entry": %b}' % fields for fields in _FIELDS]
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in _BODIES + of_group:
            channel.basic_publish("", JOURNAL, body)


@pytest.mark.parametrize("kind", ["queues", "streams"])
def test_a_group_ignores_and_counts_foreign_entries_of_its_journal(
    vhost: RunningBroker, answer: Callable[..., Any], kind: str
) -> None:
    stage = GroupStage(vhost.url, ["n.0", "n.1"])
    if kind == "streams":
        stage = StreamGroupStage(vhost.stream_url, stage.queues, group=_GROUP)
    stage.declare()

    async def story() -> None:
        stage.publish(10)
        async with stage.member("a") as a:
            await eventually(lambda: len(a.held) == 2, "the first member has both")
            await asyncio.to_thread(write, vhost.url)
            await eventually(lambda: a.healthy().ignored_entries == 10, "they are counted")
            async with stage.member("b") as b:
                with stage.load(5):
                    await eventually(lambda: len(a.held) == len(b.held) == 1, "each has one")
                await eventually(stage.all_handled, "all is handled")
                assert a.healthy()
                assert a.reconnects == b.reconnects == 0
                if kind == "streams":
                    show = ("group", "show", *stage.queues, "--stream-group", _GROUP)
                    document = await asyncio.to_thread(answer, *show, "--url", vhost.stream_url)
                    assert document["ignored_entries"] == a.healthy().ignored_entries
                    assert [share["active"] for share in document["streams"]] != [None, None]

    asyncio.run(story())
    assert nothing_was_skipped(stage)
