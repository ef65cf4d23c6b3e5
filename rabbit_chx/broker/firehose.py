"""What a broker does with live messages, by its firehose tracer: a copy of each message, with the queues that it was routed to.

Tracing is a switch of a vhost: while it is on, each message of the vhost costs a copy. It is off again however the trace ends. A sign on the
broker, written before, tells later commands whose tracing a killed process has left on. Tracing that somebody else switched on stays on.
The copies are those of rabbitmq-server v4.3.6, rabbit_trace.erl, ``trace/3``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from rabbit_chx import errors
from rabbit_chx.amqp.fields import properties_in
from rabbit_chx.broker.live_broker import Shape
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.reading import WITHOUT_STATISTICS, read_exchange, read_nodes
from rabbit_chx.broker.recording import name_writer
from rabbit_chx.broker.scratch import unwound_by_signals
from rabbit_chx.retry import Retry
from rabbit_chx.topology.objects import TRACE

if TYPE_CHECKING:
    from rabbit_chx.amqp import AmqpField, ConnectionSettings
    from rabbit_chx.broker.management import Management
    from rabbit_chx.routing.message import HashedOn

_COPIES = "amq.rabbitmq.trace"
_KEY = "publish."
_LONGEST_KEY = 255
#: Copies that wait on the broker, at most; further ones take the place of the oldest.
_MOST_WAITING = 10_000
_MOST_PAIRS = 500_000
_HEARTBEAT_S = 10
_LOOK_S = 0.5
#: Tracing is switched off again within this time, or the error says that it is on.
_OFF_TIMEOUT_S = 30.0
_OFF_PAUSE_S = 0.5
_LOCKED = 405
_SIGNED_BY = "switched-on-by"
_NODE = "node"
_VHOST: Mapping[str, Shape] = {
    "tracing": bool,
    "description?": str,
    "tags?": [str],
    "default_queue_type?": str,
    "metadata?": dict,
}


class TracedMessage(NamedTuple):
    """A message that was published to an exchange.

    Attributes:
        value: what the exchange hashes: the routing key, as bytes if it is not UTF-8, the header as an AmqpField, or the property; None if
            the message has no such header or property.
        queues: the queues that got the message; empty if none did.
    """

    value: str | bytes | int | AmqpField | None
    queues: tuple[str, ...]


def is_traced(api: Management, vhost: str) -> bool:
    """Return True if somebody else has switched tracing on. It takes the tag ``administrator``."""
    is_on = bool(api.get("vhosts", vhost, fields=_VHOST)["tracing"])
    sign = _sign(api, vhost) if is_on else None
    return is_on and (sign is None or sign.node != _node(api))


def left_trace(api: Management, vhost: str) -> str | None:
    """Return who switched tracing on and when, if a process that ended without switching it off left it on; else None.

    Each node has a switch of its own. A restart switches it off; then the sign goes, which would take later tracing by others for ours.
    """
    try:
        sign = _sign(api, vhost)
        if sign is None or sign.node != _node(api) or _has_tracer(api, vhost):
            return None
        if api.get("vhosts", vhost, fields=_VHOST)["tracing"]:
            return sign.writer
        api.delete("exchanges", vhost, TRACE)
    except (errors.AccessRefusedError, errors.NotFoundError):
        pass  # the tag administrator is missing, or another command was faster
    return None


def traced_node(api: Management) -> str | None:
    """Return the only node whose messages are traced, that of the management URL, if others run, too; else None."""
    running = [node for node, start in read_nodes(api).items() if start is not None]
    return _node(api) if len(running) > 1 else None


def _node(api: Management) -> str:
    node: str = api.get("overview", fields={"node": str})["node"]
    return node


def end_trace(api: Management, vhost: str) -> None:
    """Switch tracing off, and delete its sign; tried again for half a minute.

    Raises:
        BrokerRefusedError: the broker refuses it.
        UnreachableError: the management API does not answer.
    """

    def switch_off() -> None:
        _switch(api, vhost, is_on=False)
        with suppress(errors.NotFoundError):
            api.delete("exchanges", vhost, TRACE)

    try:
        Retry.within(_OFF_TIMEOUT_S, _OFF_PAUSE_S).call(
            switch_off, lambda error: not isinstance(error, errors.AccessRefusedError)
        )
    except errors.RabbitChxError as error:
        kind = (
            errors.UnreachableError
            if isinstance(error, errors.UnreachableError)
            else errors.BrokerRefusedError
        )
        raise kind(
            f"tracing of vhost {vhost!r} could not be switched off, and may be on, so that each message costs a copy: {error}"
        ) from None


def trace(
    settings: ConnectionSettings, api: Management, exchange: str, hashed: HashedOn, seconds: float
) -> list[TracedMessage]:
    """Return the messages that are published to an exchange within some seconds.

    Raises:
        AccessRefusedError: the user lacks the tag administrator, or a permission.
        BrokerRefusedError: another process traces the vhost.
        ConnectionLostError: the connection was lost.
    """
    if len(_KEY + exchange) > _LONGEST_KEY:
        raise errors.InputError(
            f"the name of exchange {exchange:.40}... is too long to be traced: it has more than {_LONGEST_KEY - len(_KEY)} bytes"
        )
    found: list[TracedMessage] = []

    def receive(_channel: object, _method: object, properties: Any, _body: bytes) -> None:
        copy = dict(properties_in(properties.raw)["headers"])
        if copy[b"exchange_name"].value == exchange.encode():  # the key may be a pattern
            found.append(_message_of(copy, hashed))

    bounded = replace(settings, heartbeat_s=settings.heartbeat_s or _HEARTBEAT_S)
    with (
        unwound_by_signals(),
        closing(PikaConnection(bounded)) as connection,
        _own_words(settings),
        connection.channel(raw_headers=True) as channel,
    ):
        arguments = {"x-max-length": _MOST_WAITING, "x-queue-type": "classic"}
        channel.queue_declare(TRACE, exclusive=True, auto_delete=True, arguments=arguments)
        channel.queue_bind(TRACE, _COPIES, _KEY + exchange)
        channel.basic_consume(TRACE, receive, auto_ack=True)
        with _switched_on(api, settings.vhost):
            end = time.monotonic() + seconds
            while (left_s := end - time.monotonic()) > 0 and len(found) < _MOST_PAIRS:
                connection.process(min(left_s, _LOOK_S))
    return found


@contextmanager
def _own_words(settings: ConnectionSettings) -> Iterator[None]:
    try:
        yield
    except errors.BrokerRefusedError as error:
        if error.reply_code != _LOCKED:
            raise
        raise errors.BrokerRefusedError(
            f"{settings.masked_url}: another process traces the vhost, and holds the exclusive queue {TRACE}: wait until it is done",
            queue=TRACE,
            reply_code=_LOCKED,
        ) from None


@contextmanager
def _switched_on(api: Management, vhost: str) -> Iterator[None]:
    """Switch tracing on for a block, unless somebody else has. The caller holds the exclusive queue, so a sign is that of a process that ended."""
    if is_traced(api, vhost):
        yield
        return
    at = datetime.now(UTC).isoformat(timespec="seconds")
    node = _node(api)
    arguments = {_SIGNED_BY: f"{name_writer()} at {at}", _NODE: node}
    found = _sign(api, vhost)
    if found is None:
        sign = {"type": "fanout", "durable": True, "internal": True, "arguments": arguments}
        api.put("exchanges", vhost, TRACE, body=sign)
    elif found.node != node:
        raise errors.BrokerRefusedError(
            f"{found.writer} switched tracing on at node {found.node} and ended without switching it off: pass the management URL of "
            "that node"
        )
    try:
        _switch(api, vhost, is_on=True)
        yield
    finally:
        end_trace(api, vhost)


def _switch(api: Management, vhost: str, *, is_on: bool) -> None:
    """Set the switch. The request replaces the whole metadata of the vhost from 3.10 on, so they are sent along."""
    now = api.get("vhosts", vhost, fields=_VHOST)
    kept = {"description": now.get("description") or "", "tags": ",".join(now.get("tags") or ())}
    queue_type = (now.get("metadata") or now).get("default_queue_type")
    if queue_type not in (None, "undefined"):
        kept["default_queue_type"] = queue_type
    api.put("vhosts", vhost, body={"tracing": is_on, **kept})


class _Sign(NamedTuple):
    """Who switched tracing on, and at which node."""

    writer: str
    node: str


def _sign(api: Management, vhost: str) -> _Sign | None:
    try:
        arguments = read_exchange(api, vhost, TRACE).get("arguments") or {}
    except errors.NotFoundError:
        return None
    return _Sign(str(arguments.get(_SIGNED_BY, "somebody")), str(arguments.get(_NODE)))


def _has_tracer(api: Management, vhost: str) -> bool:
    """Return True if a process traces the vhost now: its exclusive queue goes with its connection."""
    queues = api.get_list("queues", vhost, query=WITHOUT_STATISTICS, fields={})
    return any(queue.get("name") == TRACE for queue in queues)


def _message_of(copy: Mapping[bytes, AmqpField], hashed: HashedOn) -> TracedMessage:
    properties = dict(copy[b"properties"].value)
    value: str | bytes | int | AmqpField | None
    if hashed.kind == "routing-key":
        value = _text(copy[b"routing_keys"].value[0].value)
    elif hashed.kind == "property":
        field = properties.get(hashed.name)
        value = (
            None if field is None else _text(field.value) if isinstance(field.value, bytes) else field.value
        )
    else:
        headers = properties.get(b"headers")
        value = None if headers is None else dict(headers.value).get(hashed.name)
    queues = (each.value.decode(errors="replace") for each in copy[b"routed_queues"].value)
    return TracedMessage(value, tuple(queues))


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
