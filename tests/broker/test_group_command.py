"""`rabbit-chx show --consumers` on a live broker. The pages of the commands show a group of two members over slots."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from canary import CANARY
from declared import with_login
from exchange_types import CHX
from group_members import ORDERED
from shop import Shop

from rabbit_chx import ConsumerGroup
from rabbit_chx.cli import main as main_of_cli
from rabbit_chx.consuming import GroupMessage

pytestmark = pytest.mark.broker

QUEUES = ("events.1", "events.2")


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


def test_a_user_who_sees_no_consumers_is_told_so_and_gets_their_numbers(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """RabbitMQ lists consumers to the owner of their connection, and to users with the tag monitoring."""
    for _ in range(2):
        shop.channel.basic_consume("q1", lambda *_: None)
    user = f"tagged-{shop.settings.vhost}"
    shop.management.request("PUT", "users", user, body={"password": CANARY, "tags": "management"})
    try:
        rights = dict.fromkeys(("configure", "write", "read"), ".*")
        shop.management.request("PUT", "permissions", shop.settings.vhost, user, body=rights)
        as_user = [with_login(each, user, CANARY) if "://" in each else each for each in shop.live]
        words = ("show", "orders", "--consumers")
        count = None
        deadline = time.monotonic() + 60
        while count != 2:  # the figures of the management API are some seconds old
            assert time.monotonic() < deadline, count
            assert main_of_cli([*words, *as_user, "-o", "json"]) in (0, 3)
            hidden = json.loads(capsys.readouterr().out)
            count = {queue["name"]: queue["consumers"] for queue in hidden["queues"]}["q1"]
        assert hidden["determined"] is False
        assert {queue["name"]: queue["active"] for queue in hidden["queues"]}["q1"] is None
        assert not [each for each in hidden["findings"] if each["destination"] == "q1"]
        main_of_cli([*words, *as_user])
        text = " ".join(capsys.readouterr().out.split())
        assert "members not visible" in text
        assert "use one with the tag monitoring" in text
    finally:
        shop.management.request("DELETE", "users", user)
    seen = answer(*words, *shop.live)
    assert {queue["name"]: len(queue["active"]) for queue in seen["queues"]}["q1"] == 2
    kinds = {each["kind"] for each in seen["findings"]}
    of_group = {"other-consumer", "no-single-active-consumer"}
    assert not kinds & of_group, "consumers of an exchange without a group are no fault"
