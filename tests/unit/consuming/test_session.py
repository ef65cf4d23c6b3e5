"""What a member does over one connection: it writes, reads, claims, shows itself, misses others, leaves, and is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from group_stage import eventually
from scripted_group import BRISK
from scripted_group import ScriptedStage as Stage

from rabbit_chx.consuming import GroupTiming
from rabbit_chx.consuming.journal import JournalEntry
from rabbit_chx.consuming.session import StallDetector
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, HandlerError, InputError, NotFoundError


@asynccontextmanager
async def consuming_stage(timing: GroupTiming = BRISK) -> AsyncIterator[tuple[Stage, asyncio.Task[None]]]:
    """A stage whose member consumes, and the task that runs it."""
    stage = Stage(timing)
    async with stage.running() as running:
        await stage.consuming()
        yield stage, running


def other(kind: Any) -> JournalEntry:
    """An entry of the member `b`; a claim is of the queue `q.0`."""
    queues = ("q.0", "q.1") if kind == "ready" else ()
    return JournalEntry(kind, "b", 0.0, 1.0, queues, "q.0" if kind == "claim" else "", "b1")


async def test_a_message_is_handled_when_its_claim_is_read() -> None:
    async with consuming_stage() as (stage, _):
        stage.journal.readers.clear()
        line = await stage.connection.deliver("q.0", 1)
        await eventually(lambda: "claim" in stage.journal.kinds("a"), "it claims the queue")
        await asyncio.sleep(0.05)
        assert stage.handled == [], "another member may have been elected meanwhile"
        offset, claim = next(
            (n, entry) for n, entry in enumerate(stage.journal.entries) if entry.kind == "claim"
        )
        stage.session.on_entry(offset, claim)
        await eventually(lambda: line.acked == [1], "it is handled and acknowledged")


async def test_while_the_broker_blocks_publishers_a_member_handles_what_it_has_and_claims_nothing() -> None:
    async with consuming_stage() as (stage, running):
        line = await stage.owned()
        stage.journal.block()
        await stage.connection.deliver("q.0", 2, 3)
        await stage.connection.deliver("q.1", 9)
        await eventually(lambda: line.acked == [1, 2, 3], "it goes on")
        await asyncio.sleep(3 * BRISK.journal_s)
        assert not running.done()
        assert stage.handled == [1, 2, 3], "a queue cannot be claimed"
        written = len(stage.journal.entries)
        stage.journal.unblock()
        await eventually(lambda: stage.handled == [1, 2, 3, 9], "the claim is written")
        told = [entry.kind for entry in stage.journal.entries[written:]]
        assert told.count("alive") <= told.index("claim") + 2, f"signs of life do not pile up: {told}"


@pytest.mark.parametrize("begins", ["in the alarm", "before it"])
async def test_a_member_that_is_elected_while_the_broker_blocks_takes_the_queue_without_a_claim(
    begins: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its consumers may be what ends the alarm. The generation is above that of all claims, and the claim follows when it can be written."""
    for module in ("session", "runner"):
        monkeypatch.setattr(f"rabbit_chx.consuming.{module}.BLOCKED_S", 0.05)
    generations = []

    async def handle(message: Any) -> None:
        generations.append(message.generation)

    stage = Stage()
    stage.session.handle = handle
    for kind in ("ready", "claim", "alive"):
        stage.journal.write(other(kind))
    if begins == "in the alarm":
        stage.journal.block()
    async with stage.running() as running:
        await stage.consuming()
        stage.journal.block()
        line = await stage.connection.deliver("q.0", 1)
        await eventually(lambda: line.acked == [1], "it handles a message")
        last = len(stage.journal.entries) - 1
        assert last >= 2
        assert generations == [last]
        assert "blocks publishers" in caplog.text
        assert "claim" not in stage.journal.kinds("a")
        stage.journal.unblock()
        await eventually(lambda: "claim" in stage.journal.kinds("a"), "the claim is written")
        await asyncio.sleep(0.05)
        await stage.connection.deliver("q.0", 2)
        await eventually(lambda: len(generations) == 2, "it goes on")
        assert generations[1] > last
        assert not running.done()


async def test_a_member_that_stops_says_once_which_handler_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rabbit_chx.consuming.settings.LONG_S", 0.05)
    async with consuming_stage() as (stage, _):
        stage.gate.clear()
        await stage.connection.deliver("q.0", 1)
        await eventually(lambda: stage.runners[0].ownership.is_handling, "it handles")
        await asyncio.sleep(0.2)
        assert "has waited" not in caplog.text, "to handle a message is no wait"
        leaving = asyncio.ensure_future(stage.session.leave())
        await eventually(
            lambda: "q.0 has waited for 0.05 s for its handlers to end" in caplog.text, "it says so"
        )
        await asyncio.sleep(0.2)
        stage.gate.set()
        await leaving
    assert caplog.text.count("has waited") == 1


async def test_a_claim_that_nothing_blocks_and_nobody_writes_ends_the_session() -> None:
    async with consuming_stage() as (stage, running):
        stage.journal.open.clear()
        await stage.connection.deliver("q.0", 1)
        with pytest.raises(BrokerTimeoutError, match=r"the claim of 'q\.0' is not in the stream"):
            await running


async def test_a_claim_that_is_written_and_never_read_ends_the_session() -> None:
    async with consuming_stage() as (stage, running):
        stage.journal.readers.clear()
        await stage.connection.deliver("q.0", 1)
        with pytest.raises(ConnectionLostError, match=r"the claim of 'q\.0' was written"):
            await asyncio.wait_for(running, 20)
        assert "claim" in stage.journal.kinds("a")
        assert stage.handled == []


@pytest.mark.parametrize("is_stopped", [True, False], ids=["is stopped", "joins"])
async def test_a_member_that_cannot_write_waits_until_it_can_or_is_stopped(*, is_stopped: bool) -> None:
    stage = Stage()
    stage.journal.block()
    async with stage.running() as running:
        await asyncio.sleep(3 * BRISK.journal_s)
        assert not running.done()
        assert not stage.connection.lines
        if is_stopped:
            stage.stop.set()
            await asyncio.wait_for(running, 5)
        else:
            stage.journal.unblock()
            await stage.consuming()


async def test_a_member_is_not_removed_because_none_could_write() -> None:
    stage = Stage()

    async def live() -> None:  # another member, as often as this one
        while True:
            await stage.journal.open.wait()
            stage.journal.write(other("alive"))
            await asyncio.sleep(BRISK.alive_s)

    stage.journal.write(other("ready"))
    async with stage.running():
        living = asyncio.create_task(live())
        await stage.ready()
        stage.journal.block()
        await asyncio.sleep(4 * BRISK.gone_s)
        stage.journal.unblock()
        await asyncio.sleep(2 * BRISK.gone_s)
        assert "gone" not in [entry.kind for entry in stage.journal.entries]
        living.cancel()
        await eventually(lambda: "gone" in stage.journal.kinds("b"), "it is missed when it is silent")


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
async def test_a_member_waits_until_it_has_been_healthy_unless_it_is_the_first(*, is_first: bool) -> None:
    stage = Stage(GroupTiming(warm_up_s=600.0))
    if not is_first:
        stage.journal.write(other("ready"))
    async with stage.running():
        await stage.consuming()
        if is_first:
            await stage.ready()
        else:
            await asyncio.sleep(0.1)
            assert stage.journal.kinds("a") == ["alive"]


async def test_an_owner_shows_itself_before_its_next_sign_of_life() -> None:
    """Whoever has its queue lets go then."""
    async with consuming_stage(GroupTiming(warm_up_s=0.01, alive_s=300.0, gone_s=600.0)) as (stage, _):
        await eventually(lambda: stage.journal.kinds("a") == ["alive", "ready", "alive"], "it shows itself")


async def test_a_member_that_leaves_consumes_nothing_any_more() -> None:
    """So the others share its queues at once."""
    async with consuming_stage() as (stage, _):
        await stage.ready()
        await stage.owned()
        await stage.session.leave()
    entries = [entry for entry in stage.journal.entries if entry.kind in ("ready", "released", "left")]
    came, leaves, released, left = entries
    assert set(came.queues) == {"q.0", "q.1"}
    assert (released.kind, released.queue) == ("released", "q.0")
    assert (leaves.kind, leaves.queues) == ("ready", ())
    assert left.kind == "left"


async def test_leaving_is_not_held_up_by_a_broker_that_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rabbit_chx.consuming.session._FAREWELL_S", 0.05)
    async with consuming_stage() as (stage, _):
        await stage.ready()
        line = await stage.owned()
        stage.journal.block()
        async with asyncio.timeout(5):
            await stage.session.leave()
        assert line.abandoned


@pytest.mark.parametrize("under_way", ["nothing", "handler", "consume", "claim", "ack"])
async def test_a_lost_connection_ends_the_session_at_once_whatever_is_under_way(under_way: str) -> None:
    async with consuming_stage(GroupTiming()) as (stage, running):
        connection = stage.connection
        line = connection.lines["q.0"][0]
        match under_way:
            case "handler" | "ack":
                stage.gate.clear()
                await connection.deliver("q.0", 1, 2)
                await eventually(lambda: stage.runners[0].ownership.is_held, "it has the queue")
                if under_way == "ack":
                    line.ackable.clear()
                    stage.gate.set()
                    await eventually(lambda: stage.handled == [1], "the first one is handled")
            case "consume":
                connection.consumable.clear()
                stage.runners[0].execute(stage.runners[0].ownership.step_back())
            case "claim":
                stage.journal.block()
                await connection.deliver("q.0", 1)
        await asyncio.sleep(0.05)
        connection.cut()
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionLostError):
                await running
            stage.session.detach()
            await eventually(
                lambda: all(runner.ownership.is_finished for runner in stage.runners), "nothing is left"
            )
        assert stage.cancelled == (under_way == "handler")
        if under_way == "ack":
            line.ackable.set()
            await asyncio.sleep(0.05)
            assert line.acked == [], "it is not sent any more"


async def test_a_session_whose_tasks_the_event_loop_cancels_is_lost() -> None:
    async with consuming_stage() as (stage, _):
        assert not stage.session.is_lost
        for task in list(stage.session._tasks):
            task.cancel()
        await eventually(lambda: stage.session.is_lost, "leaving it waits for no answer of the broker")


async def test_data_of_a_connection_that_was_given_up_is_ignored() -> None:
    """Its queues have another connection by then."""
    async with consuming_stage() as (stage, _):
        stage.session.detach()
        stage.session.on_entry(7, other("claim"))
        assert not stage.session.roster.claims
        await eventually(lambda: not stage.session._tasks, "it looks and writes no more")


async def test_entries_that_cannot_be_read_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Stage().session
    for offset in (3, 4):
        session.on_entry(offset, None)
    assert session.ignored_entries == 2
    assert ["at offset 3" in message for message in caplog.messages] == [True]


async def test_a_consumer_of_a_member_with_a_journal_has_the_default_priority() -> None:
    """So the broker elects in the order of subscription, also among members of other versions."""
    assert Stage().session.priority("q.0") == 0


async def test_the_journal_is_read_from_before_the_last_ready_entry_of_any_live_member() -> None:
    stage = Stage(GroupTiming(alive_s=300.0, gone_s=600.0))
    stage.connection.read_journal = AsyncMock(wraps=stage.connection.read_journal)  # type: ignore[method-assign]
    async with stage.running():
        await stage.consuming()
    (_, since_s, _), _ = stage.connection.read_journal.call_args
    assert since_s < time.time() - 20 * 300.0 - 600.0


async def test_the_log_lists_the_queues_of_each_member(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rabbit_chx")
    async with consuming_stage() as (stage, _):
        await stage.ready()
        await stage.connection.deliver("q.0", 1)
        await stage.connection.deliver("q.1", 1)
        await eventually(lambda: len(stage.handled) == 2, "it has both queues")
        stage.journal.write(other("ready"))
        for _ in range(3):
            stage.journal.write(other("alive"))
        await eventually(
            lambda: [runner.ownership.is_held for runner in stage.runners].count(True) == 1,
            "it lets go of one",
        )
        await eventually(lambda: "gone" in stage.journal.kinds("b"), "the other one is silent")
        await eventually(lambda: "the members are a" in caplog.messages[-1], "it has read that")
    said = "\n".join(caplog.messages)
    assert "group member a: the members are a\n" in said
    assert "group member a owns q.0, generation" in said
    assert "group member a: the members are a, b\n" in said
    for told in (" steps back from q.", " for b, generation", " no longer owns q."):
        assert told in said
    assert "group member b counts as dead: it wrote no heartbeat for 0.2 s" in said
    owned = [vars(record) for record in caplog.records if " owns q." in record.getMessage()]
    assert {fields["queue"] for fields in owned} == {"q.0", "q.1"}
    assert all(isinstance(fields["generation"], int) for fields in owned)


async def test_the_first_error_ends_a_session_and_an_error_of_a_handler_is_not_a_loss() -> None:
    stage = Stage()
    stage.session.fail(HandlerError("the handler failed"))
    was_lost = stage.session.is_lost
    stage.session.fail(ConnectionLostError("the connection is gone"))
    assert (was_lost, stage.session.is_lost) == (False, True)
    with pytest.raises(HandlerError):
        await stage.session.run(stage.stop)


@pytest.mark.parametrize("is_own", [True, False], ids=["an earlier connection", "another process"])
async def test_of_two_processes_of_one_name_the_later_one_ends_silently(*, is_own: bool) -> None:
    """What an earlier connection of this process has written is no other process."""
    stage = Stage(former=("a0",) if is_own else ())
    sign = JournalEntry("alive", "a", 0.0, token="a0")  # noqa: S106
    ready = JournalEntry("ready", "a", 0.0, queues=("q.0", "q.1"), token=stage.session.token)
    for offset, entry in enumerate((sign, ready, sign, sign)):
        stage.session.on_entry(offset, entry)
    stage.stop.set()
    refused = pytest.raises(InputError, match="another process is the member 'a'")
    with nullcontext() if is_own else refused:
        await stage.session.run(stage.stop)
    await stage.session.leave()
    assert ("left" in stage.journal.kinds("a")) is is_own, "the other process is still there"


async def test_a_member_that_has_left_is_reported_once_even_if_it_is_read_late() -> None:
    stage = Stage()
    stage.journal.write(other("ready"))
    async with stage.running():
        await stage.ready()
        (take,) = stage.journal.readers
        stage.journal.readers[:] = [
            lambda offset, entry: None if entry.kind == "gone" else take(offset, entry)
        ]
        await eventually(lambda: "gone" in stage.journal.kinds("b"), "the other one is silent")
        signs = len(stage.journal.kinds("a"))
        await eventually(lambda: len(stage.journal.kinds("a")) > signs + 5, "it looks again and again")
        assert stage.journal.kinds("b").count("gone") == 1


async def test_a_queue_that_another_member_has_is_not_consumed_again() -> None:
    async with consuming_stage(replace(BRISK, watch_s=0.02)) as (stage, _):
        stage.connection.waiting.update({"q.0": 5, "q.1": 5})
        stage.journal.write(other("claim"))
        await eventually(lambda: len(stage.connection.lines["q.1"]) > 1, "nobody has the other queue")
        assert len(stage.connection.lines["q.0"]) == 1


@pytest.mark.parametrize("holder", ["this member", "another one"])
async def test_a_queue_that_is_gone_is_found_although_the_broker_cancels_nothing(holder: str) -> None:
    """A fake, since a quorum queue accepts a consumer in its last moments only now and then."""
    async with consuming_stage(replace(BRISK, watch_s=0.02)) as (stage, running):
        if holder == "another one":
            stage.journal.write(other("claim"))
        stage.connection.missing.add("q.0")
        with pytest.raises(NotFoundError, match=r"no queue 'q\.0'"):
            await asyncio.wait_for(running, 20)


def looks(watch: StallDetector, count: int, *, waiting: int = 5, delivered: int = 7) -> list[int]:
    """Look so many times and return at which looks the queue is to be consumed anew."""
    return [number for number in range(1, count + 1) if watch.check("q", waiting, delivered)]


def test_a_queue_without_deliveries_is_consumed_again_at_growing_intervals() -> None:
    assert looks(StallDetector(), 40) == [2, 5, 10, 19, 36]


def test_after_two_renewals_in_vain_the_cure_is_named() -> None:
    watch = StallDetector()
    told = [warning for _ in range(10) if (warning := watch.check("q", 1234, 7))]
    assert told[0] == told[1] == "q: 1,234 messages wait and none is delivered: consuming it again"
    assert "restart the node that leads the queue" in told[2]


def test_a_queue_that_delivers_or_is_empty_or_busy_between_two_looks_is_left_alone() -> None:
    watch = StallDetector()
    assert not any(watch.check("p", 5, delivered) for delivered in range(20))
    for _ in range(5):
        assert not any(watch.check("q", waiting, 7) for waiting in (5, 0, 5))
        watch.forget("q")
    assert watch.check("q", 5, 6) is None
    assert looks(watch, 4) == [3]


def test_queues_are_distinguished() -> None:
    watch = StallDetector()
    assert [watch.check(queue, 5, 7) is None for queue in "pqp"] == [True, True, False]
