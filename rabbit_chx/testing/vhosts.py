"""A vhost of its own for each test, so that tests leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from rabbit_chx.testing.running_broker import RunningBroker

__all__ = ["in_vhost", "temporary_vhost"]


@contextmanager
def temporary_vhost(broker: RunningBroker) -> Iterator[RunningBroker]:
    """Create a vhost for a block; it is deleted with all that is in it.

    Args:
        broker: the broker.

    Yields:
        The broker with the vhost in its URL.

    Raises:
        InputError: the broker has no management URL.
        BrokerRefusedError: the broker's user may not create vhosts.
    """
    from rabbit_chx.broker.management import Management
    from rabbit_chx.broker.scratch_vhost import scratch_vhost

    if broker.management_url is None:
        raise InputError(
            "a vhost can only be made through the HTTP API: set RABBIT_CHX_TEST_MANAGEMENT_URL as well"
        )
    with scratch_vhost(Management(broker.management_url)) as name:
        yield in_vhost(broker, name)


def in_vhost(broker: RunningBroker, vhost: str) -> RunningBroker:
    """Return the broker with another vhost in its URL, whose query is kept.

    Args:
        broker: the broker.
        vhost: the vhost, not yet quoted.
    """
    address, mark, query = broker.url.partition("?")
    scheme, separator, rest = address.partition("://")
    url = f"{scheme}{separator}{rest.partition('/')[0]}/{quote(vhost, safe='')}{mark}{query}"
    return replace(broker, url=url)
