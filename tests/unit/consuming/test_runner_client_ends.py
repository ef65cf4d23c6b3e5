"""Whatever a client library raises at the end of a connection, in whichever call: a member reconnects, and leaves without an error.

The library and the broker are a script (`scripted_client`); the errors are those of `client_ends`.
"""

from __future__ import annotations

import asyncio

import aio_pika
import pytest
from client_ends import CALL_ENDS, CONNECT_ENDS
from group_stage import eventually
from scripted_client import JOURNAL, ScriptedClient

from rabbit_chx import ConsumerGroup
from rabbit_chx.consuming import FailurePolicy, GroupMessage, GroupTiming, channels

BRISK = GroupTiming(settle_s=0.05, alive_s=0.02, gone_s=0.5, stop_s=1.0, journal_s=2.0)
#: The calls of a member that runs: of one that connects (after the loss of all connections), then of one that consumes.
CONNECTING = ("connect", "channel", "get_underlay_channel", "queue_declare", "basic_qos", "basic_consume", "ready", "close")  # fmt: skip
CONSUMING = ("basic_ack", "basic_publish")
#: The calls of a member that leaves.
LEAVING = ("basic_qos", "channel", "basic_get", "abandon", "close")


class Member:
    """A member of the queue `q`, with a journal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = ScriptedClient()
        self.handled = 0
        monkeypatch.setattr(aio_pika, "connect", self.client.connect)
        monkeypatch.setattr(channels, "_REPUBLISH_S", 0.001)
        self.group = ConsumerGroup(
            "amqp://scripted",
            ["q"],
            member="a",
            journal=JOURNAL,
            timing=BRISK,
            failures=FailurePolicy(reconnect_backoff_s=0.001),
        )

    async def handle(self, _message: GroupMessage) -> None:
        """Handle a message."""
        self.handled += 1


async def end_and_reconnect(
    member: Member, running: asyncio.Task[None], call: str, error: BaseException | type[BaseException]
) -> None:
    """Let a call raise an error, and wait until the member consumes over another connection."""
    client, what = member.client, f"{error!r} of {call}"
    client.arm(call, error)
    if call in CONNECTING:
        client.end()
    else:
        client.deliver()
    await eventually(lambda: client.has_raised or running.done(), f"there is {what}")
    await eventually(lambda: running.done() or client.is_consuming, f"it reconnects after {what}")
    assert not running.done(), f"{what} ended the group: {running!r}"
    handled = member.handled
    client.deliver()
    await eventually(lambda: member.handled > handled, f"it consumes after {what}")


@pytest.mark.parametrize("call", [*CONNECTING, *CONSUMING])
async def test_a_member_reconnects_after_each_end_of_each_call(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member(monkeypatch)
    async with member.group as group:
        running = asyncio.create_task(group.run(member.handle))
        await eventually(lambda: member.handled == 1, "it consumes")
        for error in CONNECT_ENDS if call == "connect" else CALL_ENDS:
            await end_and_reconnect(member, running, call, error)
        group.stop()
        await running


async def end_while_leaving(member: Member, call: str, error: BaseException | type[BaseException]) -> None:
    """Let a member leave while a call raises an error."""
    async with member.group as group:
        running = asyncio.create_task(group.run(member.handle))
        await eventually(lambda: member.handled == 1, "it consumes")
        member.client.arm(call, error)
        group.stop()
        await running
    assert member.client.has_raised, f"no {call}"


@pytest.mark.parametrize("call", LEAVING)
async def test_a_member_leaves_without_an_error_whatever_ends_its_connection(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in CALL_ENDS:
        await end_while_leaving(Member(monkeypatch), call, error)
