"""The life of a member: it connects, connects again, and leaves, however `run` ends."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from group_stage import eventually
from scripted_group import ScriptedConnection, ScriptedJournal

from rabbit_chx import ConsumerGroup, HashRing, ModulusHashExchange, errors
from rabbit_chx.consuming import GroupMessage, GroupTiming, group
from rabbit_chx.consuming.group import GroupHealth
from rabbit_chx.consuming.journal import EntryKind, JournalEntry, Roster, queue_owners
from rabbit_chx.consuming.ownership import DeliveredMessage

BRISK = GroupTiming(warm_up_s=0.05, alive_s=0.05, gone_s=0.5, stop_s=1.0, journal_s=0.5)


class Site:
    """A broker of values, and a member of the queue `q` that is opened as the test says.

    Attributes:
        openings: what the next attempts to connect do; those after them succeed.
        told: what the hooks and the handler were told.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **how: Any) -> None:
        self.journal = ScriptedJournal()
        self.connections: list[ScriptedConnection] = []
        self.openings: list[Callable[[], Awaitable[object]]] = []
        self.told: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        how = {"timing": BRISK, "reconnect_backoff_s": 0.01, "queues": ["q"], **how}
        self.group = ConsumerGroup(
            "amqp://scripted", member="a", on_gained=self._gained, on_lost=self._lost, **how
        )
        monkeypatch.setattr(self.group, "_open", self._opened)

    async def _opened(self) -> ScriptedConnection:
        if self.openings:
            await self.openings.pop(0)()
        self.connections.append(ScriptedConnection(self.journal))
        return self.connections[-1]

    async def _gained(self, queue: str) -> None:
        self.told.append(f"gained {queue}")

    async def _lost(self, queue: str) -> None:
        await asyncio.sleep(0.01)
        self.told.append(f"lost {queue}")

    async def handle(self, message: GroupMessage) -> None:
        """Handle a message when the gate is open."""
        self.told.append(f"begins {message.body.decode()}")
        await self.gate.wait()
        self.told.append(f"ends {message.body.decode()}")

    async def has_a_message(self) -> None:
        """Wait until it consumes, and deliver a message, whose handler begins."""
        await eventually(lambda: self.connections[-1].lines["q"], "it consumes")
        await self.connections[-1].deliver("q", 1)
        await eventually(lambda: "begins 1" in self.told, "it handles a message")


@pytest.fixture
def site_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Site]:
    """How to make a site."""
    return functools.partial(Site, monkeypatch)


@pytest.fixture
def site(site_of: Callable[..., Site]) -> Site:
    """A site with the usual options."""
    return site_of()


@contextlib.asynccontextmanager
async def running(site: Site, handler: Any = None) -> AsyncIterator[asyncio.Task[None]]:
    """Run the member of a site, and stop it at the end of the block if it still runs."""
    async with site.group:
        task = asyncio.create_task(site.group.run(handler or site.handle))
        yield task
        if not task.done():
            site.group.stop()
            await task


@contextlib.asynccontextmanager
async def handling(site: Site) -> AsyncIterator[asyncio.Task[None]]:
    """Run the member of a site, which has begun to handle a message."""
    async with running(site) as task:
        await site.has_a_message()
        yield task


refused = AsyncMock(side_effect=errors.UnreachableError("no server answers there"))


async def test_cancelled_once_it_leaves_in_order(site: Site) -> None:
    async with handling(site) as task:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "left" in site.journal.kinds("a")
        assert site.told == ["gained q", "begins 1", "ends 1", "lost q"]


@pytest.mark.parametrize("ending", ["cancelled twice", "not awaited", "main returns", "main fails"])
@pytest.mark.parametrize("under_way", ["handler", "claim", "nothing"])
def test_however_it_ends_the_hook_is_called(
    ending: str, under_way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no coroutine is left that was never awaited: a warning is an error here."""
    sites: list[Site] = []

    async def story() -> None:
        site = Site(monkeypatch)
        sites.append(site)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(site.group)
            task = asyncio.create_task(site.group.run(site.handle))
            await site.has_a_message()
            if under_way == "handler":
                site.gate.clear()
                await site.connections[-1].deliver("q", 2)
                await eventually(lambda: "begins 2" in site.told, "a handler runs")
            elif under_way == "claim":
                site.journal.block()
                site.group._runners[0].execute(site.group._runners[0].ownership.on_superseded())
                await eventually(lambda: "lost q" in site.told, "the hook was called")
                await site.connections[-1].deliver("q", 2)
            if ending == "main returns":
                return
            if ending == "main fails":
                raise ZeroDivisionError
            task.cancel()
            if ending == "cancelled twice":
                await asyncio.sleep(0)
                task.cancel()
                async with asyncio.timeout(10):
                    with pytest.raises(asyncio.CancelledError):
                        await task

    with contextlib.suppress(ZeroDivisionError):
        asyncio.run(story())
    told = sites[0].told
    assert told.count("gained q") == told.count("lost q") == 1
    assert told[-1] == "lost q"
    assert "ends 2" not in told


async def test_attempts_to_connect_that_fail_are_followed_by_another_one(site: Site) -> None:
    async with handling(site):
        site.openings = [refused, refused]
        site.connections[0].cut()
        await eventually(lambda: len(site.connections) == 2, "it connects again")
        site.told.clear()
        await site.has_a_message()
        assert site.group.reconnects == 1


async def test_a_member_whose_event_loop_was_silent_is_not_healthy_and_connects_again(
    site_of: Callable[..., Site],
) -> None:
    site = site_of(timing=replace(BRISK, gone_s=30.0))
    async with handling(site):
        assert site.group.healthy()
        site.group._loop_watch._answered_at -= 1_000
        assert site.group.healthy().connected is False
        await eventually(lambda: len(site.connections) == 2, "it connects again")
        await eventually(site.group.healthy, "it is healthy again")


async def test_a_forked_process_neither_runs_nor_closes_a_group(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.group as parent:
        child = copy.copy(parent)
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: -1)
            with pytest.raises(errors.InputError, match="'a' was opened by process "):
                await child.run(site.handle)
            await child.__aexit__(None, None, None)
        assert not site.connections[0].is_closed


async def test_a_hook_that_does_not_end_is_cancelled_at_the_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "CANCELLED_S", 0.05)
    monkeypatch.setattr("rabbit_chx.consuming.session.CANCELLED_S", 0.05)

    async def hangs(_: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            site.told.append("cancelled")

    site.group._member = replace(site.group._member, on_lost=hangs)
    async with handling(site):
        pass
    assert site.told[-1] == "cancelled"


async def test_handlers_are_cancelled_as_soon_as_the_connection_is_lost(site: Site) -> None:
    site.gate.clear()
    async with handling(site) as task:
        site.openings = [asyncio.Event().wait]
        site.connections[0].cut()
        async with asyncio.timeout(1):
            await eventually(lambda: "lost q" in site.told, "the handler has ended")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "ends 1" not in site.told


async def test_a_handler_that_shields_itself_holds_up_its_queue_and_not_the_connection(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rabbit_chx.consuming.runner.CANCELLED_S", 0.05)
    generations = []

    async def handle(message: GroupMessage) -> None:
        generations.append(message.generation or 0)
        work = asyncio.create_task(site.gate.wait())
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(work)
        await work

    async with running(site, handle):
        site.gate.clear()
        await eventually(lambda: site.connections[0].lines["q"], "it consumes")
        await site.connections[0].deliver("q", 1)
        await eventually(lambda: generations, "the handler runs")
        site.connections[0].cut()
        await eventually(lambda: len(site.connections) == 2 and site.connections[1].lines["q"], "it is back")
        await site.connections[1].deliver("q", 1)
        await asyncio.sleep(0.1)
        assert len(generations) == 1, "the first handler is not done"
        assert (bool(site.group.healthy()), site.group.healthy().held_up) == (False, ("q",))
        assert "q: a handler was cancelled, and goes on" in caplog.text
        site.gate.set()
        await eventually(lambda: len(generations) == 2, "the message is handled again")
        assert site.group.healthy()
        assert generations[1] > generations[0]


@pytest.mark.parametrize("all_succeed", [False, True])
async def test_an_attempt_that_hangs_does_not_hold_up_the_next_one(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, all_succeed: bool
) -> None:
    """Of several that succeed together all but one are closed."""
    monkeypatch.setattr(group, "_CONNECT_S", 0.05)
    way = asyncio.Event()
    async with handling(site):
        site.openings = [way.wait] * 3
        site.connections[0].cut()
        await eventually(lambda: not site.openings, "three attempts hang")
        if all_succeed:
            way.set()
        await eventually(lambda: site.group.reconnects == 1, "it is back")
    assert all(connection.is_closed for connection in site.connections)


async def test_a_connection_that_opens_while_the_member_waits_is_closed_at_the_end(
    site_of: Callable[..., Site], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group, "_CONNECT_S", 0.05)
    site = site_of(reconnect_backoff_s=0.3)
    way = asyncio.Event()
    async with handling(site):
        site.openings = [way.wait]
        site.connections[0].cut()
        await eventually(lambda: caplog.text.count("connecting again") == 2, "it waits after an attempt")
        way.set()
        await eventually(lambda: len(site.connections) == 2, "the attempt succeeds")
    assert all(connection.is_closed for connection in site.connections)


async def test_an_attempt_may_take_some_time(site: Site) -> None:
    is_slow = AsyncMock(side_effect=functools.partial(asyncio.sleep, 0.3))
    async with handling(site):
        site.openings = [is_slow] * 9
        site.connections[0].cut()
        await eventually(lambda: site.group.reconnects == 1, "it is back")
    assert is_slow.await_count == 1


async def test_a_member_at_rest_may_lose_its_connection_as_often_as_it_likes(
    site_of: Callable[..., Site],
) -> None:
    """Each time begins anew, also where nothing was handled in between."""
    site = site_of(reconnect_timeout_s=0.3)
    async with running(site):
        for count in range(1, 4):
            await eventually(lambda: site.group._session and site.group._session.is_up, "it is there")
            await asyncio.sleep(0.2)
            site.openings = [refused]
            site.connections[-1].cut()
            await eventually(lambda count=count: site.group.reconnects == count, "it connects again")  # type: ignore[misc]


async def test_what_would_be_refused_again_ends_the_run(site: Site) -> None:
    refusal = errors.AccessRefusedError("the broker refuses the login", reply_code=403)
    async with handling(site) as task:
        site.openings = [AsyncMock(side_effect=refusal)]
        site.connections[0].cut()
        with pytest.raises(errors.AccessRefusedError, match="refuses the login"):
            await task
        assert site.told[-1] == "lost q"


async def test_a_queue_that_was_declared_again_without_what_a_group_needs_ends_the_run(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message of it is handled: several members would have it at once."""
    unfit = errors.MismatchError("queue 'q': x-single-active-consumer is not set")
    async with handling(site) as task:
        checked = asyncio.Event()

        async def find(*_: object) -> None:
            await checked.wait()
            raise unfit

        monkeypatch.setattr(ScriptedConnection, "queue_arguments", find)
        site.connections[0].cut()
        await eventually(lambda: len(site.connections) == 2 and site.connections[1].lines["q"], "it is back")
        await site.connections[1].deliver("q", 2)
        await asyncio.sleep(0.1)
        assert not site.group.healthy(), "it is not checked yet"
        checked.set()
        with pytest.raises(errors.MismatchError, match="x-single-active-consumer is not set"):
            await task
    assert "begins 2" not in site.told
    assert not site.group.healthy()


async def test_a_queue_that_was_declared_again_with_a_delivery_limit_has_the_prefetch_of_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handling(site):
        assert site.connections[0].prefetches["q"] == 32
        limited = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": 20}
        monkeypatch.setattr(ScriptedConnection, "queue_arguments", AsyncMock(return_value=limited))
        site.connections[0].cut()
        await eventually(
            lambda: site.connections[-1].prefetches.get("q") == 1, "it consumes with another one"
        )
        await eventually(site.group.healthy, "it is healthy again")


async def test_a_handler_that_fails_for_good_ends_the_run_in_order(site_of: Callable[..., Site]) -> None:
    site = site_of(retries=0)

    async with running(site, AsyncMock(side_effect=ZeroDivisionError)) as task:
        await eventually(lambda: site.connections[0].lines["q"], "it consumes")
        line = await site.connections[0].deliver("q", 1)
        with pytest.raises(errors.HandlerError, match="the handler raised ZeroDivisionError for the message"):
            await task
        assert (line.acked, line.abandoned) == ([], True)
        assert site.told == ["gained q", "lost q"]


class UnprintableError(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class UntrueError(UnprintableError):
    """An error that has no truth value either."""

    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


async def cancel_another() -> None:
    """End in the CancelledError of a task of one's own, as after ``task.cancel(); await task``."""
    task = asyncio.ensure_future(asyncio.sleep(3600))
    task.cancel()
    await task


async def cancel_oneself() -> None:
    """End as cancelled by one's own task."""
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "end",
    [
        cancel_another,
        cancel_oneself,
        AsyncMock(side_effect=UnprintableError),
        AsyncMock(side_effect=GeneratorExit),
    ],
)
@pytest.mark.parametrize("hook", ["on_gained", "on_lost"])
async def test_however_a_hook_ends_it_is_its_end_and_logged(
    site: Site, caplog: pytest.LogCaptureFixture, hook: str, end: Callable[[], Awaitable[None]]
) -> None:
    calls = []

    async def ends(queue: str) -> None:
        calls.append(queue)
        await end()

    hooks: dict[str, Any] = {hook: ends}
    site.group._member = replace(site.group._member, **hooks)
    async with asyncio.timeout(10), handling(site):
        await eventually(lambda: "ends 1" in site.told, "the queue moves")
    assert calls == ["q"]
    assert f"q: the hook {hook} " in caplog.text


@pytest.mark.parametrize("hook", ["on_gained", "on_lost"])
def test_a_hook_that_ends_the_process_ends_it_once_and_on_lost_is_called(
    monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    calls = []

    async def exits(_: str) -> None:
        calls.append(hook)
        raise SystemExit(7)

    async def story() -> None:
        site = Site(monkeypatch)
        site.told = calls
        hooks: dict[str, Any] = {hook: exits}
        site.group._member = replace(site.group._member, **hooks)
        async with handling(site) if hook == "on_lost" else running(site) as task:
            if hook == "on_gained":
                await eventually(lambda: site.connections[-1].lines["q"], "it consumes")
                await site.connections[-1].deliver("q", 1)
                await task

    with pytest.raises(SystemExit) as ended:
        asyncio.run(story())
    assert ended.value.code == 7
    handled = ["begins 1", "ends 1"] if hook == "on_lost" else []
    assert calls == ["gained q" if handled else hook, *handled, hook if handled else "lost q"]


@pytest.mark.parametrize("hook", ["on_gained", "on_lost"])
async def test_a_hook_that_goes_on_although_it_is_cancelled_is_over_after_its_time(
    site_of: Callable[..., Site], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hook: str
) -> None:
    monkeypatch.setattr("rabbit_chx.consuming.settings.CANCELLED_S", 0.05)
    site = site_of(timing=replace(BRISK, hook_s=0.05))
    calls, is_over = [], asyncio.Event()

    async def goes_on(queue: str) -> None:
        calls.append(queue)
        while not is_over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await is_over.wait()

    hooks: dict[str, Any] = {hook: goes_on}
    site.group._member = replace(site.group._member, **hooks)
    async with asyncio.timeout(8), handling(site):
        await eventually(lambda: "ends 1" in site.told, "the queue moves")
        assert site.group.healthy()
    assert calls == ["q"]
    assert "goes on although it was cancelled" in caplog.text
    is_over.set()


@pytest.mark.parametrize(
    "end",
    [
        cancel_another,
        cancel_oneself,
        AsyncMock(side_effect=UntrueError),
        AsyncMock(side_effect=GeneratorExit),
    ],
)
async def test_however_a_handler_ends_it_is_an_attempt_that_failed(
    site_of: Callable[..., Site], end: Callable[[], Awaitable[None]]
) -> None:
    site = site_of(retries=1, backoff_s=0.01)
    attempts = []

    async def handle(message: GroupMessage) -> None:
        attempts.append(message.attempt)
        await end()

    async with asyncio.timeout(10), running(site, handle) as task:
        await eventually(lambda: site.connections[0].lines["q"], "it consumes")
        await site.connections[0].deliver("q", 1)
        with pytest.raises(errors.HandlerError, match="at the last of 2 attempts"):
            await task
    assert attempts == [1, 2]
    assert not site.group.healthy()


@pytest.mark.parametrize("error", [ZeroDivisionError(), asyncio.CancelledError()])
async def test_an_error_of_a_library_leaves_no_queue_without_a_consumer(
    site: Site, error: BaseException
) -> None:
    async with handling(site):
        site.connections[0].abandon = AsyncMock(side_effect=error)  # type: ignore[method-assign]
        runner = site.group._runners[0]
        runner.execute(runner.ownership.step_back())
        await eventually(lambda: len(site.connections) == 2, "it connects again")
        await eventually(site.group.healthy, "it consumes again")


def test_members_without_a_journal_share_the_queues_by_their_names_whatever_the_order() -> None:
    def share(index: int, queues: list[str]) -> tuple[str, ...]:
        return ConsumerGroup("amqp://host", queues, journal=None, static=(index, 2)).queues

    assert share(0, ["q3", "q1", "q2"]) == share(0, ["q1", "q2", "q3"]) == ("q1", "q3")
    assert share(1, ["q3", "q1", "q2"]) == ("q2",)


async def test_a_journal_that_cannot_be_declared_now_ends_no_group(site: Site) -> None:
    """A fake, since a node that is down at this moment is up again before or after it."""
    site.journal.declarations = [errors.UnreachableError("its node is down")]
    async with handling(site):
        pass
    assert site.told == ["gained q", "begins 1", "ends 1", "lost q"]


@pytest.mark.parametrize(
    "host",
    ["b-1.mq.eu-west-1.amazonaws.com", "B-1.MQ.eu-west-1.on.aws", "b-1.mq.cn-north-1.amazonaws.com.cn"],
)
def test_amazon_mq_loses_streams_so_a_journal_is_refused_without_a_connection(host: str) -> None:
    url = f"amqps://user:secret@{host}:5671"
    with pytest.raises(
        errors.InputError, match=r"'rabbit-chx\.groups', a stream, .* Amazon MQ.* pass journal=None"
    ):
        ConsumerGroup(url, ["q"])
    assert ConsumerGroup(url, ["q"], journal=None).queues == ("q",)
    for other in ("mq.example.amazonaws.com", "ec2-1-2-3-4.eu-west-1.compute.amazonaws.com", "on.aws"):
        assert ConsumerGroup(f"amqp://{other}", ["q"]).queues == ("q",)


def test_the_queues_of_a_ring_are_those_of_its_buckets_each_once_and_no_hole() -> None:
    ring = HashRing.from_buckets(["q2", None, "q1", "q2"])

    assert ConsumerGroup("amqp://host", ring).queues == ("q2", "q1")
    modulus = ModulusHashExchange("bills", [("q2", "1"), ("q1", "1"), ("q2", "2")])
    assert ConsumerGroup("amqp://host", modulus).queues == ("q1", "q2")


async def test_an_error_that_no_connection_mends_lets_what_is_in_hand_be_done(site: Site) -> None:
    site.gate.clear()
    async with handling(site) as task:
        session = site.group._session
        assert session is not None
        session.fail(errors.InputError("another process is the member 'a'"))
        await eventually(lambda: session._is_leaving, "it leaves")
        site.gate.set()
        with pytest.raises(errors.InputError):
            await task
        assert site.told == ["gained q", "begins 1", "ends 1", "lost q"]


class _Handler:
    """A handler as an object."""

    async def __call__(self, message: GroupMessage) -> None:
        """Handle a message."""


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        *((each, "which is not async: write async def") for each in (print, functools.partial(print), None)),
        *((each, r"the group is not open: use 'async with ConsumerGroup\(") for each in (_Handler(), functools.partial(_Handler().__call__))),
    ],
)  # fmt: skip
def test_a_handler_is_what_can_be_awaited(handler: Any, says: str) -> None:
    with pytest.raises(errors.InputError, match=says):
        asyncio.run(ConsumerGroup("amqp://scripted", ["q"]).run(handler))


@pytest.mark.parametrize(
    ("limit", "release", "concurrency", "prefetch"),
    [
        ({"x-delivery-limit": -1}, "4.3.6", 1, 32),
        ({"x-delivery-limit": 20}, "4.3.6", 1, 1),
        ({"x-delivery-limit": 20}, "4.3.6", 3, 3),
        ({}, "4.3.6", 1, 1),
        ({}, "3.13.7", 1, 32),
    ],
)
async def test_with_a_delivery_limit_nothing_is_delivered_ahead(
    *,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: dict[str, int],
    release: str,
    concurrency: int,
    prefetch: int,
) -> None:
    """What is delivered ahead of a message that ends its member would reach the limit together with it."""
    monkeypatch.setattr(ScriptedConnection, "queue_arguments", AsyncMock(return_value=limit))
    monkeypatch.setattr(ScriptedConnection, "server_version", release)
    site = Site(monkeypatch, concurrency=concurrency, prefetch=32)
    async with running(site):
        await eventually(lambda: bool(site.connections[-1].prefetches), "it consumes")
    assert site.connections[0].prefetches["q"] == prefetch
    assert "ignores the priority of consumers" not in caplog.text, "it has a journal"


# -- health: it is connected, and no other member holds what is assigned to it

QUEUES = tuple(f"q{number}" for number in range(4))
#: Of the members a and b.
OWNERS = queue_owners(QUEUES, {"a": 1.0, "b": 1.0})
MINE, OTHERS = (next(queue for queue in QUEUES if OWNERS[queue] == name) for name in "ab")


def health(*entries: tuple[EntryKind, str, str], is_up: bool = True, is_lost: bool = False) -> GroupHealth:
    """The health of the member a after these entries: their kinds, members and queues."""
    roster = Roster()
    ready = [("ready", name, "") for name in "ab"]
    for offset, (kind, member, queue) in enumerate([*ready, *entries]):
        queues = QUEUES if kind == "ready" else ()
        roster.take(offset, JournalEntry(kind, member, 1.0, 1.0, queues, queue, member))  # type: ignore[arg-type]
    group: Any = ConsumerGroup("amqp://host", QUEUES, member="a")
    group._session = SimpleNamespace(is_up=is_up, is_lost=is_lost, roster=roster, ignored_entries=0)
    group._runners = [
        SimpleNamespace(
            handled_at=None if day is None else datetime(2026, 1, day, tzinfo=UTC), is_held_up=False
        )
        for day in (2, None, 3, 1)
    ]
    found: GroupHealth = group.healthy()
    return found


def test_a_member_is_healthy_unless_it_is_cut_off_or_another_one_holds_what_is_its_own() -> None:
    assert health()
    assert health(("claim", "a", MINE))
    assert health(("claim", "b", OTHERS)), "others own their queues"
    assert health(("claim", "a", OTHERS)), "that is the trouble of the other one"
    assert health(("claim", "b", MINE), ("released", "b", MINE))
    held = health(("claim", "b", MINE))
    assert (bool(held), held.connected, held.not_owned) == (False, True, (MINE,))
    for cut_off in (health(is_up=False), health(is_lost=True)):
        assert (bool(cut_off), cut_off.connected) == (False, False)


def test_handled_at_is_that_of_the_last_call() -> None:
    assert health().handled_at == datetime(2026, 1, 3, tzinfo=UTC)


async def test_a_rejected_message_is_one_warning_with_its_key_its_id_and_the_error(
    site_of: Callable[..., Site], caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(_: GroupMessage) -> None:
        raise ValueError("the amount\nis negative")

    site = site_of(on_failure="dead-letter", retries=1, backoff_s=0.01)
    async with running(site, handle):
        await eventually(lambda: site.connections and site.connections[0].lines["q"], "it consumes")
        line = site.connections[0].lines["q"][-1]
        line.take(DeliveredMessage(1, "k", GroupMessage("q", "customer-7", b"", message_id="m-1")))
        await eventually(lambda: "is rejected" in caplog.text, "it is rejected")
        assert not site.group._runners[0]._errors, "the error is not kept"
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told[-1] == (
        "q: the message with the routing key 'customer-7' and the message_id 'm-1' is rejected, to be dead-lettered, after 2 attempts: the "
        "handler raised ValueError: the amount is negative. Correct the handler, and publish the message again"
    )
    assert len(told) == 2, "the other one is of the queue, which has no exchange for it"


async def test_an_error_that_ends_a_member_is_in_its_log(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Who runs it in a task may never ask for it."""
    async with running(site) as task:
        await site.has_a_message()
        site.group._session.fail(errors.MissingRowsError("rows are missing"))  # type: ignore[union-attr]
        with pytest.raises(errors.MissingRowsError):
            await task
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert told == ["group member a ends: rows are missing"]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
async def test_where_a_handler_failed_is_logged_at_debug(
    site_of: Callable[..., Site], caplog: pytest.LogCaptureFixture, level: int
) -> None:
    async def handle(_: GroupMessage) -> None:
        raise ValueError("the amount is negative")

    caplog.set_level(level, "rabbit_chx")
    site = site_of(retries=0)
    async with running(site, handle) as task:
        await eventually(lambda: site.connections[0].lines["q"], "it consumes")
        await site.connections[0].deliver("q", 1)
        with pytest.raises(errors.HandlerError):
            await task
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert [record.levelno for record in tracebacks] == ([logging.DEBUG] if level == logging.DEBUG else [])
    if tracebacks:
        assert 'raise ValueError("the amount is negative")' in caplog.text


@pytest.mark.parametrize(
    ("release", "priorities", "warnings"),
    [
        ("4.3.6", [None, None, 9, 0], 1),
        ("4.3.6", [7, 7, 7], 0),
        ("4.3.6", [None, 4], 0),
        ("4.0.5", [None, 0, 3], 0),
        ("4.0.5", [None, 5, 9], 1),
        ("3.10.8", [None, 9], 0),
    ],
)
async def test_a_group_warns_once_of_messages_that_differ_in_priority(
    *,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    release: str,
    priorities: list[int | None],
    warnings: int,
) -> None:
    monkeypatch.setattr(ScriptedConnection, "server_version", release)
    fit = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    monkeypatch.setattr(ScriptedConnection, "queue_arguments", AsyncMock(return_value=fit))
    async with running(site):
        await eventually(lambda: site.connections[0].lines["q"], "it consumes")
        for tag, priority in enumerate(priorities, 1):
            properties = {} if priority is None else {"priority": priority}
            content = GroupMessage("q", "k", str(tag).encode(), properties=properties)
            site.connections[0].lines["q"][-1].take(DeliveredMessage(tag, "k", content))
        await eventually(lambda: f"ends {len(priorities)}" in site.told, "all are handled")
    assert caplog.text.count("a key is not handled in the order of its messages") == warnings


INTERNAL = errors.ConnectionLostError("541 INTERNAL_ERROR", reply_code=541)


async def test_a_queue_that_ends_each_connection_is_left_out_and_the_others_go_on(
    site_of: Callable[..., Site], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`tests/broker/` has a real message of that kind."""
    monkeypatch.setattr(group, "RETRY_S", 0.05)
    monkeypatch.setattr("rabbit_chx.consuming.group._SETTLE_S", 0.05)
    is_poisoned = True
    real = ScriptedConnection.consume_behind

    async def consume(self: ScriptedConnection, queue: str, *rest: Any) -> Any:
        line = await real(self, queue, *rest)
        if queue == "q.1" and is_poisoned:
            asyncio.get_running_loop().call_later(0.01, self.cut, INTERNAL)
        return line

    async def consume_alone(_settings: Any, _queue: str, _prefetch: int) -> None:
        if is_poisoned:
            raise INTERNAL

    monkeypatch.setattr(ScriptedConnection, "consume_behind", consume)
    monkeypatch.setattr("rabbit_chx.consuming.channels.consume_alone", consume_alone)
    site = site_of(queues=["q.0", "q.1", "q.2"], journal=None)
    async with running(site) as task:
        await eventually(lambda: site.group.healthy().left_out == ("q.1",), "the queue is found")
        await eventually(lambda: site.group.healthy().connected, "it consumes the others")
        assert not site.group.healthy()
        assert set(site.connections[-1].consumed) == {"q.0", "q.2"}
        for queue in ("q.0", "q.2"):
            await site.connections[-1].deliver(queue, 1)
        await eventually(lambda: site.told.count("ends 1") == 2, "the others are handled")
        count = len(site.connections)
        await asyncio.sleep(0.2)
        assert len(site.connections) == count, "trying the queue again disturbs no other one"
        is_poisoned = False
        await eventually(site.group.healthy, "it consumes all again")
        assert "q.1" in site.connections[-1].consumed
        assert not task.done()
    (told,) = (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert "queue q.1 is left out: one of its next 32 messages" in told


async def test_a_group_whose_only_queue_cannot_be_delivered_waits_for_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rabbit_chx.consuming.group._SETTLE_S", 0.05)
    async with running(site) as task:
        for count in (1, 2):
            await eventually(
                lambda count=count: len(site.connections) == count and site.connections[-1].consumed,  # type: ignore[misc]
                "it consumes",
            )
            site.connections[-1].cut(INTERNAL)
        await eventually(lambda: site.group.healthy().left_out == ("q",), "the queue is left out")
        await asyncio.sleep(0.1)
        assert not task.done()
        assert not site.group.healthy()
