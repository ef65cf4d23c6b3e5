"""What a runner does with claims and parked messages, and what an error of a connection does to a member that calls it.

The session ends with the error, and a member that leaves ignores it. `test_channels.py` has the errors of the client library, and `test_group.py` the next session.
"""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

import pytest
from group_stage import eventually
from scripted_group import ScriptedStage, message

from rabbit_chx.consuming.ownership import DeliveredMessage
from rabbit_chx.errors import ConnectionLostError, NotFoundError
from rabbit_chx.topology.slots import HandOverMarker

GONE = AsyncMock(side_effect=ConnectionLostError("gone"))


@pytest.mark.parametrize("call", ["read_journal", "publish", "consume_behind", "abandon"])
async def test_an_error_of_a_call_ends_the_session(call: str) -> None:
    stage = ScriptedStage()
    setattr(stage.connection, call, GONE)
    async with stage.running() as running:
        if call == "abandon":
            await stage.consuming()
            stage.runners[0].execute(stage.runners[0].ownership.step_back())
        with pytest.raises(ConnectionLostError, match="gone"):
            await running
        assert stage.session.is_lost


@pytest.mark.parametrize("call", ["publish", "abandon"])
async def test_a_member_that_leaves_ignores_an_error_of_a_call(call: str) -> None:
    stage = ScriptedStage()
    async with stage.running() as running:
        await stage.consuming()
        line = await stage.owned()
        stage.stop.set()
        await running
        setattr(stage.connection, call, GONE)
        line.abandon = GONE  # type: ignore[method-assign]
        await stage.session.leave()
        await stage.session.close([line])  # type: ignore[list-item]
    assert stage.connection.is_closed


async def test_a_claim_that_is_read_twice_changes_nothing() -> None:
    """A claim is published again where its confirm was lost."""
    stage = ScriptedStage()
    async with stage.running():
        await stage.consuming()
        line = await stage.owned()
        ownership = stage.runners[0].ownership
        before = ownership.generation
        claim = next(entry for entry in stage.journal.entries if entry.kind == "claim")
        stage.journal.write(claim)
        await stage.connection.deliver("q.0", 2)
        await eventually(lambda: line.acked == [1, 2], "it goes on")
        assert (ownership.generation, ownership.is_held) == (before, True)
        assert stage.journal.kinds("a").count("claim") == 2


async def test_the_marker_of_a_hand_over_begins_to_fetch_what_is_parked() -> None:
    stage = ScriptedStage()
    async with stage.running():
        await stage.consuming()
        line = await stage.owned()
        line.fetch = AsyncMock(return_value=None)  # type: ignore[attr-defined]
        marker = HandOverMarker("begin", "3", "1", "e.park")
        line.take(DeliveredMessage(2, "", marker=marker))
        await eventually(lambda: line.fetch.call_args, "it asks the parking queue")  # type: ignore[attr-defined]
        line.fetch.assert_awaited_with("e.park")  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_deleted_later", [False, True])
async def test_a_marker_whose_parking_queue_does_not_exist_is_taken_and_the_queue_goes_on(
    *, is_deleted_later: bool
) -> None:
    """Such as one of a shovel, or a copy. Otherwise each member of the group would end with it."""
    stage = ScriptedStage()
    async with stage.running() as running:
        await stage.consuming()
        line = await stage.owned()
        gone = NotFoundError("no queue 'e.park'", queue="e.park")
        line.fetch = AsyncMock(side_effect=gone)  # type: ignore[attr-defined]
        if not is_deleted_later:
            stage.connection.missing.add("e.park")
        line.take(DeliveredMessage(2, "", marker=HandOverMarker("begin", "3", "1", "e.park")))
        line.take(message("q.0", 3))
        if is_deleted_later:
            await eventually(lambda: line.fetch.await_count, "it asks the parking queue")  # type: ignore[attr-defined]
            line.close()  # as the broker does
            with pytest.raises(ConnectionLostError, match=r"the channel that consumes 'q\.0' was closed"):
                await running
        else:
            await eventually(lambda: line.acked == [1, 2, 3], "it goes on")


async def test_a_redelivered_message_is_handled_and_acknowledged_before_the_others() -> None:
    stage = ScriptedStage()
    for runner in stage.runners:
        runner.ownership.is_limited = True
    async with stage.running():
        await stage.consuming()
        line, other = (stage.connection.lines[queue][-1] for queue in ("q.0", "q.1"))
        line.ackable.clear()
        other.take(message("q.1", 7))
        line.take(message("q.0", 8, returns=1))
        await eventually(lambda: stage.handled == [8], "it is handled first")
        await asyncio.sleep(0.1)
        assert stage.handled == [8], "its ack is under way"
        line.ackable.set()
        await eventually(lambda: stage.handled == [8, 7], "the other queue goes on")
