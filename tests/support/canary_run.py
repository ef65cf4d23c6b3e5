"""A program that does everything with a broker, well and badly, and writes all that it can into the current folder.

Its logs are those of DEBUG, of every library and of asyncio. The URLs come over stdin: command lines are seen by all.
What each step came to is a line of ``outcomes``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from checked_orders import ORDERS_FILE

from rabbit_chx import Broker, ConsumerGroup, Limits, Publisher, Retries, SharedPublisher, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.topology import plan

FILE = f'{ORDERS_FILE}type = "quorum"\narguments = {{ x-single-active-consumer = true }}\n'
LOG = logging.getLogger("canary_run")
SHORT: Any = {
    "limits": Limits(confirm_timeout_s=5),
    "retries": Retries(max_reconnects=2, reconnect_timeout_s=5),
}
ROWS = 50


def outcome(name: str, said: object) -> None:
    """Write what a step came to; ``print`` writes into stdout, which is a file too."""
    with Path("outcomes").open("a") as file:
        file.write(f"{name}: {said} {said!r}\n")


def step(name: str, do: Callable[[], object]) -> None:
    """Do a step, and write its result or its error, with its trace and with those that led to it."""
    try:
        outcome(name, do())
    except Exception as error:
        LOG.exception(name)
        outcome(name, error)
        with suppress(TypeError, AttributeError):
            Path(f"{name}.pickle").write_bytes(pickle.dumps(error))
        Path(f"{name}.trace").write_text("".join(traceback.format_exception(error)))


def bad_urls(url: str) -> dict[str, str]:
    """URLs that fail in one way each. tests/unit/amqp/urls.txt has more that cannot be read."""
    scheme, _, rest = url.partition("://")
    login, _, address = rest.partition("@")
    user, _, password = login.partition(":")
    host, _, vhost = address.partition("/")
    return {
        "wrong password": f"{scheme}://{login}x@{address}",
        "unknown vhost": f"{scheme}://{login}@{host}/nowhere",
        "closed port": f"{scheme}://{login}@127.0.0.1:1/{vhost}",
        "tls": f"amqps://{rest}",
        "two at signs": f"{scheme}://{user}:{password}@x@{address}",
        "password as a parameter": f"amqps://{user}@{address}?password={password}&{password}=1",
    }


def publish(kind: Any, url: str, exchange: str) -> object:
    with kind(url, exchange, **SHORT) as publisher:
        outcome("repr", publisher)
        rows = [f"k{n}" for n in range(ROWS)], [b"b"] * ROWS

        async def in_loop() -> object:
            return await publisher.publish_many(*rows)

        return asyncio.run(in_loop()) if kind is SharedPublisher else publisher.publish_many(*rows)


def topology(url: str, management: str) -> object:
    wanted = Topology.from_toml(FILE)
    with Broker(url, management) as broker:
        outcome("repr", broker)
        made = plan(wanted, broker.topology())
        Path("plan.json").write_text(made.to_json())
        return broker.apply(made), broker.topology(), broker.exchange("orders"), broker.ring("orders")


def consume(url: str, queues: list[str]) -> object:
    """A handler that fails at the third message."""
    handled: list[object] = []

    async def handle(message: Any) -> None:
        handled.append(message)
        LOG.debug("%r", message)
        if len(handled) == 3:
            raise RuntimeError("a handler that fails")

    async def consumed() -> None:
        async with ConsumerGroup(url, queues, member="one") as group:
            outcome("repr", group)
            with suppress(TimeoutError):
                async with asyncio.timeout(4):
                    await group.run(handle)

    asyncio.run(consumed())
    return handled


def commands(url: str, management: str, ring_via: str, bad: dict[str, str]) -> None:
    Path("topology.toml").write_text(FILE)
    Path("other.toml").write_text(FILE.replace("{1..3}", "{1..4}"))
    live = ["--url", url, "--management-url", management, "--ring-via", ring_via]
    for words in Path(__file__).with_name("canary_commands.txt").read_text().splitlines():
        step(f"rabbit-chx {words}", partial(main, [*words.split(), *live]))
    for name, wrong in bad.items():
        verify = ["verify", "orders", "--keys", "key-{1..5}", "--url", wrong, "--management-url", management]
        step(f"rabbit-chx with {name}", partial(main, verify))
        http = wrong.replace("amqps", "https").replace("amqp", "http")
        show = ["show", "orders", "--url", url, "--management-url", http]
        step(f"rabbit-chx API with {name}", partial(main, show))


def run(url: str, management: str, ring_via: str) -> None:
    """Do all of it."""
    bad = bad_urls(url)
    settings = ConnectionSettings.from_uri(url)
    management_url, api = ManagementUrl.of(management), Management(management)
    outcome("values", (settings, settings.masked_url, management_url, api, pika_parameters(url)))
    step("topology", partial(topology, url, management))
    for kind in (Publisher, SharedPublisher):
        name, sender = kind.__name__, partial(publish, kind)
        step(name, partial(sender, url, "orders"))
        step(f"{name} without an exchange", partial(sender, url, "nothing"))
        step(f"{name} without a route", partial(sender, url, "amq.direct"))
        for fault, wrong in bad.items():
            step(f"{name} with {fault}", partial(sender, wrong, "orders"))
    step("group", partial(consume, url, ["orders.1", "orders.2"]))
    step("group of nothing", partial(consume, url, ["nothing"]))
    for fault, wrong in bad.items():
        step(f"broker with {fault}", partial(opened, wrong, management))
        step(f"group with {fault}", partial(consume, wrong, ["orders.1"]))
    commands(url, management, ring_via, bad)


def opened(url: str, management: str) -> object:
    with Broker(url, management) as broker:
        return broker.release


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.DEBUG, filename="log", format="%(asctime)s:%(levelname)s:%(name)s:%(message)s"
    )
    run(*json.load(sys.stdin))
