"""Connections to any node of a cluster, or to the leader or a replica of a stream."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv6Address
from urllib.parse import unquote

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.settings import parse_stream_uri, read_secretly
from rabbit_chx.checks import is_ipv6, shown
from rabbit_chx.connection.tokens import Credentials, with_credentials
from rabbit_chx.errors import InputError, UnreachableError
from rabbit_chx.retry import Retry, jitter
from rabbit_chx.streams.connection import REQUEST_TIMEOUT_S, StreamConnection
from rabbit_chx.streams.frames import LARGEST_FRAME, Node, StreamMetadata

#: A host name or an IPv4 address.
_HOST = re.compile(r"[^\s:/@?#%\[\]]+")
_RETRY_PAUSE_S = 0.2
#: With less time left, another attempt would only hide the error of the one before.
MIN_ATTEMPT_S = 1.0
_NODE_TIMEOUT_S = 5.0


def stream_settings(url: str | ConnectionSettings) -> ConnectionSettings:
    """Return the settings of a connection to a broker's stream port; the message of a UriError contains no part of a password.

    Args:
        url: ``rabbitmq-stream://user:password@host:5552/vhost``, ``rabbitmq-stream+tls://`` (port 5551), or the AMQP URI of the same host,
            whose port is ignored; or settings of either protocol.
    """
    if isinstance(url, ConnectionSettings):
        return url.by("stream")
    try:
        return read_secretly(parse_stream_uri, url)
    finally:
        del url  # no variable of a frame of an error has a password


def settings_of(
    url: str | ConnectionSettings | Sequence[str | ConnectionSettings],
    credentials: Credentials | None = None,
) -> deque[ConnectionSettings]:
    """Return the settings for one URL or several, each as for `stream_settings`; they share the tokens of `credentials`."""
    try:
        urls = [url] if isinstance(url, str | bytes) or not isinstance(url, Sequence) else url
        if not urls:
            raise InputError("there is no URL: pass at least one")
        settings = deque(map(stream_settings, urls))
        return deque(with_credentials(settings, credentials)) if credentials else settings
    finally:  # no variable of a frame of an error has a password
        del url, urls


def open_any(
    settings: deque[ConnectionSettings], *, request_timeout_s: float = REQUEST_TIMEOUT_S
) -> StreamConnection:
    """Connect to the first node that answers. A node that does not answer is moved to the end of `settings`."""

    def connect(one: ConnectionSettings, until: float) -> StreamConnection:
        return StreamConnection(_in_time(one, until), request_timeout_s=request_timeout_s)

    for _ in range(len(settings) - 1):
        with suppress(UnreachableError):
            return _in_turn(settings, math.inf, connect)
    return _in_turn(settings, math.inf, connect)


def open_at(
    settings: deque[ConnectionSettings],
    stream: str,
    *,
    leader: bool,
    addresses: Mapping[str, str] | None = None,
    timeout_s: float,
    request_timeout_s: float | None = None,
    max_frame_bytes: int = LARGEST_FRAME,
    avoid: Collection[Node | None] = (),
    stay: bool = False,
) -> StreamConnection:
    """Connect to a node that has a member of a stream.

    Args:
        settings: nodes of the cluster, asked in turn, with the login. A node that does not answer is moved to the end.
        stream: the stream.
        leader: whether it must be the leader's node, which accepts rows. Otherwise a replica is preferred.
        addresses: the address to connect to for an advertised address, as ``{"rabbit-1:5552": "127.0.0.1:15552"}``.
        timeout_s: the longest wait in seconds for a leader, and for its node.
        request_timeout_s: that of the connection; None for `timeout_s`, and 60 s at most.
        max_frame_bytes: that of the connection.
        avoid: nodes that are tried after all others, unless `leader`.
        stay: whether the node that is asked first is preferred even if it is the leader.
    """
    deadline = time.monotonic() + timeout_s
    if request_timeout_s is None:
        request_timeout_s = max(0.001, min(timeout_s, REQUEST_TIMEOUT_S))

    def connect(one: ConnectionSettings, until: float) -> StreamConnection:
        def at(where: ConnectionSettings) -> StreamConnection:
            return StreamConnection(
                _in_time(where, until), request_timeout_s=request_timeout_s, max_frame_bytes=max_frame_bytes
            )

        first = at(one)
        try:
            # A node that is silent after the login costs little more time.
            first.deadline = max(until, time.monotonic() + MIN_ATTEMPT_S)
            metadata = first.metadata([stream])[stream]
            first.deadline = math.inf
            nodes = list(_nodes(metadata, first.node, avoid, leader=leader, stay=stay))
        except BaseException:
            first.close()
            raise
        if nodes and nodes[0] == first.node:
            return first
        first.close()
        problem = UnreachableError(
            f"{first.where}: stream {stream!r} has no leader now: wait until one is elected", queue=stream
        )
        for node in nodes:
            try:
                found = at(at_node(one, node, addresses or {}))
            except UnreachableError as cause:
                problem = cause
                continue
            if found.node is None or found.node in nodes:  # before 3.11 a node does not say who it is
                return found
            found.close()  # `addresses` lead to a load balancer
            problem = UnreachableError(
                f"{found.where}: this is {found.node}, not {node}, where a member of stream {stream!r} is: look at addresses=",
                queue=stream,
            )
        raise problem

    return Retry.within(timeout_s - MIN_ATTEMPT_S, _RETRY_PAUSE_S).call(
        lambda: _in_turn(settings, deadline, connect), lambda error: isinstance(error, UnreachableError)
    )


def _in_turn(
    settings: deque[ConnectionSettings],
    deadline: float,
    connect: Callable[[ConnectionSettings, float], StreamConnection],
) -> StreamConnection:
    """Connect with the first settings; if the node is unreachable, they become the last."""
    until = deadline if len(settings) == 1 else min(deadline, time.monotonic() + _NODE_TIMEOUT_S)
    try:
        return connect(settings[0], until)
    except UnreachableError:
        settings.rotate(-1)
        raise


def _nodes(
    metadata: StreamMetadata,
    here: Node | None,
    avoid: Collection[Node | None],
    *,
    leader: bool,
    stay: bool = False,
) -> Iterator[Node]:
    """Yield the nodes to try, the best first: a replica on this node, then the other replicas in random order."""
    found: list[Node] = []
    if not leader:
        found += sorted(metadata.replicas, key=lambda node: (node != here, jitter()))
    if metadata.leader is not None:
        found.append(metadata.leader)
    yield from sorted(found, key=lambda node: (node in avoid, not (stay and node == here)))


def at_node(settings: ConnectionSettings, node: Node, addresses: Mapping[str, str]) -> ConnectionSettings:
    """Return the settings of a connection to the advertised address of a node; `addresses` as for `open_at`."""
    known = node_addresses(addresses) if addresses else {}
    host, port = next((split_address(known[key]) for key in _keys_of(node) if key in known), node)
    return replace(settings, host=host, port=port)


def node_addresses(addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses in one form: names in lower case, IPv6 addresses short and in brackets.

    An advertised IPv6 address without a port stands for each port. Its zone, which is of one machine, is ignored.

    Raises:
        InputError: an address is not valid.
    """
    if not isinstance(addresses, Mapping):
        raise InputError(
            f"addresses is {shown(addresses)}: pass a dict, as {{'rabbit-0:5552': '127.0.0.1:15552'}}"
        )

    found = {}
    for advertised, reachable in addresses.items():
        # Not the value of an error with '@', which may be a URL with a password.
        names = ["a text with '@'" if "@" in str(one) else shown(one) for one in (advertised, reachable)]
        try:
            host, port = split_address(advertised, needs_port=False)
        except ValueError:
            raise InputError(
                f"addresses has the advertised address {names[0]}: pass host and port, as 'rabbit-0:5552' or '[::1]:5552'"
            ) from None
        try:
            found[_text_of(host.partition("%")[0], port)] = _text_of(*split_address(reachable))
        except ValueError:
            raise InputError(
                f"addresses has {names[1]} for {names[0]}: pass host and port, as '127.0.0.1:15552'"
            ) from None

    return found


def split_address(text: object, *, needs_port: bool = True) -> tuple[str, int]:
    """Return host and port of an address; 0 for an IPv6 address without a port. A ValueError if it is not valid."""
    address = unquote(text) if isinstance(text, str) else ""  # %25 before a zone, as in a URL
    host, _, port = address.rpartition(":")
    if not needs_port and (address.endswith("]") or is_ipv6(address)):
        host = address
        port = "0"
    elif not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError("no port")
    if ":" in host:
        return str(IPv6Address(host.removeprefix("[").removesuffix("]"))), int(port)
    if not _HOST.fullmatch(host):
        raise ValueError("no host")
    return host.lower(), int(port)


def _text_of(host: str, port: int) -> str:
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")


def _keys_of(node: Node) -> Iterator[str]:
    """Yield what `node_addresses` may have for a node, the most exact first."""
    host = str(IPv6Address(node.host)) if is_ipv6(node.host) else node.host.lower()
    host = host.partition("%")[0]
    yield _text_of(host, node.port)
    yield _text_of(host, 0)
    if is_ipv6(f"{node.host}:{node.port}"):  # without brackets the port looks like a part of the address
        yield _text_of(str(IPv6Address(f"{node.host}:{node.port}")), 0)


def _in_time(settings: ConnectionSettings, deadline: float) -> ConnectionSettings:
    remaining_s = max(0.001, deadline - time.monotonic())
    return replace(settings, connection_timeout_s=min(settings.connection_timeout_s, remaining_s))
