"""Numbers of channels, what is published again, and what the end of a channel tells: without a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiormq import exceptions
from client_ends import CALL_ENDS, CONNECT_ENDS

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import is_transient
from rabbit_chx.consuming import channels, settings
from rabbit_chx.consuming.channels import LateFrameFilter
from rabbit_chx.consuming.queue_checks import REQUIRED_ARGUMENTS


async def test_the_number_of_a_channel_is_taken_again_last() -> None:
    """The client aiormq may open a channel before it has confirmed the end of the one that had the number."""
    link = SimpleNamespace(connection_tune=SimpleNamespace(channel_max=3), channels={})
    transport: Any = SimpleNamespace(transport=SimpleNamespace(connection=link))
    connection = channels.ConsumingConnection(ConnectionSettings(), transport)
    taken = []
    for _ in range(4):
        taken.append(connection._next_number())
        link.channels = {2: "in use"}
    assert taken == [1, 3, 1, 3]
    link.channels = dict.fromkeys((1, 2, 3), "in use")
    with pytest.raises(errors.InputError, match="all 3 channels of the connection are in use"):
        connection._next_number()


def _connection() -> Any:
    """Return a connection on which each message is confirmed."""
    connection = SimpleNamespace(ready=AsyncMock())
    channel = SimpleNamespace(basic_publish=AsyncMock(), is_closed=False, connection=connection)
    aiormq = SimpleNamespace(channel=AsyncMock(return_value=channel))
    return SimpleNamespace(transport=SimpleNamespace(connection=aiormq), close=AsyncMock())


async def test_what_may_pass_is_tried_again_and_what_would_be_refused_again_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = errors.ConnectionLostError("the connection was lost")
    refused = errors.AccessRefusedError("refused", reply_code=403)
    monkeypatch.setattr(settings, "REPUBLISH_S", 0.0)
    monkeypatch.setattr(channels, "open_aio_pika", opened := AsyncMock())
    opened.side_effect = [lost, lost, _connection()]
    await channels._Writer(ConnectionSettings()).publish("q", b"")
    assert opened.await_count == 3
    opened.side_effect = [lost, refused]
    with pytest.raises(errors.AccessRefusedError):
        await channels._Writer(ConnectionSettings()).publish("q", b"")


async def test_a_cause_that_lasts_is_a_warning_and_a_limit_is_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost = errors.UnreachableError("no server answers there")
    limit = errors.ConnectionLimitError("connection limit (1) is reached: close connections", reply_code=530)
    monkeypatch.setattr(settings, "REPUBLISH_S", 0.0)
    monkeypatch.setattr(channels, "open_aio_pika", opened := AsyncMock())
    opened.side_effect = [lost] * 5 + [limit]
    with pytest.raises(errors.ConnectionLimitError):
        await channels._Writer(ConnectionSettings()).publish("q", b"")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["no server answers there; publishing to q again in 0 s"]


async def test_a_connection_that_another_one_has_replaced_is_not_given_up_again() -> None:
    writer: Any = channels._Writer(ConnectionSettings())
    first, second = SimpleNamespace(), SimpleNamespace()
    writer._connection, writer._channel = _connection(), second
    writer._drop(first)
    assert writer._channel is second
    writer._drop(second)
    await writer.close()
    assert writer._channel is None


@pytest.mark.parametrize("prefetch", [1, 32])
@pytest.mark.parametrize(
    ("cause", "is_cancelled", "kind"),
    [
        (exceptions.ChannelAccessRefused("access to queue 'q' refused"), False, errors.AccessRefusedError),
        (exceptions.ChannelNotFoundEntity("NOT_FOUND - no queue 'q'"), False, type(None)),
        (None, False, type(None)),
        (None, True, errors.ConnectionLostError),
    ],
)
async def test_a_missing_permission_and_a_cancellation_are_reported_if_a_channel_closes(
    *, cause: Exception | None, is_cancelled: bool, kind: type, prefetch: int
) -> None:
    """A consumer that the broker cancels may have exceeded a timeout."""
    closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    heard: list[errors.RabbitChxError | None] = []
    line = _line(SimpleNamespace(closing=closing), LateFrameFilter(), prefetch)
    line.is_cancelled = is_cancelled
    line.when_closed(heard.append)
    if cause is None:
        closing.cancel()
    else:
        closing.set_exception(cause)
    await asyncio.sleep(0)
    (error,) = heard
    assert type(error) is kind
    assert ("the broker cancelled the consumer of 'q'" in str(error)) is is_cancelled
    assert ("A timeout breaks the order" in str(error)) is (is_cancelled and prefetch > 1)


@pytest.fixture
def late() -> Iterator[LateFrameFilter]:
    """A filter of late frames, which is removed at the end."""
    made = LateFrameFilter()
    yield made
    made.uninstall()


def _line(underlay: Any, late: LateFrameFilter, prefetch: int = 32) -> channels.ConsumerChannel:
    return channels.ConsumerChannel(underlay, "q", "amqp://scripted", late, prefetch)


class _Library:
    """One object for the connection of aio-pika, the connection of aiormq, and its channel. One of its calls raises an error, or never ends; all others return the object."""

    number, is_closed = 7, False
    connection_tune = SimpleNamespace(channel_max=0)

    def __init__(self, call: str, error: BaseException | type[BaseException] | None) -> None:
        self._call, self._error = call, error
        self.connection, self.transport = self, SimpleNamespace(connection=self)
        self.channels = self.server_properties = dict[Any, Any]()
        self.on_consumer_cancel_callbacks = set[Any]()
        self.called = list[str]()
        self.closing = asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        async def call(*_: object, **__: object) -> Any:
            self.called.append(name)
            if name != self._call:
                return self
            if self._error is None:
                return await asyncio.Event().wait()
            raise self._error

        return call


async def _abandon(group: channels.GroupConnection) -> None:
    line = await group.consume_behind("q", 0, 1, "tag", lambda _: None)
    await line.ack(1)
    await line.reject(1)
    await group.abandon(line)


#: What makes each call of the library. Others ignore its error.
_RAISING: dict[str, Callable[[channels.GroupConnection], Awaitable[object]]] = {
    "channel": lambda group: group.ready_count("q"),
    "get_underlay_channel": lambda group: group.read_journal("journal", 0.0, lambda *_: None),
    "queue_declare": lambda group: group.ready_count("q"),
    "basic_qos": _abandon,
    "basic_consume": _abandon,
    "basic_get": lambda group: _line(group._connection, LateFrameFilter()).fetch("parked"),
}


@pytest.mark.parametrize("call", _RAISING)
async def test_each_error_at_the_end_of_a_connection_may_pass(call: str) -> None:
    """The client aiormq raises some of them rarely."""
    for raised in CALL_ENDS:
        group = channels.GroupConnection(ConnectionSettings(), _Library(call, raised))
        with pytest.raises(errors.RabbitChxError, match=r"amqp://.*: ") as error:
            await _RAISING[call](group)
        assert is_transient(error.value), raised
        await group.close()


@pytest.mark.parametrize(
    "call", ["basic_ack", "basic_reject", "basic_get", "queue_declare", "close", "ready"]
)
async def test_each_error_at_the_end_of_a_connection_is_ignored_where_it_is_left(call: str) -> None:
    for raised in CALL_ENDS:
        if call == "queue_declare" and isinstance(
            raised, TimeoutError
        ):  # an error without an answer of the broker
            continue
        library = _Library(call, raised)
        group = channels.GroupConnection(ConnectionSettings(), library)
        await _abandon(group)
        group._writer._connection = group._writer._channel = library
        assert await group.is_blocked() == (call == "ready" and isinstance(raised, TimeoutError))
        await group.close()
        assert call in library.called
        assert group._late_frames not in channels._AIORMQ_LOG.filters


async def test_a_channel_whose_connection_has_ended_is_not_abandoned() -> None:
    for raised in CALL_ENDS:
        if not isinstance(raised, TimeoutError):
            library = _Library("basic_qos", raised)
            line = _line(library, LateFrameFilter())
            line.has_acked = True
            await channels.GroupConnection(ConnectionSettings(), library).abandon(line)
            assert library.called == ["basic_qos"]


async def test_the_channel_of_a_consumer_that_the_broker_cancels_is_closed() -> None:
    library = _Library("nothing", TimeoutError)
    await channels.GroupConnection(ConnectionSettings(), library).consume_behind("q", 0, 1, "tag", print)
    (cancelled,) = library.on_consumer_cancel_callbacks
    cancelled("tag")
    await asyncio.sleep(0)
    assert library.called[-1] == "close"


async def test_declarations_tell_the_arguments_of_a_queue_and_its_ready_messages() -> None:
    library: Any = _Library("nothing", TimeoutError)
    library.message_count = 5
    refusal = exceptions.ChannelPreconditionFailed(
        "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/': received none but current is the value "
        "'7' of type 'signedint'"
    )
    library.queue_declare = AsyncMock(side_effect=[library, refusal, library, library])
    group = channels.GroupConnection(ConnectionSettings(), library)
    assert await group.queue_arguments("q") == {**REQUIRED_ARGUMENTS, "x-delivery-limit": 7}
    assert await group.ready_count("q") == 5


@pytest.mark.parametrize(("kind", "count"), [(errors.AccessRefusedError, 1), (errors.BrokerRefusedError, 0)])
def test_only_a_refused_access_to_the_journal_names_the_permissions(
    kind: type[errors.BrokerRefusedError], count: int
) -> None:
    said = str(channels._journal_refusal(kind("refused", reply_code=403), "journal"))
    assert said.count("the user needs the permissions read on it") == count


@pytest.mark.parametrize("raised", CONNECT_ENDS, ids=repr)
async def test_each_error_of_an_attempt_to_connect_may_pass(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException | type[BaseException]
) -> None:
    monkeypatch.setattr("aio_pika.connect", _Library("connect", raised).connect)
    with pytest.raises(errors.RabbitChxError) as error:
        await channels.GroupConnection.open(ConnectionSettings())
    assert is_transient(error.value)


@pytest.mark.parametrize(("call", "silent"), [("sync", "basic_qos"), ("abandon", "queue_declare")])
async def test_a_task_that_is_cancelled_during_a_call_ends(
    call: str, silent: str, late: LateFrameFilter
) -> None:
    task = asyncio.ensure_future(getattr(_line(_Library(silent, None), late), call)())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("silent", "kind", "says"),
    [
        ("queue_declare", errors.ConnectionLostError, "at the end of the channel that consumes 'q'"),
        ("basic_qos", errors.BrokerTimeoutError, "no answer within"),
    ],
    ids=["end", "acks"],
)
async def test_a_channel_that_does_not_answer_at_its_end_costs_the_connection(
    monkeypatch: pytest.MonkeyPatch, silent: str, kind: type[Exception], says: str
) -> None:
    """The broker may still deliver to its consumer, while another consumer of this member handles the same messages.

    Or it may not have read its acks.
    """
    monkeypatch.setattr(channels, "_REPLY_S", 0.05)
    library = _Library(silent, None)
    group = channels.GroupConnection(ConnectionSettings(), library)
    line = _line(library, group._late_frames)
    line.has_acked = True
    with pytest.raises(kind, match=says):
        await group.abandon(line)
    await group.close()


def test_only_the_frames_of_channels_that_were_ended_are_not_logged(
    late: LateFrameFilter, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("aiormq.connection")
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
