"""The types of exchanges, and what a broker needs to have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from rabbit_chx.checks import similar

#: The types that hash keys.
HASH_EXCHANGE: Final = "x-consistent-hash"
MODULUS_EXCHANGE: Final = "x-modulus-hash"
Numbers: TypeAlias = tuple[int, int, int]


class _Provider(NamedTuple):
    """What has a type.

    Attributes:
        plugin: the plugin; None: only RabbitMQ itself.
        since: the first release of RabbitMQ that has the type without a plugin; None: none.
        is_distributed: whether RabbitMQ contains the plugin, so that enabling it is enough.
    """

    plugin: str | None
    since: Numbers | None = None
    is_distributed: bool = True


_ALWAYS = _Provider(None, (0, 0, 0))
#: Measured with 3.10.8, 4.0.5 and 4.3.6 (`tests/parity/test_exchange_types.py`), except the types of other people's plugins.
_PROVIDERS = {
    **dict.fromkeys(("direct", "fanout", "topic", "headers"), _ALWAYS),
    HASH_EXCHANGE: _Provider("rabbitmq_consistent_hash_exchange"),
    MODULUS_EXCHANGE: _Provider("rabbitmq_sharding", (4, 3, 0)),
    "x-local-random": _Provider(None, (4, 0, 0)),
    "x-random": _Provider("rabbitmq_random_exchange"),
    "x-recent-history": _Provider("rabbitmq_recent_history_exchange"),
    "x-jms-topic": _Provider("rabbitmq_jms_topic_exchange"),
    "x-federation-upstream": _Provider("rabbitmq_federation"),
    "x-delayed-message": _Provider("rabbitmq_delayed_message_exchange", is_distributed=False),
    "x-message-deduplication": _Provider("rabbitmq_message_deduplication", is_distributed=False),
    "x-lvc": _Provider("rabbitmq_lvc_exchange", is_distributed=False),
    "x-rtopic": _Provider("rabbitmq_rtopic_exchange", is_distributed=False),
}
#: The types of RabbitMQ, its plugins, and well-known other plugins.
EXCHANGE_TYPES = tuple(_PROVIDERS)


def why_not_routed(exchange: str, type_: str, types: Collection[str]) -> str:
    """Return why an exchange routes nothing, as a sentence; empty if the broker has its type.

    Such an exchange is left of a plugin that is not enabled any more, as in a container that was made again from its volume.

    Args:
        exchange: the name of the exchange.
        type_: its type.
        types: the types that the broker has; empty if they are not known.
    """
    if not types or type_ in types:
        return ""
    return (
        f"exchange {exchange} is of type {type_}, whose plugin is not enabled: the broker refuses every publish to it (406), and what is "
        "bound and unbound meanwhile never reaches its ring"
    )


def exchange_type_remedy(type_: str) -> str:
    """Return how a broker that does not have a type gets it."""
    provider = _PROVIDERS.get(type_)
    if provider is None:
        meant = similar(type_, EXCHANGE_TYPES, 0.85)
        return f"did you mean {meant}?" if meant else "correct it, or install and enable its plugin"
    if provider.plugin is None:
        return f"update to RabbitMQ {'.'.join(map(str, (provider.since or ())[:2]))} or later"
    enable = f"rabbitmq-plugins enable {provider.plugin} on every node"
    return (
        f"run {enable}"
        if provider.is_distributed
        else f"RabbitMQ does not contain its plugin: install it, and run {enable}"
    )


# -- The delivery limit of quorum queues, by release


ARGUMENT = "x-delivery-limit"
#: Since 4.0 a quorum queue drops a message that was requeued 20 times, unless an argument or a policy sets another limit.
_DEFAULT_SINCE = (4, 0, 0)
_DEFAULT = 20


def delivery_limit(arguments: Mapping[str, Any], release: tuple[int, ...]) -> int | None:
    """Return the delivery limit of a quorum queue with these arguments; None for no limit. A policy may set another one."""
    limit = arguments.get(ARGUMENT)
    if not isinstance(limit, int):
        return _DEFAULT if release >= _DEFAULT_SINCE else None
    return limit if limit >= 0 else None


def delivery_limit_fault(arguments: Mapping[str, Any], release: tuple[int, ...]) -> tuple[str, str] | None:
    """Return why a quorum queue with these arguments loses messages, and the remedy; None if it does not.

    Before 4.0, a delivery limit of -1 is less than any count: the broker drops a message at its first requeue (``rabbit_fifo.erl``; tested
    with 3.10.8). It accepts such a queue. It does not accept such a policy.
    """
    limit = arguments.get(ARGUMENT)
    if not isinstance(limit, int) or limit >= 0 or release >= _DEFAULT_SINCE:
        return None
    message = (
        f"{ARGUMENT} is {limit}, with which RabbitMQ {'.'.join(map(str, release))} drops each message that is returned, as when the "
        "consumer changes"
    )
    return message, "declare the queue without it, since there is no limit before 4.0"
