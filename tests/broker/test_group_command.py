"""`rabbit-chx group show` on consumers of a live broker. The data of the API may be 5 s old, so the tests ask again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from exchange_types import CHX
from group_members import ORDERED, consuming
from shop import Shop
from slotted import declare_slots

from rabbit_chx import ConsumerGroup
from rabbit_chx.cli import main as main_of_cli
from rabbit_chx.consuming import GroupMessage
from rabbit_chx.testing.broker_search import release_is_in

pytestmark = pytest.mark.broker

QUEUES = ("events.1", "events.2", "events.3")


def document_when(shop: Shop, answer: Callable[..., Any], done: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 60
    while not done(document := answer("group", "show", "events", *shop.live)):
        assert time.monotonic() < deadline, json.dumps(document, indent=1)
        time.sleep(0.3)
    return document


def actives(document: Any) -> list[list[str]]:
    return [queue["active"] for queue in document["queues"]]


@pytest.mark.extended
def test_a_group_over_slots_shows_the_queue_without_a_consumer(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    declare_slots(shop.channel, "events", 6, QUEUES, ORDERED)
    with (
        consuming(shop.broker.url, "pod-1", {"events.1": 9, "events.2": 1}) as first,
        consuming(shop.broker.url, "pod-2", {"events.1": 1, "events.2": 1}),
    ):
        for number in range(60):
            shop.channel.basic_publish("events", f"key {number}", b"")
        document = document_when(
            shop,
            answer,
            lambda found: (
                actives(found) == [["pod-1"], ["pod-1"], []]
                and [queue["unacked"] for queue in found["queues"]] == [1, 1, 0]
                and sum((queue["ready"] or 0) + (queue["unacked"] or 0) for queue in found["queues"]) == 60
                and all(member["connected_at"] is not None for member in found["members"])
            ),
        )
        assert [queue["name"] for queue in document["queues"]] == list(QUEUES)
        assert [queue["waiting"] for queue in document["queues"]] == [["pod-2"], ["pod-2"], []]
        members = {member["name"]: (member["active"], member["waiting"]) for member in document["members"]}
        assert members == {"pod-1": (["events.1", "events.2"], []), "pod-2": ([], ["events.1", "events.2"])}
        assert document["parked"] == 0
        # From 4.0 on priorities count for quorum queues.
        ignored = {"priority-ignored": ["events.1"]} if release_is_in(shop.broker.version, "<4.0") else {}
        assert {finding["kind"]: finding["queues"] for finding in document["findings"]} == {
            "no-consumer": ["events.3"],
            "unbalanced": [],
            **ignored,
        }

        first.close()
        document_when(
            shop,
            answer,
            lambda found: (
                actives(found) == [["pod-2"], ["pod-2"], []]
                and [member["name"] for member in found["members"]] == ["pod-2"]
            ),
        )
        capsys.readouterr()
        assert main_of_cli(["group", "show", "events", *shop.live]) == 0
        printed = capsys.readouterr().out
        assert "group     3 queues, 1 member\n" in printed
        assert "no-consumer  events.3 has no consumer" in printed


@pytest.mark.chx_broker(">=3.9", "streams, for the journal of a group")
def test_the_last_switch_is_read_from_the_journal_of_a_real_group(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("events", CHX)
    for queue in QUEUES[:2]:
        shop.channel.queue_declare(queue, durable=True, arguments=ORDERED)
        shop.channel.queue_bind(queue, "events", "1")
    began = datetime.now(UTC)

    async def main() -> Any:
        handled = asyncio.Event()

        async def handle(_: GroupMessage) -> None:
            handled.set()

        async with ConsumerGroup(shop.broker.url, QUEUES[:2], member="pod-7") as group:
            running = asyncio.create_task(group.run(handle))
            shop.channel.basic_publish("", "events.1", b"")
            async with asyncio.timeout(60):
                await handled.wait()
            document = await asyncio.to_thread(answer, "group", "show", "events", *shop.live)
            group.stop()
            await running
        return document

    first, second = asyncio.run(main())["queues"]
    assert began <= datetime.fromisoformat(first["last_switch"]) <= datetime.now(UTC)
    assert second["last_switch"] is None, "nothing came to this queue, so nobody began with it"
    assert (
        answer("group", "show", "events", *shop.live, "--journal", "another")["queues"][0]["last_switch"]
        is None
    )
    assert main_of_cli(["group", "show", "events", *shop.live]) == 0
    assert f" {first['last_switch'][:10]} " in capsys.readouterr().out


def test_an_unknown_group_is_refused(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.channel.exchange_declare("empty", CHX)
    assert main_of_cli(["group", "show", "empty", *shop.live]) == 2
    assert "exchange 'empty' has no bound queue to consume from" in capsys.readouterr().err
    assert main_of_cli(["group", "show", "nowhere", *shop.live]) == 2
    assert main_of_cli(["group", "show", "orders", "--url", shop.broker.url]) == 2
    assert "pass --management-url" in capsys.readouterr().err
