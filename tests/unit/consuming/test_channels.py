"""Numbers of channels, what is published again, and what the end of a channel tells: without a broker."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from aiormq import exceptions
from client_ends import ASYNC_ENDS, errors_of

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.consuming import channels
from rabbit_chx.consuming.channels import LateFrameFilter
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    InputError,
    RabbitChxError,
)


def test_the_number_of_a_channel_is_taken_again_last() -> None:
    """The client aiormq may open a channel before it has confirmed the end of the one that had the number."""
    link = SimpleNamespace(connection_tune=SimpleNamespace(channel_max=3), channels={})
    transport: Any = SimpleNamespace(transport=SimpleNamespace(connection=link))

    async def numbers() -> list[int]:
        connection = channels.ConsumingConnection(ConnectionSettings(), transport)
        taken = []
        for _ in range(4):
            taken.append(connection._next_number())
            link.channels = {2: "in use"}
        link.channels = dict.fromkeys((1, 2, 3), "in use")
        with pytest.raises(InputError, match="all 3 channels of the connection are in use"):
            connection._next_number()
        return taken

    assert asyncio.run(numbers()) == [1, 3, 1, 3]


def _publishes(monkeypatch: pytest.MonkeyPatch, *errors: RabbitChxError | None) -> int:
    """Publish where each attempt to connect ends so; return how many there were. Without an error the message is confirmed."""
    attempts = 0

    async def opened(*_: object, **__: object) -> Any:
        nonlocal attempts
        attempts += 1
        if error := errors[attempts - 1]:
            raise error
        return _connection()

    monkeypatch.setattr(channels, "open_aio_pika", opened)
    monkeypatch.setattr(channels, "_REPUBLISH_S", 0.0)
    asyncio.run(channels._Writer(ConnectionSettings()).publish("q", b""))
    return attempts


def _connection() -> Any:
    """Return a connection on which each message is confirmed."""

    async def confirmed(*_: object, **__: object) -> None:
        return

    async def channel(**_: object) -> Any:
        return SimpleNamespace(
            basic_publish=confirmed, is_closed=False, connection=SimpleNamespace(ready=confirmed)
        )

    return SimpleNamespace(
        transport=SimpleNamespace(connection=SimpleNamespace(channel=channel)), close=confirmed
    )


def test_what_may_pass_is_tried_again_and_what_would_be_refused_again_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = ConnectionLostError("the connection was lost")

    assert _publishes(monkeypatch, lost, lost, None) == 3
    with pytest.raises(AccessRefusedError):
        _publishes(monkeypatch, lost, AccessRefusedError("refused", reply_code=403))


def test_a_connection_that_another_one_has_replaced_is_not_given_up_again() -> None:
    async def story() -> tuple[Any, Any]:
        writer = channels._Writer(ConnectionSettings())
        first, second = SimpleNamespace(), SimpleNamespace()
        writer._connection, writer._channel = _connection(), second
        writer._drop(first)
        kept = writer._channel
        writer._drop(second)
        await writer.close()
        return kept is second, writer._channel

    assert asyncio.run(story()) == (True, None)


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (exceptions.ChannelAccessRefused("ACCESS_REFUSED - access to queue 'q' refused"), AccessRefusedError),
        (exceptions.ChannelNotFoundEntity("NOT_FOUND - no queue 'q'"), type(None)),
        (None, type(None)),
    ],
)
def test_only_a_missing_permission_is_reported_if_a_channel_closes(
    cause: Exception | None, told: type
) -> None:
    async def story() -> list[RabbitChxError | None]:
        closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heard: list[RabbitChxError | None] = []
        line = channels.ConsumerChannel(
            SimpleNamespace(closing=closing), "q", "amqp://host", channels.LateFrameFilter(), 1
        )
        line.when_closed(heard.append)
        if cause is None:
            closing.cancel()
        else:
            closing.set_exception(cause)
        await asyncio.sleep(0)
        return heard

    assert [type(error) for error in asyncio.run(story())] == [told]


class _Underlay:
    """A channel of aiormq that does not answer."""

    number = 7

    async def queue_declare(self, *_: object, **__: object) -> None:
        await asyncio.Event().wait()

    async def basic_qos(self, **_: object) -> None:
        await asyncio.Event().wait()


async def test_a_channel_that_does_not_answer_at_its_end_costs_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker may still deliver to its consumer, while another consumer of this member handles the same messages."""
    monkeypatch.setattr(channels, "_REPLY_S", 0.05)
    late = channels.LateFrameFilter()
    line = channels.ConsumerChannel(_Underlay(), "q", "amqp://scripted", late, 32)
    with pytest.raises(ConnectionLostError, match="at the end of the channel that consumes 'q'"):
        await line.abandon()
    late.uninstall()


class _Ended:
    """A channel of aiormq that raises an error in each call, as at the end of its connection. aiormq raises some of them rarely."""

    number = 7

    def __init__(self, error: BaseException | type[BaseException]) -> None:
        self._error = error

    async def _raise(self, *_: object, **__: object) -> None:
        raise self._error

    queue_declare = basic_qos = basic_get = basic_ack = basic_reject = _raise


_RAISED = [
    error for error in errors_of(ASYNC_ENDS, "*") if not isinstance(error, TimeoutError)
]  # that is no answer


@pytest.mark.parametrize("raised", _RAISED, ids=repr)
async def test_each_error_at_the_end_of_a_channel_may_pass_or_is_ignored(
    raised: BaseException | type[BaseException],
) -> None:
    late = LateFrameFilter()
    line = channels.ConsumerChannel(_Ended(raised), "q", "amqp://scripted", late, 32)
    for call in (line.sync(), line.fetch("q")):
        with pytest.raises(RabbitChxError, match="amqp://scripted: ") as error:
            await call
        assert is_transient(error.value)
    await line.ack(1)
    await line.reject(1)
    await line.abandon()
    late.uninstall()


async def test_a_task_that_is_cancelled_during_a_call_ends() -> None:
    for call in ("sync", "abandon"):
        late = LateFrameFilter()
        line = channels.ConsumerChannel(_Underlay(), "q", "amqp://scripted", late, 32)
        task = asyncio.ensure_future(getattr(line, call)())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        late.uninstall()


def test_a_channel_that_may_not_have_read_its_acks_is_not_taken_for_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "_REPLY_S", 0.05)
    aiormq = SimpleNamespace(server_properties={})
    connection = channels.GroupConnection(
        ConnectionSettings(), SimpleNamespace(transport=SimpleNamespace(connection=aiormq))
    )
    line = channels.ConsumerChannel(_Underlay(), "q", "amqp://scripted", LateFrameFilter(), 32)
    line.has_acked = True
    with pytest.raises(BrokerTimeoutError, match="no answer within"):
        asyncio.run(connection.abandon(line))


def test_only_the_frames_of_channels_that_were_ended_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("aiormq.connection")
    late = LateFrameFilter()
    late.expect(7)
    logger.error("Got frame for closed channel %d: %r", 7, "deliver")
    logger.error("Got frame for closed channel %d: %r", 8, "deliver")
    logger.error("Unexpected frame %r", 7)
    late.uninstall()
    logger.error("Got frame for closed channel %d: %r", 7, "later")
    assert [record.getMessage() for record in caplog.records] == [
        "Got frame for closed channel 8: 'deliver'",
        "Unexpected frame 7",
        "Got frame for closed channel 7: 'later'",
    ]
