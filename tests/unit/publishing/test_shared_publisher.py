"""The publisher that threads and event loops share: outcomes, bounds, outages, exit. A scripted peer answers."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any

import pytest
from amqp_broker import ACK as ACK_METHOD
from amqp_broker import Answer, Message, ack, confirm, nack, nothing, unroutable
from bounded import until
from broker_frames import said
from command_line import ended
from pamqp import commands
from scripted_peer import Peer
from tcp_proxy import black_hole

from rabbit_chx import errors
from rabbit_chx.publishing import SharedPublisher, shared_publisher
from rabbit_chx.publishing.outbox import Latencies, Outbox
from rabbit_chx.publishing.outbox import Message as OpenMessage
from rabbit_chx.routing import HashRing

_SOON_S = 60.0


def by_body(answers: dict[str, Answer], otherwise: Answer = ack) -> Answer:
    """Answer each message by its body."""
    return lambda message: answers.get(message.body.decode(), otherwise)(message)


def ack_from_now_on(peer: Peer, tag: int) -> None:
    """Ack the messages up to this one, and all that come."""
    peer.answer = ack
    peer.say(confirm(ACK_METHOD, tag, multiple=True))


def error_of(future: Future[None]) -> BaseException | None:
    return future.exception(_SOON_S)


def test_each_message_has_its_own_outcome(peer: Peer, shared: Any) -> None:
    """Also if they differ only in a property."""
    answer = by_body({"lost": unroutable, "full": nack})
    peer.answer = lambda message: (unroutable if message.properties.message_id == "2" else answer)(message)
    with shared() as publisher:
        futures = {name: publisher.submit("k", name) for name in ("a", "lost", "b", "full", "c")}
        futures |= {number: publisher.submit("k", "twin", message_id=number) for number in "123"}
        outcomes = {name: error_of(future) for name, future in futures.items()}
        stats = publisher.stats()
    assert [name for name, error in outcomes.items() if error is None] == ["a", "b", "c", "1", "3"]
    assert isinstance(outcomes["2"], errors.UnroutableError)
    lost = outcomes["lost"]
    assert isinstance(lost, errors.UnroutableError)
    assert (lost.reply_code, lost.exchange) == (312, "orders")
    assert "NO_ROUTE" in str(lost)
    assert isinstance(outcomes["full"], errors.NackedError)
    assert (stats.submitted, stats.confirmed, stats.returned, stats.nacked) == (8, 5, 2, 1)
    assert (stats.in_flight, stats.in_flight_bytes) == (0, 0)
    assert stats.p50_s is not None
    assert stats.p50_s < _SOON_S


def test_submit_raises_the_error_of_a_message_that_cannot_be_sent(peer: Peer, shared: Any) -> None:
    with shared() as publisher:
        for (key, body, properties), says in {
            ("k", None, ()): "^the body is missing",
            (None, "b", ()): "^the routing key is missing",
            ("k" * 256, "b", ()): "^the routing key .* has 256 bytes",
            ("k", "b", (("priority", 256),)): "^the priority is 256",
        }.items():
            with pytest.raises(errors.RowError, match=says):
                publisher.submit(key, body, **dict(properties))
        with pytest.raises(errors.InputError, match="did you mean 'headers'"):
            publisher.submit("k", "b", header={})
        assert error_of(publisher.submit("k", "good")) is None
    assert peer.bodies == ["good"]


def test_submit_waits_for_room_and_then_raises(peer: Peer, shared: Any) -> None:
    peer.answer = nothing
    with shared(max_in_flight=2, block_s=0.05) as publisher:
        for i in range(2):
            publisher.submit("k", str(i))
        with pytest.raises(errors.BufferFullError, match="2 unanswered messages"):
            publisher.submit("k", "2")
        peer.until(lambda: len(peer.messages) == 2)
        waiting = threading.Thread(target=publisher.submit, args=("k", "3"))
        publisher._block_s = _SOON_S
        waiting.start()
        time.sleep(0.05)
        ack_from_now_on(peer, 1)
        waiting.join(_SOON_S)
        peer.say(confirm(ACK_METHOD, 2))
    assert peer.bodies == ["0", "1", "3"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_message_that_gets_room_at_the_last_moment_is_sent_and_no_error(
    peer: Peer, shared: Any, monkeypatch: pytest.MonkeyPatch, *, asynchronous: bool
) -> None:
    """A caller who gets a BufferFullError sends the message again."""
    withdraw = SharedPublisher._withdraw

    def make_room_first(publisher: SharedPublisher, message: OpenMessage) -> bool:
        ack_from_now_on(peer, 1)
        until(lambda: not publisher._outbox._waiting, "the message was sent", every_s=0.001)
        return withdraw(publisher, message)

    peer.answer = nothing
    with closing(shared(max_in_flight=1, block_s=0.01)) as publisher:
        first = publisher.submit("k", "0")
        peer.until(lambda: len(peer.messages) == 1)
        monkeypatch.setattr(SharedPublisher, "_withdraw", make_room_first)
        if asynchronous:
            asyncio.run(publisher.publish("k", "1"))
        else:
            assert error_of(publisher.submit("k", "1")) is None
        assert error_of(first) is None
    assert peer.bodies == ["0", "1"]


def test_bytes_are_bounded_and_a_larger_message_goes_alone(peer: Peer, shared: Any) -> None:
    peer.answer = by_body({"x" * 500: nothing})
    with shared(max_in_flight_bytes=300, block_s=0.0) as publisher:
        publisher.submit("k", "x" * 500)
        with pytest.raises(errors.BufferFullError):
            publisher.submit("k", "y")
        peer.until(lambda: len(peer.messages) == 1)
        peer.say(confirm(ACK_METHOD, 1))


def test_publish_waits_for_room_and_then_raises(peer: Peer, shared: Any) -> None:
    peer.answer = nothing

    async def main() -> None:
        async with shared(max_in_flight=1, block_s=0.05) as publisher:
            first = asyncio.create_task(publisher.publish("k", "0"))
            await asyncio.sleep(0)
            with pytest.raises(errors.BufferFullError):
                await publisher.publish("k", "1")
            publisher._block_s = _SOON_S
            second = asyncio.create_task(publisher.publish("k", "2"))
            cancelled = asyncio.create_task(publisher.publish("k", "3"))
            await asyncio.sleep(0.01)
            cancelled.cancel()
            await asyncio.to_thread(peer.until, lambda: len(peer.messages) == 1)
            ack_from_now_on(peer, 1)
            await asyncio.wait_for(asyncio.gather(first, second), _SOON_S)
            with pytest.raises(asyncio.CancelledError):
                await cancelled

    asyncio.run(main())
    assert peer.bodies == ["0", "2"]


def test_a_cancelled_await_does_not_cancel_the_message(peer: Peer, shared: Any) -> None:
    async def main() -> None:
        async with shared() as publisher:
            task = asyncio.create_task(publisher.publish("k", "sent"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert peer.bodies == ["sent"]


def test_without_a_broker_messages_are_known_not_to_be_sent() -> None:
    how: dict[str, Any] = {"reconnect_timeout_s": 0.1, "backoff_s": 0.01}
    with closing(SharedPublisher("amqp://localhost:1", "orders", **how)) as publisher:
        error = error_of(publisher.submit("k", "0"))
        assert isinstance(error, errors.UnreachableError)
        assert "was not sent" in str(error)
        assert not publisher.healthy()
        for _ in range(2):
            with pytest.raises(errors.UnreachableError):
                asyncio.run(publisher.publish_many(["k"], ["b"]))


def test_synchronous_code_in_a_with_block_publishes_by_submit_only(peer: Peer, shared: Any) -> None:
    """A coroutine that nobody awaits would send nothing, without an error. An event loop may run in another thread."""

    async def in_a_loop(publisher: SharedPublisher) -> None:
        await publisher.publish("k", "awaited")

    with shared() as publisher:
        for publish, row in ((publisher.publish, "lost"), (publisher.publish_many, ["lost"])):
            with pytest.raises(errors.InputError, match=r"call submit\(key, body\)\.result\(\)"):
                publish("k" if row == "lost" else ["k"], row)
        publisher.submit("k", "sent").result(_SOON_S)
        asyncio.run(in_a_loop(publisher))
    assert peer.bodies == ["sent", "awaited"]


def test_the_three_limits_of_a_message_are_added(shared: Any) -> None:
    """A blocked broker, an outage and a confirm may follow each other, as for a `Publisher`."""
    with shared(reconnect_timeout_s=7.0, confirm_timeout_s=11.0, blocked_timeout_s=13.0) as publisher:
        assert publisher._outbox.left_s() == 31.0


def test_a_message_that_was_not_sent_does_not_get_the_type_of_a_close_of_the_connection(
    peer: Peer, shared: Any
) -> None:
    """The close is not over that message, so a caller may send it again."""
    with shared(linger_s=_SOON_S) as publisher:
        until(publisher.healthy, "it is healthy", every_s=0.001)
        future = publisher.submit("k", "0")
        peer.say(said(commands.Connection.Close(530, "NOT_ALLOWED", 0, 0), 0))
        error = error_of(future)
    assert type(error) is errors.ConnectionLostError
    assert "was not sent" in str(error)
    assert peer.bodies == []


def test_a_publisher_is_healthy_while_it_is_open_and_not_blocked(peer: Peer, shared: Any) -> None:
    with shared() as publisher:
        assert error_of(publisher.submit("k", "0")) is None
        assert publisher.healthy()
        peer.say(said(commands.Connection.Blocked("memory"), 0))
        until(lambda: not publisher.healthy(), "it is blocked", every_s=0.001)
        peer.say(said(commands.Connection.Unblocked(), 0))
        assert error_of(publisher.submit("k", "1")) is None
    assert not publisher.healthy()


def test_linger_writes_messages_together(shared: Any) -> None:
    with shared(linger_s=0.05) as publisher:
        began = time.monotonic()
        futures = [publisher.submit("k", str(i)) for i in range(3)]
        assert [error_of(future) for future in futures] == [None] * 3
        assert time.monotonic() - began >= 0.05


def test_a_collected_publisher_warns_and_sends_its_messages(shared: Any) -> None:
    publisher = shared()
    future = publisher.submit("k", "0")
    thread = publisher._worker.thread
    with pytest.warns(ResourceWarning, match="orders' was not closed, and . messages are open"):  # noqa: PT031
        del publisher
        gc.collect()
    assert error_of(future) is None
    thread.join(_SOON_S)
    assert not thread.is_alive()


_PROGRAM = """
from rabbit_chx import SharedPublisher
from rabbit_chx.amqp import ConnectionSettings
publisher = SharedPublisher(ConnectionSettings(host={host!r}, port={port}), "orders")
for i in range(10):
    publisher.submit("k", str(i))
"""


def run_program(peer: Peer, more: str = "") -> subprocess.CompletedProcess[str]:
    program = _PROGRAM.format(host=peer.settings.host, port=peer.settings.port) + more
    return ended(sys.executable, "-c", program)


def test_at_exit_open_messages_are_sent(peer: Peer) -> None:
    done = run_program(peer)
    assert (done.returncode, done.stderr) == (0, "")
    assert peer.bodies == [str(i) for i in range(10)]


def test_at_exit_a_warning_counts_the_rest(peer: Peer) -> None:
    peer.answer = by_body({"0": ack}, nothing)
    done = run_program(peer, "from rabbit_chx.publishing import worker; worker._EXIT_S = 0.2")
    assert done.returncode == 0
    assert "9 messages are not answered at the exit" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_at_the_end_of_a_process_of_multiprocessing_open_messages_are_sent(peer: Peer) -> None:
    """It calls no functions of `atexit`."""
    at = f"ConnectionSettings(host={peer.settings.host!r}, port={peer.settings.port})"
    child = f"[p.submit('k', str(i)) for p in [SharedPublisher({at}, 'orders')] for i in range(10)]"
    done = ended(
        sys.executable,
        "-c",
        "import multiprocessing\nfrom rabbit_chx import SharedPublisher\nfrom rabbit_chx.amqp import ConnectionSettings\n"
        f"made = multiprocessing.get_context('fork').Process(target=lambda: {child})\nmade.start()\nmade.join()\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert peer.bodies == [str(i) for i in range(10)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_after_a_fork_the_child_gets_an_error(peer: Peer) -> None:
    done = run_program(
        peer,
        """
import os, sys
if not os.fork():
    for call in (lambda: publisher.submit("k", "child"), publisher.stats):
        try:
            call()
        except Exception as error:
            print(type(error).__name__, error, flush=True)
    publisher.close()
    sys.exit()
os.wait()
publisher.submit("k", "parent").result(10)
publisher.close()
""",
    )
    refusal = "InputError the SharedPublisher of exchange 'orders' was opened by process"
    assert done.stdout.count(refusal) == 2
    assert peer.bodies == [*(str(i) for i in range(10)), "parent"]


def test_latencies_are_those_of_the_last_minute() -> None:
    latencies = Latencies()
    assert latencies.quantiles(0.0, (0.5,)) == [None]
    for _ in range(2):
        latencies.add(100.0, [100.0 - milliseconds / 1000 for milliseconds in range(1, 101)])
    p50_s, p99_s = latencies.quantiles(100.0, (0.5, 0.99))
    assert p50_s == pytest.approx(0.050, rel=0.06)
    assert p99_s == pytest.approx(0.099, rel=0.06)
    latencies.add(150.0, [149.0] * 1000)
    assert latencies.quantiles(150.0, (0.5,)) == [pytest.approx(1.0, rel=0.06)]
    assert latencies.quantiles(250.0, (0.5,)) == [None]


def test_a_callback_that_raises_system_exit_does_not_end_the_thread(peer: Peer, shared: Any) -> None:
    def leave(_: Future[None]) -> None:
        raise SystemExit

    peer.answer = nothing
    with shared() as publisher:
        futures = [publisher.submit("k", str(i)) for i in range(3)]
        futures[0].add_done_callback(leave)
        peer.until(lambda: len(peer.messages) == 3)
        ack_from_now_on(peer, 3)
        assert [error_of(future) for future in futures] == [None] * 3
        assert error_of(publisher.submit("k", "after")) is None


@pytest.mark.timeout(100)
def test_closing_does_not_wait_for_a_connection_without_a_message() -> None:
    with black_hole() as port:
        publisher = SharedPublisher(f"amqp://127.0.0.1:{port}?connection_timeout=600000", "orders")
        publisher.close(timeout_s=600.0)


def test_a_span_is_in_the_headers(peer: Peer, shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[tuple[str | None, ...]] = []

    @contextmanager
    def span(*names: str | None) -> Iterator[dict[str, str]]:
        spans.append(names)
        yield {"traceparent": "00-1-2-01"}

    monkeypatch.setattr(shared_publisher, "publisher_span", span)
    monkeypatch.setattr(shared_publisher, "TRACED_BY", "sys")
    with closing(shared()) as publisher:
        assert error_of(publisher.submit("k", "b", headers={"a": "1"})) is None
        asyncio.run(publisher.publish("k", "b", exchange="events"))
    assert spans == [("orders", None), ("orders", "events")]
    headers = [message.properties.headers for message in peer.messages]
    assert headers == [{"traceparent": "00-1-2-01", "a": "1"}, {"traceparent": "00-1-2-01"}]


def test_client_routing_compares_the_ring_at_the_end(peer: Peer, shared: Any) -> None:
    rings = [HashRing.from_buckets(["q1", "q2"]), HashRing.from_buckets(["q2", "q1"])]
    publisher = shared(routing="client", ring=lambda: rings.pop(0))
    assert error_of(publisher.submit("k", "b")) is None
    with pytest.raises(errors.MismatchError, match="the ring has changed"):
        publisher.close()
    assert {(message.exchange, message.routing_key) for message in peer.messages} <= {("", "q1"), ("", "q2")}


def test_a_signal_handler_may_submit(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It interrupts the thread anywhere, also in `submit`.

    Without traces: CPython 3.11 fails in `ContextVar.set` (SystemError in gcmodule.c) if a signal handler sets the same variable.
    """
    monkeypatch.setattr(shared_publisher, "TRACED_BY", "a module that nobody imports")
    extra: list[Future[None]] = []
    # With room for all: a handler that interrupts `submit` cannot wait for it.
    with shared(max_in_flight=100_000) as publisher:
        before = signal.signal(signal.SIGALRM, lambda *_: extra.append(publisher.submit("k", "signal")))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            futures = [publisher.submit("k", str(i)) for i in range(2000)]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert {error_of(future) for future in futures + extra} == {None}
        stats = publisher.stats()
    assert extra
    assert (stats.in_flight, stats.in_flight_bytes, stats.submitted) == (0, 0, len(futures) + len(extra))


def test_a_callback_may_submit_another_message_and_cannot_wait_for_it(peer: Peer, shared: Any) -> None:
    """That message would wait for the callback, and so would all later ones, without end."""
    peer.answer = nothing
    waits: list[BaseException | None] = []

    def wait(_: Future[None]) -> None:
        other = publisher.submit("k", "other")
        for method in (other.result, other.exception):
            try:
                waits.append(method())
            except errors.InputError as error:
                waits.append(error)

    with shared(max_in_flight=1) as publisher:
        first = publisher.submit("k", "0")
        first.add_done_callback(wait)
        peer.until(lambda: len(peer.messages) == 1)
        ack_from_now_on(peer, 1)
        assert error_of(first) is None
        assert error_of(publisher.submit("k", "later")) is None
    assert len(waits) == 2
    assert all("which waits for the callback" in str(error) for error in waits)
    assert peer.bodies == ["0", "other", "later"]


def test_what_waits_behind_a_withdrawn_message_is_sent_at_once(
    peer: Peer, shared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher's thread is woken: its poll may end a second later."""
    peer.answer = nothing

    async def main() -> None:
        async with shared(max_in_flight_bytes=1000) as publisher:
            first = asyncio.create_task(publisher.publish("k", "x" * 500))
            large = asyncio.create_task(publisher.publish("k", "y" * 800))
            small = asyncio.create_task(publisher.publish("k", "small"))
            await asyncio.to_thread(peer.until, lambda: len(peer.messages) == 1)
            wake, woken = publisher._worker.wake, asyncio.Event()

            def note() -> None:
                woken.set()
                wake()

            monkeypatch.setattr(publisher._worker, "wake", note)
            large.cancel()
            await asyncio.wait_for(woken.wait(), _SOON_S)
            await asyncio.to_thread(peer.until, lambda: len(peer.messages) == 2)
            peer.say(confirm(ACK_METHOD, 2, multiple=True))
            await asyncio.wait_for(asyncio.gather(first, small), _SOON_S)

    asyncio.run(main())
    assert peer.bodies == ["x" * 500, "small"]


@pytest.mark.timeout(150)
def test_rows_in_doubt_that_have_expired_do_not_delay_later_ones(peer: Peer, shared: Any) -> None:
    """The rows in doubt are sent one by one, and later messages wait for the last of them."""
    close = said(commands.Connection.Close(541, "INTERNAL_ERROR", 0, 0), 0)

    def answer(message: Message) -> bytes:
        if (peer.connections, message.body) == (2, b"0"):  # it is alone now
            for each in list(publisher._outbox._open.values()):
                each.expires_at = 0.0
        return close if message.body == b"poison" else ack(message)

    peer.answer = nothing
    with shared(backoff_s=0.01) as publisher:
        futures = [publisher.submit("k", str(i)) for i in range(60)]
        peer.until(lambda: len(peer.messages) == 60)
        peer.answer = answer
        futures.append(publisher.submit("k", "poison"))
        assert {type(error_of(future)) for future in futures[1:]} == {errors.UnknownOutcomeError}
        assert error_of(publisher.submit("k", "after")) is None


@pytest.mark.timeout(100)
def test_a_signal_handler_does_not_wait_for_room_in_a_thread_that_holds_the_lock(
    peer: Peer, shared: Any
) -> None:
    """The publisher's thread would wait for the lock, and make no room."""
    peer.answer = nothing
    outcomes: list[BaseException] = []

    def submit(*_: object) -> None:
        try:
            publisher.submit("k", "1")
        except errors.BufferFullError as error:
            outcomes.append(error)

    before = signal.signal(signal.SIGUSR1, submit)
    try:
        with shared(max_in_flight=1, block_s=600.0) as publisher:
            publisher.submit("k", "0")
            peer.until(lambda: len(peer.messages) == 1)
            with publisher._outbox._lock:
                signal.raise_signal(signal.SIGUSR1)
            peer.say(confirm(ACK_METHOD, 1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(outcomes) == 1


def test_any_number_of_seconds_is_a_limit(shared: Any) -> None:
    publisher = shared(max_in_flight=1, block_s=1e300)
    futures = [publisher.submit("k", str(i)) for i in range(3)]
    publisher.close(timeout_s=1e300)
    assert [error_of(future) for future in futures] == [None] * 3


@pytest.mark.timeout(100)
def test_ctrl_c_in_a_callback_of_close_is_raised_after_all_futures_are_done(peer: Peer, shared: Any) -> None:
    """Close gives up after its time. A callback cannot wait for another message, since close waits for the callback."""
    peer.answer = nothing
    waits: list[BaseException | None] = []
    publisher = shared()
    futures = [publisher.submit("k", str(i)) for i in range(3)]

    def wait_and_interrupt(_: Future[None]) -> None:
        try:
            futures[1].result(_SOON_S)
        except Exception as error:  # noqa: BLE001
            waits.append(error)
        raise KeyboardInterrupt

    futures[0].add_done_callback(wait_and_interrupt)
    peer.until(lambda: len(peer.messages) == 3)
    with pytest.raises(KeyboardInterrupt):
        publisher.close(timeout_s=0.0)
    assert [type(error) for error in waits] == [errors.InputError]
    assert [type(error_of(future)) for future in futures] == [errors.UnknownOutcomeError] * 3
    publisher._worker.thread.join(_SOON_S)
    assert not publisher._worker.thread.is_alive()
    with pytest.raises(errors.InputError, match="is closed: open another one"):
        publisher.submit("k", "3")
    publisher.close()


def new_message() -> OpenMessage:
    return OpenMessage(b"k", b"b", b"", b"", Future(), 0.0)


def test_a_finalizer_may_submit_while_messages_expire() -> None:
    """CPython runs finalizers between two bytecodes, also in the publisher's thread."""

    class Finalized(float):
        def __le__(self, other: float) -> bool:
            outbox.submit(new_message())
            return float.__le__(self, other)

    outbox = Outbox(100, 1 << 20, 10.0, lambda: 100.0)
    messages = [new_message() for _ in range(3)]
    for message in messages:
        outbox.submit(message)
        message.expires_at = Finalized(1.0)
    outbox.expire(lambda _: errors.UnknownOutcomeError("late"))
    assert [type(message.future.exception()) for message in messages] == [errors.UnknownOutcomeError] * 3
    assert outbox.open == 3
