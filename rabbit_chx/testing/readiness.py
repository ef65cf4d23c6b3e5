"""Waiting until a broker serves; the broker itself is asked, with its real user."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable
from dataclasses import replace

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.errors import BrokerRefusedError, BrokerTimeoutError, NoBrokerError, UnreachableError
from rabbit_chx.testing.running_broker import last_lines, run_bounded

_PROBE_TIMEOUT_S = 10.0


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 without a listener, below the system's ephemeral ports, which outgoing connections use."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise NoBrokerError(f"no {count} free ports on 127.0.0.1 between 20000 and 32000")


def guest_urls(amqp_port: int, management_port: int) -> tuple[str, str]:
    """Return the AMQP URI and the management URL of a broker of ours."""
    return f"amqp://guest:guest@127.0.0.1:{amqp_port}/%2F", f"http://guest:guest@127.0.0.1:{management_port}"


def wait_until_serving(
    url: str,
    management_url: str,
    *,
    timeout_s: float,
    running: Callable[[], bool],
    log: Callable[[], str],
    tools: tuple[str, ...],
) -> str:
    """Wait until the broker's startup is complete and AMQP and the HTTP API accept the user; return its version.

    A server accepts users shortly before its startup is complete. On 3.8 its command line tools then still say that it does not run, and a
    vhost that is made on a node of a cluster never starts there.

    Args:
        url: the AMQP URI.
        management_url: the URL of the HTTP API.
        timeout_s: how many seconds to wait.
        running: returns whether the server still runs; the wait ends when it does not.
        log: returns the server's last log lines, for the error.
        tools: the command prefix that reaches the server's CLI tools.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            check_management(management_url)
            _await_startup(tools, max(_PROBE_TIMEOUT_S, deadline - time.monotonic()))
            return amqp_version(url)
        except NoBrokerError as error:
            if not running():
                raise NoBrokerError(f"the server ended while it started; its log:\n{log()}") from error
            if time.monotonic() > deadline:
                raise NoBrokerError(
                    f"the server does not serve after {timeout_s:g} s ({error}); its log:\n{log()}"
                ) from error
        time.sleep(0.2)


def _await_startup(tools: tuple[str, ...], timeout_s: float) -> None:
    try:
        result = run_bounded((*tools, "rabbitmqctl", "await_startup"), timeout_s=timeout_s)
    except (UnreachableError, BrokerTimeoutError) as error:
        raise NoBrokerError(f"its startup is not complete: {error}") from error
    if result.returncode:
        raise NoBrokerError(f"its startup is not complete: {last_lines(result.stderr)}")


def amqp_version(url: str) -> str:
    """Log in over AMQP, and return the version that the broker gives in its server properties."""
    settings = replace(ConnectionSettings.from_uri(url), connection_timeout_s=_PROBE_TIMEOUT_S)
    try:
        with contextlib.closing(Connection(settings)) as connection:
            return str(connection.session.server.get("version", "unknown"))
    except (UnreachableError, BrokerRefusedError) as error:
        raise NoBrokerError(f"no AMQP login: {error}") from error


def check_management(url: str) -> None:
    """Read ``/api/overview`` with the user of the URL."""
    from rabbit_chx.broker.management import Management

    try:
        Management(url, timeout_s=_PROBE_TIMEOUT_S).request("GET", "overview")
    except (UnreachableError, BrokerRefusedError) as error:
        raise NoBrokerError(f"no HTTP API: {error}") from error
