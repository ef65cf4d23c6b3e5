"""The publisher names that a stream remembers, counted over the management API before rows are written.

A stream remembers the last ids of 255 names. It forgets the oldest further names when it starts a new segment; rows with their ids would
then be stored again. osiris v1.13.1, osiris_tracking.erl, ``trim_sequences/2``, ``MAX_SEQUENCES``.
"""

from __future__ import annotations

import http.client
import json
import logging
from urllib.parse import quote

from rabbit_chx.amqp import ConnectionSettings, Secret
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.connection.client_settings import tls_context
from rabbit_chx.connection.tokens import log_in_to_api
from rabbit_chx.errors import AccessRefusedError, BrokerRefusedError, InputError, UnreachableError

_log = logging.getLogger(__name__)

MOST_REFERENCES = 255
_MANY = 200
_TOO_MANY = 250
_TIMEOUT_S = 10.0
_LARGEST = 16 << 20  # bytes of the answer


def check_references(
    management_url: ManagementUrl, settings: ConnectionSettings, stream: str, name: str
) -> None:
    """Warn if a stream remembers many names; raise an InputError if a further name would exceed 250."""
    url = management_url.with_login_of(settings)
    writers = log_in_to_api(url, _TIMEOUT_S, lambda login: _writers(url, settings.vhost, stream, login))
    count = len(writers.keys() | {name})
    told = f"stream {stream!r} remembers {count} publishers with {name!r}, of at most {MOST_REFERENCES}"
    if count > _TOO_MANY:
        raise InputError(
            f"{told}. Beyond them it forgets the oldest, whose rows would then be stored again. A name is never given back: use fewer "
            "names, publish over fewer AMQP channels (each takes one), or begin a new stream",
            queue=stream,
        )
    if count >= _MANY:
        _log.warning("%s; above %d publishing fails", told, _TOO_MANY)


def _writers(url: ManagementUrl, vhost: str, stream: str, login: Secret) -> dict[str, int]:
    """Return the last id of each name that a stream remembers; from RabbitMQ 3.13 on, with rabbitmq_stream_management."""
    if url.tls is None:
        connection = http.client.HTTPConnection(url.host, url.port, timeout=_TIMEOUT_S)
    else:
        context = tls_context(url.tls)
        connection = http.client.HTTPSConnection(url.host, url.port, timeout=_TIMEOUT_S, context=context)
    path = f"{url.prefix}/api/stream/{quote(vhost, safe='')}/{quote(stream, safe='')}/tracking?type=writer"
    try:
        connection.request("GET", path, headers={"Authorization": login.reveal()})
        with connection.getresponse() as answer:
            status = answer.status
            content = answer.read(_LARGEST)
        if status == http.client.OK:
            return dict(json.loads(content)["writers"])
    except (OSError, http.client.HTTPException, ValueError, KeyError) as cause:
        raise UnreachableError(
            f"{url.masked}: the management API does not return the writers of stream {stream!r} ({cause}): check the URL",
            queue=stream,
        ) from None
    finally:
        connection.close()
    if status == http.client.NOT_FOUND:
        raise BrokerRefusedError(
            f"{url.masked}: the management API does not return the writers of stream {stream!r}: it needs RabbitMQ 3.13 or newer, and on each "
            "node rabbitmq-plugins enable rabbitmq_stream_management; or leave management_url out",
            queue=stream,
            reply_code=status,
        )
    kind = AccessRefusedError if status in (401, 403) else BrokerRefusedError
    raise kind(
        f"{url.masked}: {path} was answered {status}: the user needs the tag management and read permission; or leave "
        "management_url out",
        queue=stream,
        reply_code=status,
    )
