"""The options that name a live broker."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar
from urllib.parse import quote

import click

from rabbit_chx import errors
from rabbit_chx.amqp.settings import with_path
from rabbit_chx.checks import similar
from rabbit_chx.cli.command import OWN, TEXT, has_terminal, option, say, typed, without_passwords
from rabbit_chx.options import number
from rabbit_chx.rendering.progress import CountProgress, sign_of_life
from rabbit_chx.retry import Retry
from rabbit_chx.text import command_text, listed

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.amqp.settings import ManagementUrl
    from rabbit_chx.broker import Broker
    from rabbit_chx.broker.management import Management
    from rabbit_chx.broker.same_broker import OrderSource

_T = TypeVar("_T")
#: The options that have no effect where no broker is asked; a file has vhosts, too.
OF_A_BROKER = ("--url", "--management-url", "--ring-via", "--wait")
_POLL_S = 0.5
_MOST_VHOSTS = 5
_NODE_FIELDS = {"name": str, "disk_free_alarm?": bool, "disk_free?": int, "disk_free_limit?": int}
_NODE_DISK = [name.removesuffix("?") for name in _NODE_FIELDS]
#: The host of a URL with user and port, and its path.
_PATH = re.compile(r"(?<=://)([^/?#]*)([^?#]*)")
#: The scheme and the user or host of a URL. What follows may be a password in a URL that is not valid.
_HOST = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?[A-Za-z0-9_.-]*")
_SCHEME = re.compile(r"(?:amqps?|https?|rabbitmq-stream(?:\+tls)?)://", re.IGNORECASE)
#: The environment variable with a command that prints an OAuth 2 token.
_COMMAND_VARIABLE = "RABBIT_CHX_TOKEN_COMMAND"


@dataclass(frozen=True, slots=True, repr=False)
class BrokerAddresses:
    """The addresses of a broker.

    Attributes:
        url: the AMQP URI.
        settings: the settings in the URI.
        management_url: the URL of the HTTP API; None if it is not given.
        management_from: the option or the variable that this URL is from.
        ring_source: the source of the true ring, or the record of it; None if neither is given.
        stores_records: False: the order of rings is not stored on the broker.
    """

    url: str
    settings: ConnectionSettings
    management_url: str | None
    ring_source: OrderSource | None
    stores_records: bool = True
    management_from: str = "--management-url"

    def __repr__(self) -> str:
        return f"BrokerAddresses({self.settings.masked_url!r})"

    @property
    def address(self) -> str:
        """The host and port of the URL."""
        return f"{self.settings.host}:{self.settings.port}"

    def management(self, why: str) -> Management:
        """Return the HTTP API, with the login of the AMQP URI if its URL has no login."""
        from rabbit_chx.broker.management import Management

        if self.management_url is None:
            raise errors.InputError(f"{why}: pass --management-url http://user:password@host:15672")
        return Management(self.management_address(self.management_url))

    @contextmanager
    def open_for(self, exchange: str, why: str) -> Iterator[Broker]:
        """Open a `Broker` for a block that reads an exchange over the HTTP API; `why` says what AMQP alone does not show."""
        from rabbit_chx.broker.live_broker import check_declared_name

        check_declared_name(exchange, "exchange")
        self.management(why)
        with self.open() as opened:
            yield opened

    def broker(self) -> Broker:
        """Return a `Broker` with all options; it is not yet open."""
        from rabbit_chx.broker import Broker

        if self.settings.protocol != "amqp":
            raise errors.InputError(
                f"{self.settings.masked_url} is the address of streams, and the ring is read over AMQP: pass --url "
                "amqp://user:password@host/vhost, or --management-url to read it over HTTP"
            )
        address = None if self.management_url is None else self.management_address(self.management_url)
        return Broker(self.settings, address, self.ring_source)

    @contextmanager
    def open(self, *, yes: bool = False) -> Iterator[Broker]:
        """Open a `Broker` with all options for a block; `yes` switches off what an ended command has left on, without asking."""
        with ExitStack() as block:
            with sign_of_life(f"connecting to {self.settings.masked_url}"):
                opened = block.enter_context(self.broker())
            offer_to_end(opened, self.settings.vhost, yes=yes)
            try:
                yield opened
            finally:  # also of an answer that is not determined, which ends the command
                if note := opened.not_compared:
                    say(note)

    def reach(self, timeout_s: float) -> None:
        """Return if all named addresses answer: AMQP, and the HTTP API, which a proxy or another host may serve later."""
        from rabbit_chx.broker.management import Management
        from rabbit_chx.connection.blocking_connection import Connection
        from rabbit_chx.streams.connection import StreamConnection

        settings = replace(self.settings, connection_timeout_s=timeout_s)
        (Connection if settings.protocol == "amqp" else StreamConnection)(settings).close()
        if self.management_url is not None:
            address = self.management_address(self.management_url)
            with suppress(errors.BrokerRefusedError):  # also an answer
                Management(address, timeout_s=timeout_s).request("GET", "whoami")

    def in_vhost(self, name: str) -> BrokerAddresses:
        """Return the same broker with another vhost."""
        url = with_path(self.url, quote(name, safe=""))
        return replace(self, url=url, settings=replace(self.settings, vhost=name))

    @sign_of_life("reading the vhosts")
    def vhosts(self) -> list[str]:
        """Return the names of all vhosts that the user may list."""
        listed = self.management("AMQP does not list vhosts").request("GET", "vhosts")
        return sorted(vhost["name"] for vhost in listed)

    @sign_of_life("reading the exchanges")
    def why_nothing_hashes(self, vhosts: Sequence[str]) -> str:
        """Return why no exchange of these vhosts hashes, as the HTTP API shows it, and what to do."""
        from rabbit_chx.broker.exchange_report import why_nothing_hashes

        management = self.management("AMQP does not list exchanges")
        columns = {"columns": "name,vhost,type"}
        return why_nothing_hashes(
            self.settings.username,
            vhosts,
            management.request("GET", "overview").get("exchange_types", ()),
            management.request("GET", "exchanges", query=columns),
        )

    def management_address(self, url: str) -> ManagementUrl:
        """Return a URL of the HTTP API, with the login of the AMQP URI if it has none; the error names where the URL is from."""
        from rabbit_chx.amqp.settings import ManagementUrl

        return _parse(ManagementUrl.of, self.management_from, url).with_login_of(self.settings)


#: The broker of this command.
_broker: ContextVar[BrokerAddresses | None] = ContextVar("the broker of this command", default=None)


@dataclass(frozen=True, slots=True, repr=False)
class BrokerOptions:
    """The options that name a broker."""

    section: ClassVar = "Broker"
    url: str | None = option(
        envvar="AMQP_URL", metavar="URL", help="The broker's AMQP URI.  [default: $AMQP_URL]"
    )
    vhost: str | None = option(
        envvar="RABBIT_CHX_VHOST",
        type=TEXT,
        metavar="NAME",
        help="The vhost.  [default: $RABBIT_CHX_VHOST, or that of the URL]",
    )
    management_url: str | None = option(
        envvar="RABBIT_CHX_MANAGEMENT_URL",
        metavar="URL",
        help="The management API: http://user:password@host:15672, or https:// with the TLS parameters of an AMQP URI, "
        "such as ?cacertfile=FILE. Without a user, the login of --url is used.  "
        "[default: $RABBIT_CHX_MANAGEMENT_URL]",
    )
    ring_via: str | None = option(
        envvar="RABBIT_CHX_RING_VIA",
        metavar="PREFIX",
        help="How to reach rabbitmqctl, which reads the true ring: 'docker exec NAME', "
        "'kubectl exec POD --', or 'env' on the broker's host.  [default: $RABBIT_CHX_RING_VIA]",
    )
    no_record: bool = option(
        section=OWN,
        is_rare=True,
        help="Do not store the order of the rings that change on the broker, in exchanges rabbit-chx.ring.NAME.",
    )
    wait: float = option(
        is_rare=True,
        type=number(3_600),
        default=0.0,
        metavar="SECONDS",
        help="Wait up to this many seconds for a broker that is starting.  [default: 0]",
    )

    def live(self, *, streams: bool = False) -> BrokerAddresses:
        """Return the broker of the options when it answers. An option precedes the environment."""
        broker = self._read(streams=streams)
        _broker.set(broker)
        if self.wait:
            _wait_for(broker, self.wait)
        return broker

    def _read(self, *, streams: bool) -> BrokerAddresses:
        from rabbit_chx.amqp import ConnectionSettings
        from rabbit_chx.amqp.settings import parse_stream_uri
        from rabbit_chx.broker import DiagnosticsRing

        url = _with_passwords(self.url or None, "AMQP_URL")
        management_url = _with_passwords(self.management_url or None, "RABBIT_CHX_MANAGEMENT_URL")
        of_streams = streams and (url or "").lower().startswith("rabbitmq-stream")
        read = parse_stream_uri if of_streams else ConnectionSettings.from_uri
        on_line = typed(BrokerOptions)
        if url is None:
            raise errors.InputError(
                "the broker is not given: pass --url amqp://user:password@host/vhost, or set AMQP_URL"
            )
        settings = _parse(read, "--url" if "--url" in on_line else "$AMQP_URL", url)
        if command := os.environ.get(_COMMAND_VARIABLE):
            from rabbit_chx.connection.tokens import token_command, with_credentials

            (settings,) = with_credentials(
                [settings], token_command(command, _COMMAND_VARIABLE), _COMMAND_VARIABLE
            )
        is_typed = "--management-url" in on_line
        broker = BrokerAddresses(
            url,
            settings,
            management_url,
            None if self.ring_via is None else DiagnosticsRing(self.ring_via),
            stores_records=not self.no_record,
            management_from="--management-url" if is_typed else "$RABBIT_CHX_MANAGEMENT_URL",
        )
        if (
            is_typed and management_url is not None
        ):  # the variable may be for other commands: it is read when it is used
            broker.management_address(management_url)
        if self.vhost is not None and ("--vhost" in on_line or "--url" not in on_line):
            return broker.in_vhost(self.vhost)
        return broker


def offer_to_end(opened: Broker, vhost: str, *, yes: bool = False) -> None:
    """Say that an ended process has left tracing on, and offer to switch it off."""
    with sign_of_life("reading the broker"):
        left = opened.left_trace()
    if left is None:
        return
    about = f"tracing of vhost {vhost!r} is still on, and costs each of its messages a copy: {left} switched it on and ended without switching it off"
    if yes or (has_terminal() and click.confirm(f"{about}. Switch it off?", err=True)):
        opened.end_trace()
        say(f"tracing of vhost {vhost!r}, which {left} had switched on, is off")
    else:
        say(f"{about}; to switch it off: {command_text('check', '--yes')}")


def _parse(parse: Callable[[str], _T], name: str, url: str) -> _T:
    """Return a URL as `parse` reads it. The error names the option or the variable that the URL is from, and another one for which it is."""
    try:
        return parse(url)
    except errors.InputError as error:
        problem = str(error).partition(": ")[2]
    scheme = url.partition("://")[0].lower()
    for_other = {
        "http": "--management-url", "https": "--management-url", "amqp": "--url", "amqps": "--url",
    }  # fmt: skip
    other = for_other.get(scheme)
    if other is not None and other != name and "must begin with" in problem:
        problem += f"; pass it as {other}"
    # A variable may hold a password alone, or a token as the user.
    start = (_SCHEME if name.startswith("$") else _HOST).match(url)
    quote = url[:1] if url[:1] in ("'", '"') else ""
    shown = quote if start is None else start[0]
    raise errors.InputError(f"{name} begins with {shown!r:.200}: {problem}")


@sign_of_life("reading the exchanges of the vhosts")
def found_hint(error: errors.NotFoundError) -> str:
    """Return what may be meant by the exchange that a command did not find: a similar name, another vhost; empty if nothing is similar."""
    at = _broker.get()
    if at is None or at.management_url is None or error.exchange is None:
        return ""
    try:
        found = at.management("").get_list(
            "exchanges", query={"columns": "name,vhost"}, fields={"name": str, "vhost": str}
        )
    except errors.RabbitChxError:
        return ""
    names = sorted(entry["vhost"] for entry in found if entry["name"] == error.exchange)
    if at.settings.vhost in names:
        return ""
    here = [entry["name"] for entry in found if entry["vhost"] == at.settings.vhost]
    absent = "" if here else f"; the user {at.settings.username!r} sees no vhost {at.settings.vhost!r}"
    if not names:
        meant = similar(error.exchange, filter(None, here))
        return f"; did you mean {meant}?" if meant and "did you mean" not in str(error) else absent
    last = shlex.quote(names[-1])
    if len(names) == 1:
        return f"{absent}; vhost {names[0]} has one: --vhost {last}"
    shown = (
        f"{', '.join(names[:-1])} and {names[-1]}"
        if len(names) <= _MOST_VHOSTS
        else listed(names, _MOST_VHOSTS)
    )
    return f"{absent}; vhosts {shown} have one: --vhost {last}"


@sign_of_life("reading the alarms of the nodes")
def disk_alarms() -> str:
    """Return the nodes of this command's broker with a disk alarm, and the remedy; empty without an alarm, or if the API does not show it."""
    at = _broker.get()
    if at is None or at.management_url is None:
        return ""
    try:
        nodes = at.management("").get_list(
            "nodes", query={"columns": ",".join(_NODE_DISK)}, fields=_NODE_FIELDS
        )
    except errors.RabbitChxError:
        return ""
    full = [
        f"node {node['name']} has a disk alarm ({node.get('disk_free') or 0:,} bytes free, limit {node.get('disk_free_limit') or 0:,})"
        for node in nodes
        if node.get("disk_free_alarm")
    ]
    return f"{', '.join(full)}: free disk there" if full else ""


def alarms_hint(error: errors.RabbitChxError) -> str:
    """Return the disk alarms after a refusal that a full disk can cause; otherwise empty."""
    is_of_disk = isinstance(error, (errors.BrokerRefusedError, errors.BrokerTimeoutError)) and not isinstance(
        error, errors.MismatchError
    )
    alarms = disk_alarms() if is_of_disk else ""
    return f"; a full disk can cause this: {alarms}" if alarms else ""


def _with_passwords(url: str | None, variable: str) -> str | None:
    """Return a URL with the passwords of that in an environment variable, if they are all that it lacks; the path may differ."""
    known = os.environ.get(variable)
    if (
        url is None
        or known is None
        or _PATH.sub(r"\1", url, 1) != _PATH.sub(r"\1", without_passwords(known), 1)
    ):
        return url
    path = _PATH.search(url)
    return _PATH.sub(lambda found: f"{found[1]}{path and path[2]}", known, 1)


def _wait_for(broker: BrokerAddresses, seconds: float) -> None:
    end = time.monotonic() + seconds

    def reach() -> None:
        left_s = max(end - time.monotonic(), _POLL_S)
        broker.reach(min(broker.settings.connection_timeout_s, left_s))

    with sign_of_life(f"waiting for {broker.settings.masked_url}"):
        try:
            Retry.within(seconds, _POLL_S).call(
                reach, lambda error: isinstance(error, errors.UnreachableError)
            )
        except errors.UnreachableError as error:
            raise errors.UnreachableError(f"{error} (after --wait {seconds:g})") from None


@contextmanager
def count_progress(work: str, total: int) -> Iterator[Callable[[int], None]]:
    """Print the progress of a block, which reports its position."""
    now = 0

    def seen(count: int) -> None:
        nonlocal now
        now = count

    with CountProgress(work, total, lambda: now):
        yield seen
