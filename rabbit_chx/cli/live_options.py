"""Options of the commands that ask a live broker."""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, DiagnosticsRing, RingSource
from rabbit_chx.broker.firehose import trace_exchange, trace_messages
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.management_url import ManagementUrl
from rabbit_chx.cli.config_file import DEFAULT_FILE, DEFAULT_NODE, NodeSettings, read_node
from rabbit_chx.cli.option_groups import TEXT, Command, Number, with_options
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import EmptyRingError, InputError
from rabbit_chx.rendering import CountProgress

if TYPE_CHECKING:
    from rabbit_chx.analysis.traffic import Observation
    from rabbit_chx.broker.live_exchange import LiveExchange
    from rabbit_chx.broker.traced_message import TracedMessage

__all__ = [
    "BrokerOptions",
    "LiveBroker",
    "broker_options",
    "counted",
    "live_options",
    "trace_options",
    "traced",
    "traced_messages",
    "unwound_by_signals",
]

_NAMES = ("url", "vhost", "management_url", "ring_via", "config", "node")

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP


@dataclass(frozen=True, slots=True, repr=False)
class LiveBroker:
    """How to reach the broker.

    Attributes:
        url: the AMQP URI.
        settings: the settings that the URI gives.
        management_url: the URL of the HTTP API; None where it was not given.
        ring_source: how to read the true ring; None where it was not given.
    """

    url: str
    settings: ConnectionSettings
    management_url: str | None
    ring_source: RingSource | None

    def __repr__(self) -> str:
        return f"LiveBroker({self.settings.masked_url!r})"

    def management(self, why: str) -> Management:
        """Return the HTTP API, with the login of the AMQP URI where its own URL has none.

        Args:
            why: why the command needs the API, for the message.

        Raises:
            InputError: its URL was not given, or is malformed.
        """
        if self.management_url is None:
            raise InputError(f"{why}: give --management-url http://user:password@host:15672")
        return Management(self._management_address(self.management_url))

    def broker(self) -> Broker:
        """Return a `Broker` with all that the options tell; it is not yet open.

        Raises:
            InputError: the management URL is malformed.
        """
        address = None if self.management_url is None else self._management_address(self.management_url)
        return Broker(self.url, address, self.ring_source)

    def _management_address(self, url: str) -> ManagementUrl:
        """Return the URL of the HTTP API, with the login of the AMQP URI where it has none of its own."""
        return ManagementUrl.of(url).with_login_of(self.settings)


@dataclass(frozen=True, slots=True, repr=False)
class BrokerOptions:
    """The options that name a broker, as they were given; nothing is read before `live_broker`.

    Attributes:
        url: ``--url``.
        vhost: ``--vhost``.
        management_url: ``--management-url``.
        ring_via: ``--ring-via``.
        config: ``--config``.
        node: ``--node``.
        typed: those of them that are on the command line, and not only in the environment.
    """

    url: str | None
    vhost: str | None
    management_url: str | None
    ring_via: str | None
    config: str | None
    node: str | None
    typed: tuple[str, ...]

    def live_broker(self) -> LiveBroker:
        """Return the broker that they name. An option goes before the environment, and that before the file.

        Raises:
            InputError: they name none, or one of them is wrong.
        """
        url, management_url, ring_via = self.url or None, self.management_url or None, self.ring_via
        named = self.config is not None or self.node is not None
        if named or (url, management_url) == (None, None):
            node = read_node(self.config, self.node)
            if node is not None:
                if url is not None:
                    self._say_other_host(node, url)
                url, management_url = url or node.url, management_url or node.management_url
                ring_via = node.ring_via if ring_via is None else ring_via
        if url is None:
            raise InputError(
                "there is no broker: give --url amqp://user:password@host/vhost, or set AMQP_URL, or write its address "
                f"in {DEFAULT_FILE}"
            )
        settings = ConnectionSettings.from_uri(url)
        if self.vhost is not None and ("--vhost" in self.typed or "--url" not in self.typed):
            url = urlsplit(url)._replace(path="/" + quote(self.vhost, safe="")).geturl()
            settings = replace(settings, vhost=self.vhost)
        source = None if ring_via is None else DiagnosticsRing(ring_via)
        return LiveBroker(url, settings, management_url, source)

    def _say_other_host(self, node: NodeSettings, url: str) -> None:
        """Say that the file is passed over in part, if it names another host."""
        given, own = (ConnectionSettings.from_uri(one).host for one in (url, node.url))
        if given != own:
            name = "--url" if "--url" in self.typed else "$AMQP_URL"
            say(f"{name} names the host {given} and goes before {node.where}, which names {own}")


def broker_options(command: Command) -> Command:
    """Add the options that name a broker; the command gets `broker_options`, a `BrokerOptions`."""

    @functools.wraps(command)
    def with_options_of_a_broker(**others: Any) -> Any:  # noqa: ANN401
        given = {name: others.pop(name) for name in _NAMES}
        context = click.get_current_context()
        typed = tuple(
            "--" + name.replace("_", "-")
            for name in _NAMES
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        )
        return command(broker_options=BrokerOptions(**given, typed=typed), **others)

    return with_options(
        with_options_of_a_broker,
        click.option(
            "--url", envvar="AMQP_URL", metavar="URL", help="The broker's AMQP URI.  [default: $AMQP_URL]"
        ),
        click.option(
            "--vhost",
            envvar="RABBIT_CHX_VHOST",
            type=TEXT,
            metavar="NAME",
            help="The vhost.  [default: $RABBIT_CHX_VHOST, or that of the URL]",
        ),
        click.option(
            "--management-url",
            envvar="RABBIT_CHX_MANAGEMENT_URL",
            metavar="URL",
            help="The management API: http://user:password@host:15672, or https:// with the TLS parameters of an AMQP URI, "
            "such as ?cacertfile=FILE. Without a user it has the login of --url.  "
            "[default: $RABBIT_CHX_MANAGEMENT_URL]",
        ),
        click.option(
            "--ring-via",
            envvar="RABBIT_CHX_RING_VIA",
            metavar="PREFIX",
            help="The command prefix that reaches rabbitmqctl, to read the true ring: 'docker exec NAME', "
            "'kubectl exec POD --', or '' on the broker's own machine.  [default: $RABBIT_CHX_RING_VIA]",
        ),
        click.option(
            "--config",
            envvar=["RABBIT_CHX_CONFIG", "RABBITMQADMIN_CONFIG_FILE_PATH"],
            metavar="FILE",
            help="The configuration file of rabbitmqadmin, for what is not given otherwise.  "
            f"[default: $RABBIT_CHX_CONFIG, or {DEFAULT_FILE} where neither URL is given]",
        ),
        click.option(
            "--node",
            envvar=["RABBIT_CHX_NODE", "RABBITMQADMIN_NODE_ALIAS"],
            metavar="SECTION",
            help=f"The broker's section in that file.  [default: $RABBIT_CHX_NODE, or {DEFAULT_NODE}]",
        ),
    )


def live_options(command: Command) -> Command:
    """Add the options that name a broker; the command gets a `broker`, a `LiveBroker`."""

    @functools.wraps(command)
    def with_broker(*, broker_options: BrokerOptions, **others: Any) -> Any:  # noqa: ANN401
        return command(broker=broker_options.live_broker(), **others)

    return broker_options(with_broker)


def trace_options(command: Command) -> Command:
    """Add the options of the tracer; the command gets `passive`, `seconds` and `messages`."""
    return with_options(
        command,
        click.option(
            "--passive",
            is_flag=True,
            help="Watch real traffic with the firehose tracer. It is on for the whole vhost while the command runs.",
        ),
        click.option(
            "--seconds",
            type=Number(0, 86_400, min_open=True),
            default=60.0,
            show_default=True,
            help="With --passive: stop after this many seconds.",
        ),
        click.option(
            "--messages",
            type=click.IntRange(1, 1_000_000),
            default=10_000,
            show_default=True,
            help="With --passive: stop after this many messages.",
        ),
    )


def traced(
    broker: LiveBroker, management: Management, exchange: LiveExchange, seconds: float, messages: int
) -> list[Observation]:
    """Trace the traffic of an exchange; say beforehand what that costs, and show progress.

    Args:
        broker: the broker, for AMQP.
        management: the broker's HTTP API.
        exchange: the exchange to trace.
        seconds: the longest time, in seconds.
        messages: the most messages.

    Raises:
        EmptyRingError: nothing is bound to the exchange, so traffic shows nothing of its ring.
    """
    if not exchange.bindings:
        raise EmptyRingError(
            f"nothing is bound to exchange {exchange.name!r}: every message is unroutable, and its traffic shows no ring"
        )
    with _announced_trace(exchange.vhost, exchange.name, seconds, messages) as seen:
        return trace_exchange(
            broker.settings, management, exchange, seconds=seconds, messages=messages, seen=seen
        )


def traced_messages(
    broker: LiveBroker, management: Management, exchange: str, seconds: float, messages: int
) -> list[TracedMessage]:
    """Trace the messages to an exchange of any type, as `traced` does.

    Args:
        broker: the broker, for AMQP.
        management: the broker's HTTP API.
        exchange: the name of the exchange.
        seconds: the longest time, in seconds.
        messages: the most messages.
    """
    vhost = broker.settings.vhost
    with _announced_trace(vhost, exchange, seconds, messages) as seen:
        return trace_messages(
            broker.settings, management, vhost, exchange, seconds=seconds, messages=messages, seen=seen
        )


@contextmanager
def _announced_trace(
    vhost: str, exchange: str, seconds: float, messages: int
) -> Iterator[Callable[[int], None]]:
    """Say what a trace costs, and show the progress of the block that traces."""
    sys.stderr.write(
        f"tracing vhost {vhost!r} for at most {seconds:g} s or {messages:,} messages to {exchange!r}: "
        "until then the broker copies every message that is published or delivered in this vhost, bodies included, "
        "and publishing may be a third to a half slower; tracing is off again at the end, after Ctrl-C too, unless it "
        "was on before\n"
    )
    with unwound_by_signals(), counted("traced", messages) as seen:
        yield seen


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show the progress of a block, which reports how far it is.

    Args:
        what: what is done, such as ``traced``.
        total: the count at which it is done.
    """
    now = 0

    def seen(count: int) -> None:
        nonlocal now
        now = count

    with CountProgress(what, total, lambda: now):
        yield seen


@contextmanager
def unwound_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does; ignore further signals while it ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def unwind(*_: object) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, unwind) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
