"""``rabbit-chx ui``: the pages in a browser, until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import webbrowser
from contextlib import suppress
from urllib.parse import urlencode

from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import TEXT, CommandResult, command, option, options, say
from rabbit_chx.cli.inputs import VariableOptions, read_topology
from rabbit_chx.errors import InputError
from rabbit_chx.options import number, whole
from rabbit_chx.version import missing_extra

#: The environment variable of a token that stays the same when the program starts again.
_VARIABLE = "RABBIT_CHX_UI_TOKEN"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_BACKLOG = 128
#: The most requests at a time; further ones get 503.
_MOST_REQUESTS = 200
_LONGEST_END_S = 2


@command(
    example="rabbit-chx ui --file topology.toml --management-url http://localhost:15672", has_output=False
)
def ui(
    *,
    file: str | None = option(metavar="FILE", help="A topology file: the page Plan shows the current plan."),
    port: int = option(
        type=whole(0, 65535),
        default=8720,
        metavar="PORT",
        help="The port; 0 for a free one.  [default: 8720]",
    ),
    host: str = option(
        type=TEXT,
        default="127.0.0.1",
        metavar="ADDRESS",
        help="The address to listen on. One that others reach needs --token.  [default: 127.0.0.1]",
    ),
    token: bool = option(
        help="Only browsers that opened the printed address get pages; put TLS in front. The token is that of the environment variable "
        f"{_VARIABLE}, which also switches this on, or a new one.",
    ),
    allowed: tuple[str, ...] = option(
        "--allowed-host",
        is_rare=True,
        type=TEXT,
        metavar="NAME",
        help="A name by which browsers reach this server, such as that of a proxy. Repeatable.",
    ),
    open_metrics: bool = option(
        is_rare=True, help="Serve /metrics without the token, for a Prometheus that sends none."
    ),
    no_browser: bool = option(help="Do not open a browser."),
    every: float = option(
        type=number(3600),
        default=5.0,
        metavar="SECONDS",
        help="Read the broker at most this often.  [default: 5]",
    ),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    variables: VariableOptions = options(VariableOptions),
) -> CommandResult:
    """Show the hash exchanges in a browser: rings, shares of the keys and of the traffic, findings, consumers, and what a change
    would move.

    The pages only read: no page changes the broker. They read it while somebody looks, and all viewers share one reading. Each page is
    a GET with its whole state in the address, and with format=json the document of the command. /metrics has the metrics of
    check --output prometheus.

    The address is printed, and opened in the browser. Ctrl-C ends the program.
    """
    try:
        import uvicorn

        from rabbit_chx.ui.app import METRICS, Pages
    except ModuleNotFoundError as error:
        raise missing_extra("a page in the browser", str(error.name), "ui") from None
    secret = os.environ.get(_VARIABLE) or (secrets.token_urlsafe(32) if token else None)
    if host not in _LOOPBACK and not secret:
        raise InputError(
            f"--host {host:.80} can be reached from other machines, and the pages show names and rates to all: pass --token, too"
        )
    at = broker.live()
    at.management("the pages show exchanges, which AMQP alone does not list")
    if file is not None:
        read_topology(file, at.settings.vhost, variables=variables, is_compared=True)
    listening = _listen(host, port)
    hosts = _LOOPBACK if host in _LOOPBACK else None
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/" + (
        f"?{urlencode({'token': secret})}" if secret else ""
    )
    if secret:
        proxy = "" if allowed else ", and pass its name as --allowed-host NAME"
        say(f"the pages are not encrypted: put a proxy with TLS in front of this address{proxy}")
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    if not no_browser:
        threading.Thread(target=_open, args=(address,), daemon=True).start()
    config = uvicorn.Config(
        Pages(at, file, variables, every).app(hosts, secret, allowed, [METRICS] if open_metrics else []),
        access_log=False,
        log_level="warning",
        lifespan="off",
        server_header=False,
        limit_concurrency=_MOST_REQUESTS,
        timeout_graceful_shutdown=_LONGEST_END_S,
    )
    with listening, suppress(KeyboardInterrupt):  # the way to end it
        uvicorn.Server(config).run(sockets=[listening])
    return CommandResult()


def _listen(host: str, port: int) -> socket.socket:
    try:
        [(family, *_, place), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(place, family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)
    except socket.gaierror as error:
        raise InputError(f"--host {host!r:.80} is no address of this machine: {error.strerror}") from None
    except OSError as error:
        raise InputError(
            f"port {port} of {host} cannot be used: {os.strerror(error.errno or 0)}; pass another --port, or --port 0 for a free one"
        ) from None


def _open(address: str) -> None:
    try:
        is_open = webbrowser.open(address)
    except (webbrowser.Error, OSError):
        is_open = False
    if not is_open:
        say("no browser was found: open the address in one, or pass --no-browser")
