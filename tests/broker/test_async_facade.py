"""An `AsyncBroker`: what is refused at the door, connections that end, tasks that are cancelled, and loops that change."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
from declared import BINDINGS, with_login
from quick_rings import quick_prefix

from rabbit_chx import AsyncBroker, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.aio_pika_connection import AioPikaConnection
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    InputError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan
from rabbit_chx.topology.operations import ExchangeDeclare

pytestmark = pytest.mark.broker

PASSIVE = ExchangeDeclare("amq.direct", passive=True)


def refused(url: str) -> RabbitChxError:
    async def enter() -> None:
        async with AsyncBroker(url):
            pass

    with pytest.raises(RabbitChxError) as caught:
        asyncio.run(enter())
    error = caught.value
    assert "c4nary" not in f"{error!s} {error!r} {error.__cause__!r} {error.__context__!r}"
    return error


def test_what_is_refused_at_the_door(vhost_url: str) -> None:
    error = refused(with_login(vhost_url, "guest", "c4nary"))
    assert isinstance(error, AccessRefusedError)
    assert "Login was refused" in str(error)
    error = refused(f"{vhost_url}-gone")
    assert isinstance(error, NotFoundError)
    assert "vhost" in str(error)
    assert isinstance(refused(f"{vhost_url}?auth_mechanism=external"), AccessRefusedError)


def test_places_where_no_broker_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        error = refused(f"amqp://u:c4nary@127.0.0.1:{port}?connection_timeout=300")
        assert isinstance(error, BrokerTimeoutError)
        assert "not open within 0.3 s" in str(error)
        assert isinstance(
            refused(f"amqps://u:c4nary@127.0.0.1:{port}?connection_timeout=300"), BrokerTimeoutError
        )
    error = refused(f"amqp://u:c4nary@127.0.0.1:{port}")
    assert isinstance(error, UnreachableError)
    assert "nobody answers there" in str(error)
    assert "cannot be resolved" in str(refused("amqp://u:c4nary@no-such-host.invalid"))


def test_tls_to_a_port_without(vhost_url: str) -> None:
    error = refused(vhost_url.replace("amqp:", "amqps:").replace("guest:guest", "u:c4nary"))
    assert isinstance(error, UnreachableError)
    assert "TLS" in str(error)


def test_http_instead_of_amqp(vhost: RunningBroker) -> None:
    assert vhost.management_url is not None
    port = vhost.management_url.rpartition(":")[2].strip("/")
    error = refused(f"amqp://u:c4nary@127.0.0.1:{port}?connection_timeout=3000")
    assert isinstance(error, UnreachableError)


def through(port: int, url: str) -> str:
    return re.sub(r":\d+/", f":{port}/", url)


def test_a_broker_that_goes_silent(proxy: Callable[..., Any], vhost_url: str) -> None:
    async def wait() -> None:
        way = proxy()
        settings = ConnectionSettings.from_uri(through(way.port, vhost_url))
        connection = await AioPikaConnection.open(settings)
        await connection.perform(PASSIVE)
        connection._reply_timeout_s = 0.5
        way.freeze()
        with pytest.raises(BrokerTimeoutError, match=r"no answer within 0\.5 s"):
            await connection.perform(PASSIVE)
        with pytest.raises(UnreachableError):
            await connection.perform(PASSIVE)
        way.cut()
        await connection.close()
        await connection.close()

    asyncio.run(wait())


def test_a_connection_that_is_cut(proxy: Callable[..., Any], vhost_url: str) -> None:
    async def lose() -> None:
        way = proxy()
        async with AsyncBroker(through(way.port, vhost_url)) as broker:
            await broker.declare("x", BINDINGS)
            way.cut()
            for _ in range(2):
                with pytest.raises(ConnectionLostError, match="connect again"):
                    await broker.declare("y", BINDINGS)
            await broker.close()
            await broker.open()
        way.close()

    asyncio.run(lose())


def test_open_and_close_in_two_loops(vhost_url: str) -> None:
    broker = AsyncBroker(vhost_url)

    async def use(name: str) -> None:
        assert await broker.open() is broker
        assert await broker.open() is broker
        await broker.declare(name, BINDINGS)
        await broker.close()
        await broker.close()
        with pytest.raises(InputError, match="async with AsyncBroker"):
            await broker.declare(name, BINDINGS)

    asyncio.run(use("one"))
    asyncio.run(use("two"))


WANTED = """
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{ queue = "q.{1..30}" }]
[[queues]]
name = "q.{1..30}"
"""


def test_a_task_that_is_cancelled_while_it_applies(vhost: RunningBroker) -> None:
    """The lock goes with the connection, and another plan has what is left. Up to 100 changes are done together."""
    wanted = Topology.from_toml(WANTED.replace("30", "150"))

    async def cancel_after(changes: int, broker: AsyncBroker) -> None:
        def cancel(done: int, _total: int) -> None:
            if done >= changes:
                application.cancel()

        made = plan(wanted, await broker.topology())
        application = asyncio.create_task(broker.apply(made, allow_moved=1, progress=cancel))
        with pytest.raises(asyncio.CancelledError):
            await application

    async def apply() -> None:
        async with AsyncBroker(vhost.url, vhost.management_url, quick_prefix(vhost)) as broker:
            for changes in (0, 1, 1):
                await cancel_after(changes, broker)
                await broker.close()
                await broker.open()
        async with AsyncBroker(vhost.url, vhost.management_url, quick_prefix(vhost)) as broker:
            await broker.apply(plan(wanted, await broker.topology()), allow_moved=1)
            assert plan(wanted, await broker.topology()).changes == ()

    asyncio.run(apply())


def test_no_password_is_logged(vhost: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Ours, aio-pika's and aiormq's loggers, at the finest level."""
    assert vhost.management_url is not None
    management, name = Management(vhost.management_url), ConnectionSettings.from_uri(vhost.url).vhost
    management.request("PUT", "users", f"{name}-u", body={"password": "c4nary", "tags": "management"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    management.request("PUT", "permissions", name, f"{name}-u", body=everything)
    url, api = (with_login(url, f"{name}-u", "c4nary") for url in (vhost.url, vhost.management_url))
    wanted = Topology.from_toml(WANTED)

    async def work() -> str:
        async with AsyncBroker(url, api) as broker:
            made = plan(wanted, await broker.topology())
            applied = await broker.apply(made)
            return f"{broker!r} {made!r} {applied!r} {made.to_json()}"

    caplog.set_level(logging.DEBUG)
    shown = asyncio.run(work())
    refused(with_login(vhost.url, "guest", "c4nary"))
    management.request("DELETE", "users", f"{name}-u")
    assert "c4nary" not in shown
    assert [
        record.name for record in caplog.records if "c4nary" in record.getMessage() + repr(record.args)
    ] == []
