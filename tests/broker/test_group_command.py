"""`rabbit-chx show --consumers` on a live broker. The pages of the commands show a group of two members over slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from exchange_types import CHX
from group_members import ORDERED
from shop import Shop

from rabbit_chx import ConsumerGroup
from rabbit_chx.cli import main as main_of_cli
from rabbit_chx.consuming import GroupMessage

pytestmark = pytest.mark.broker

QUEUES = ("events.1", "events.2")


@pytest.mark.chx_broker(">=3.9", "streams, for the journal of a group")
def test_the_last_switch_is_read_from_the_journal_of_a_real_group(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("events", CHX)
    for queue in QUEUES:
        shop.channel.queue_declare(queue, durable=True, arguments=ORDERED)
        shop.channel.queue_bind(queue, "events", "1")
    began = datetime.now(UTC)

    async def main() -> None:
        async with ConsumerGroup(shop.broker.url, QUEUES, member="pod-7") as group:

            async def handle(_: GroupMessage) -> None:
                group.stop()

            shop.channel.basic_publish("", "events.1", b"")
            await asyncio.wait_for(group.run(handle), 60)

    asyncio.run(main())
    first, second = answer("show", "events", "--consumers", *shop.live)["queues"]
    assert began <= datetime.fromisoformat(first["last_switch"]) <= datetime.now(UTC)
    assert second["last_switch"] is None, "nothing came to this queue, so nobody began with it"
    other = answer("show", "events", "--consumers", *shop.live, "--journal", "another")
    assert other["queues"][0]["last_switch"] is None
    assert main_of_cli(["show", "events", "--consumers", *shop.live]) == 0
    assert f" {first['last_switch'][:10]} " in capsys.readouterr().out


def test_an_unknown_group_is_refused(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.channel.exchange_declare("empty", CHX)
    assert main_of_cli(["show", "empty", "--consumers", *shop.live]) == 2
    assert "exchange 'empty' has no bound queue to consume from" in capsys.readouterr().err
    assert main_of_cli(["show", "nowhere", "--consumers", *shop.live]) == 2
    assert main_of_cli(["show", "orders", "--consumers", "--url", shop.broker.url]) == 2
    assert "pass --management-url" in capsys.readouterr().err
