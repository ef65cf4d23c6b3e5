"""A broker that serves, and a vhost of its own for each test."""

from __future__ import annotations

import random
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol
from urllib.parse import quote

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.subprocesses import OutputTooLongError, run_program

#: The plugins that are enabled in every broker that we start, where its release has them.
PLUGINS = (
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_management",
    "rabbitmq_sharding",
    "rabbitmq_stream",
)


class Server(Protocol):
    """A server that we started."""

    def log(self, lines: int = 20) -> str:
        """Return the last lines of the server's log, also when it does not run."""

    def remove(self) -> None:
        """End the server and remove everything of it; further calls do nothing."""


@dataclass(frozen=True, slots=True, repr=False)
class RunningBroker:
    """A broker for tests.

    Attributes:
        url: the AMQP URI, with user, password and vhost.
        management_url: the URL of the HTTP API, with user and password; None if there is none.
        version: the version that the broker itself names, such as ``"4.3.6"``.
        ring_via: the command prefix that reaches the CLI tools, such as ``("docker", "exec", ID)``; None if they cannot be run.
        origin: one line for people: what the broker is and where it came from.
        server: what removes the broker; None if we did not start it.
        stream_port: where the stream protocol is spoken, on the host of the URL.
    """

    url: str
    management_url: str | None
    version: str
    ring_via: tuple[str, ...] | None
    origin: str
    server: Server | None = field(default=None, compare=False)
    stream_port: int = 5552

    @property
    def stream_url(self) -> str:
        """The URL of the stream protocol, without TLS, with user, password and vhost."""
        authority, slash, vhost = self.url.partition("://")[2].partition("?")[0].partition("/")
        login, at, address = authority.rpartition("@")
        host = re.sub(r":\d*$", "", address)
        return f"rabbitmq-stream://{login}{at}{host}:{self.stream_port}{slash}{vhost}"

    @property
    def owned(self) -> bool:
        """True if this library started the broker."""
        return self.server is not None

    def run(self, *command: str, timeout_s: float = 60) -> str:
        """Run a CLI tool against the broker and return its stdout.

        Args:
            command: the tool and its arguments, such as ``"rabbitmqctl", "list_queues"``.
            timeout_s: the number of seconds after which the tool is killed.

        Raises:
            InputError: we did not start this broker.
            BrokerRefusedError: the tool failed; the message has the end of its stderr.
            BrokerTimeoutError: the tool did not end in time.
        """
        self._server("run a command in")
        result = run_bounded(((self.ring_via or ()) + command), timeout_s=timeout_s)
        if result.returncode:
            # rabbitmqctl repeats its arguments after a usage error, and they may hold a password.
            why = last_lines(result.stderr.partition("Arguments given")[0])
            raise errors.BrokerRefusedError(f"{' '.join(command[:2])} exited with {result.returncode}: {why}")
        return result.stdout

    def log(self, lines: int = 20) -> str:
        """Return the last lines of the server's log, also when it does not run; they may say why a test failed.

        Args:
            lines: the number of lines.
        """
        return self._server("read the log of").log(lines)

    def problems(self, since: datetime) -> list[str]:
        """Return the warnings and errors in the server's log since a time.

        Args:
            since: the time, with a time zone. Log lines have whole seconds here, so those of the same second are included.
        """
        return problems_in(self.log(_SEARCHED_LINES), since)

    def stop(self) -> None:
        """End the server and remove everything of it; further calls do nothing."""
        self._server("stop").remove()

    def _server(self, verb: str) -> Server:
        if self.server is None:
            raise errors.InputError(
                f"cannot {verb} the broker at {mask(self.url)}: rabbit_chx.testing did not start it; use docker_broker()"
            )
        return self.server

    def __repr__(self) -> str:
        management = self.management_url and mask(self.management_url)
        return (
            f"RunningBroker(url={mask(self.url)!r}, management_url={management!r}, version={self.version!r},"
            f" ring_via={self.ring_via!r}, origin={self.origin!r}, owned={self.owned!r})"
        )


def mask(url: str) -> str:
    """Return a URL without its password; a text that is not a proper URL is masked too."""
    scheme, separator, rest = url.partition("://")
    if not scheme.isalpha() or not separator:
        scheme = ""
        separator = ""
        rest = url
    user_info, at, where = rest.rpartition("@")
    user, colon, _password = user_info.partition(":")
    return f"{scheme}{separator}{user}{colon and ':***'}{at}{where}"


@contextmanager
def temporary_vhost(broker: RunningBroker) -> Iterator[RunningBroker]:
    """Create a vhost for a ``with`` block, and delete it with its contents.

    Args:
        broker: the broker.

    Yields:
        The broker with the vhost in its URL.

    Raises:
        InputError: the broker has no management URL.
        BrokerRefusedError: the broker's user may not create vhosts.
    """
    from rabbit_chx.broker.management import Management
    from rabbit_chx.broker.scratch import scratch_vhost

    if broker.management_url is None:
        raise errors.InputError(
            "a vhost can only be made through the HTTP API: set RABBIT_CHX_TEST_MANAGEMENT_URL as well"
        )
    with scratch_vhost(Management(broker.management_url)) as name:
        yield in_vhost(broker, name)


def in_vhost(broker: RunningBroker, vhost: str) -> RunningBroker:
    """Return the broker with another vhost, not yet quoted, in its URL, whose query is kept."""
    address, mark, query = broker.url.partition("?")
    scheme, separator, rest = address.partition("://")
    url = f"{scheme}{separator}{rest.partition('/')[0]}/{quote(vhost, safe='')}{mark}{query}"
    return replace(broker, url=url)


def run_bounded(command: tuple[str, ...], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program and return its exit code, stdout and stderr; its stdin is empty."""
    # Arguments may be secret, so messages have the first two words only.
    name = " ".join(command[:2])
    try:
        done = run_program(command, timeout_s, _LONGEST_OUTPUT, with_children=True)
    except OSError as error:
        raise errors.UnreachableError(f"cannot run {name}: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise errors.BrokerTimeoutError(f"{name} did not end within {timeout_s:g} s") from None
    except OutputTooLongError:
        raise errors.UnreachableError(f"{name} printed more than {_LONGEST_OUTPUT:,} bytes") from None
    stdout, stderr = (output.decode(errors="replace") for output in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(name, done.returncode, stdout, stderr)


_LOG_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)?([+-]\d\d:\d\d) \[(\w+)\]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PROBLEMS = {"warning", "error", "critical", "alert", "emergency"}
_SEARCHED_LINES = 2_000
_LONGEST_OUTPUT = 64 << 20


def problems_in(log: str, since: datetime) -> list[str]:
    """Return the warnings and errors of a RabbitMQ log since a time, with the lines that continue them."""
    found: list[str] = []
    is_problem = False
    for line in _COLOUR.sub("", log).splitlines():
        if parsed := _LOG_LINE.match(line):
            time_text, offset, level = parsed.groups()
            written = datetime.fromisoformat(time_text + offset)
            is_problem = level in _PROBLEMS and written >= since.replace(microsecond=0)
        if is_problem and line.strip():
            found.append(line.rstrip())
    return found


def last_lines(text: str, count: int = 20) -> str:
    """Return the last lines of a program's output that are not empty."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-count:]) or "no output"


# -- waiting until a broker serves: the broker itself is asked, with its real user

_PROBE_TIMEOUT_S = 10.0
#: After so many seconds without a connection, or of refusals, it is asked why.
_DOUBT_AFTER_S = 10.0
_ASK_AGAIN_S = 5.0


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 without a listener, below the system's ephemeral ports, which outgoing connections use."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(20_000, 32_000), 1_000):  # tests seed `random` alike
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise errors.NoBrokerError(f"no {count} free ports on 127.0.0.1 between 20000 and 32000")


def guest_urls(amqp_port: int, management_port: int, host: str = "127.0.0.1") -> tuple[str, str]:
    """Return the AMQP URI and the management URL of a broker of ours."""
    return f"amqp://guest:guest@{host}:{amqp_port}/%2F", f"http://guest:guest@{host}:{management_port}"


def wait_until_serving(
    url: str,
    management_url: str,
    *,
    timeout_s: float,
    running: Callable[[], bool],
    log: Callable[[], str],
    tools: tuple[str, ...],
    why_unreachable: Callable[[], str] = str,
) -> str:
    """Wait until the broker's startup is complete and AMQP and the HTTP API accept the user; return its version.

    A server accepts users shortly before its startup is complete.

    Args:
        url: the AMQP URI.
        management_url: the URL of the HTTP API.
        timeout_s: how many seconds to wait.
        running: returns whether the server still runs; the wait ends when it does not.
        log: returns the server's last log lines, for the error.
        tools: the command prefix that reaches the server's CLI tools.
        why_unreachable: returns why the server cannot be reached although it listens; empty if that is not so.
    """
    begin = time.monotonic()
    deadline = begin + timeout_s
    ask_at = begin + _DOUBT_AFTER_S
    refused_since: float | None = None
    while True:
        try:
            check_management(management_url)
            await_startup(management_url, tools, max(_PROBE_TIMEOUT_S, deadline - time.monotonic()))
            return amqp_version(url)
        except errors.NoBrokerError as error:
            if not running():
                raise errors.NoBrokerError(f"the server ended while it started; its log:\n{log()}") from error
            now = time.monotonic()
            is_refused = isinstance(error.__cause__, errors.AccessRefusedError)
            refused_since = (refused_since or now) if is_refused else None
            if refused_since is not None and now - refused_since > _DOUBT_AFTER_S:
                raise errors.NoBrokerError(
                    f"the server refuses the user of {mask(url)}: its configuration or its definitions make other users, and this one is needed "
                    "for tests; use an image that has it, or start a broker of it yourself and set RABBIT_CHX_TEST_URL"
                ) from error
            if isinstance(error.__cause__, errors.UnreachableError) and now > ask_at:
                if why := why_unreachable():
                    raise errors.NoBrokerError(why) from error
                ask_at = time.monotonic() + _ASK_AGAIN_S
            if now > deadline:
                raise errors.NoBrokerError(
                    f"the server does not serve after {timeout_s:g} s ({error}); its log:\n{log()}"
                ) from error
        time.sleep(0.2)


def await_startup(management_url: str, tools: tuple[str, ...], timeout_s: float) -> None:
    """Wait until the startup is complete.

    On 4.3 the HTTP API tells (rabbitmq-server v4.3.6, rabbit.erl, is_serving/0). The tool, for older releases, takes a second of CPU time.

    Raises:
        NoBrokerError: it is not complete.
    """
    from rabbit_chx.broker.management import Management

    try:
        Management(management_url, timeout_s=_PROBE_TIMEOUT_S).request(
            "GET", "health", "checks", "is-in-service"
        )
    except (errors.AccessRefusedError, errors.NotFoundError):
        _await_startup_by_tool(tools, timeout_s)
    except (errors.UnreachableError, errors.BrokerRefusedError) as error:
        raise errors.NoBrokerError(f"its startup is not complete: {error}") from error


def _await_startup_by_tool(tools: tuple[str, ...], timeout_s: float) -> None:
    try:
        result = run_bounded((*tools, "rabbitmqctl", "await_startup"), timeout_s=timeout_s)
    except errors.UnreachableError as error:
        raise errors.NoBrokerError(f"its startup is not complete: {error}") from error
    if result.returncode:
        raise errors.NoBrokerError(f"its startup is not complete: {last_lines(result.stderr)}")


def amqp_version(url: str) -> str:
    """Log in over AMQP, and return the version that the broker gives in its server properties."""
    settings = replace(ConnectionSettings.from_uri(url), connection_timeout_s=_PROBE_TIMEOUT_S)
    try:
        with closing(Connection(settings)) as connection:
            return str(connection.session.server.get("version", "unknown"))
    except (errors.UnreachableError, errors.BrokerRefusedError) as error:
        raise errors.NoBrokerError(f"no AMQP login: {error}") from error


def check_management(url: str) -> None:
    """Read ``/api/overview`` with the user of the URL."""
    from rabbit_chx.broker.management import Management

    try:
        Management(url, timeout_s=_PROBE_TIMEOUT_S).request("GET", "overview")
    except (errors.UnreachableError, errors.BrokerRefusedError) as error:
        raise errors.NoBrokerError(f"no HTTP API: {error}") from error
