"""Reply codes of AMQP 0-9-1 (section 1.2) and the broker's texts, as errors of this library."""

from __future__ import annotations

import re

from rabbit_chx.amqp.exchange_types import exchange_type_remedy
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    ConnectionLimitError,
    ConnectionLostError,
    InputError,
    MismatchError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)

#: The broker is stopped, has an internal error (for example while a vhost starts), lacks a resource, or lost its
#: place in the protocol, for example by damaged bytes.
_PASSING_CODES = frozenset({320, 501, 502, 504, 505, 506, 541})


#: A refused login tells no release. For example, 4.3.6 refuses each one after a change on a full disk (403 over AMQP, 401 over HTTP).
IF_RIGHT = "if they are right, look at the broker's log"
_UNKNOWN_TYPE = "unknown exchange type '(.*)'"

#: The code; the broker's words as a regular expression, where '.*' spans names, which are in quotes; the error; the remedy. The first match
#: applies. The texts are those of rabbitmq-server 3.10 to 4.3.
_MEANINGS: tuple[tuple[int, str, type[RabbitChxError], str], ...] = (
    (320, "", ConnectionLostError, "connect again once the broker is back; look at its log"),
    (403, "internal exchange", AccessRefusedError, "publish to one that is not internal"),
    (403, "token has expired", ConnectionLostError, "no new token arrived in time: connect again"),
    (403, "access to .* refused", AccessRefusedError, "grant the user the permission: rabbitmqctl set_permissions"),
    (403, "reserved prefix", AccessRefusedError, "names that begin with amq. are the broker's own: choose another name"),
    (403, "queue .* in exclusive use", AccessRefusedError, "one consumer has the queue for itself: stop it first"),
    (403, "", AccessRefusedError, f"check user name, password and auth_mechanism; {IF_RIGHT}"),
    (404, "home node .* is down or inaccessible", UnreachableError, "wait until that node is up"),
    (404, "", NotFoundError, "check the name and the vhost, or declare it first"),
    (405, "locked queue", BrokerRefusedError, "the queue is exclusive to another connection: use it there, or name another"),
    (406, _UNKNOWN_TYPE, BrokerRefusedError, ""),
    (406, "message size", BrokerRefusedError, "send smaller bodies, or raise max_message_size in the broker's configuration"),
    (406, "user_id property", BrokerRefusedError, "pass the name of the connected user as user_id, or none"),
    (406, "invalid expiration", BrokerRefusedError, "pass the milliseconds as text, such as '60000'"),
    (406, "fast reply consumer", BrokerRefusedError, "consume from amq.rabbitmq.reply-to on the same channel first"),
    (406, "does not have a (running )?replica", UnreachableError, "wait until a node with a replica of the stream is up"),
    (406, "queue limit in .* is reached", BrokerRefusedError, "delete queues, or raise the limit"),
    (406, "exchange limit of .* is reached", BrokerRefusedError, "delete exchanges, or raise cluster_exchange_limit in the broker's configuration"),
    (406, "inequivalent arg", MismatchError, "use what is there, or delete it first and declare it again"),
    (406, "delivery acknowledgement .* timed out", BrokerRefusedError, "take fewer messages at once, or raise consumer_timeout of the broker"),
    (406, "", MismatchError, "correct what it names"),
    (503, _UNKNOWN_TYPE, BrokerRefusedError, ""),
    (530, "limit .* is reached", ConnectionLimitError, "close connections, or raise the limit"),
    (530, "channels opened .* has reached the", ConnectionLimitError, "open fewer channels (a group needs one for each queue), or raise the limit"),
    (530, "^NOT_ALLOWED - access to vhost .* refused for user", AccessRefusedError, "grant the user permissions on the vhost"),
    (530, "^NOT_ALLOWED - vhost .* not found$", NotFoundError, "check the vhost in the URL, or create it"),
    (541, "feature flag is disabled", BrokerRefusedError, "a feature flag or the broker's configuration disables this queue type"),
    (541, "Feature .*transient_nonexcl_queues.* is deprecated", BrokerRefusedError, "declare the queue as durable, or as exclusive"),
    (541, "Feature .* is deprecated", BrokerRefusedError, "do without it, or permit it in the broker's configuration"),
    (541, "", BrokerRefusedError, "look at the broker's log: it failed inside, often over an argument it does not expect"),
)  # fmt: skip


def error_for(
    code: int, text: str, *, where: str, exchange: str | None = None, queue: str | None = None
) -> RabbitChxError:
    """Return the error for a channel or connection that the broker closed."""
    kind: type[RabbitChxError] = BrokerRefusedError
    remedy = "look at the broker's log"
    for known_code, words, meant, advice in _MEANINGS:
        if known_code == code and (found := re.search(words, text, re.DOTALL)):
            # Only of an unknown type the remedy depends on a name.
            kind = meant
            remedy = advice or exchange_type_remedy(found[1])
            break
    message = f"{where}: the broker answered {code} {text.strip().rstrip('.')}: {remedy}"
    return kind(message, exchange=exchange, queue=queue, reply_code=code)


_NOT_ALLOWED = 530


def is_transient(error: RabbitChxError) -> bool:
    """Return whether a later attempt to connect may succeed without any change of the settings."""
    if isinstance(error, InputError):
        return False
    return isinstance(error, (UnreachableError, ConnectionLimitError)) or error.reply_code in _PASSING_CODES


def may_be_limit(error: RabbitChxError) -> bool:
    """Return whether a vhost is refused without a reason, as the stream protocol does at a limit of connections.

    It does so without permission and without the vhost, too: who has opened the vhost before may try again.
    """
    return type(error) is BrokerRefusedError and error.reply_code == _NOT_ALLOWED
