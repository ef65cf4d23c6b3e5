"""A broker of a certain release: from an image, or from the machine's own ``rabbitmq-server``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from rabbit_chx.errors import NoBrokerError, RabbitChxError
from rabbit_chx.testing.containers import (
    image_version,
    official_image,
    require_docker,
    require_image,
    start_docker_broker,
)
from rabbit_chx.testing.local_server import installed_version, start_local_broker

if TYPE_CHECKING:
    from rabbit_chx.routing import Release
    from rabbit_chx.testing.running_broker import RunningBroker

__all__ = ["BrokerSource", "release_broker", "source_of"]

#: Starts a broker.
BrokerSource: TypeAlias = "Callable[[], RunningBroker]"


def source_of(release: Release) -> tuple[str, BrokerSource]:
    """Return where a broker of a release comes from, in words, and what starts it. An image may be pulled now.

    Another patch of the same series is taken where this one is not there.

    Args:
        release: the release.

    Raises:
        NoBrokerError: there is none; the message says what was tried.
    """
    major, minor, _ = release.numbers
    series = f"{major}.{minor}"
    tag = release.version if image_version(release.version) else series
    in_docker = (f"the image {official_image(tag)}", partial(start_docker_broker, tag))
    if image_version(tag):
        return in_docker
    failures = []
    try:
        version = installed_version()
        if version.startswith(f"{series}."):
            return f"the rabbitmq-server of this machine, {version}", start_local_broker
        failures.append(f"the rabbitmq-server of this machine is {version}")
    except RabbitChxError as error:
        failures.append(f"this machine: {error}")
    try:
        require_docker()
        require_image(official_image(tag))
    except RabbitChxError as error:
        failures.append(f"Docker: {error}")
        raise NoBrokerError(f"there is no broker of RabbitMQ {series}: {'; '.join(failures)}") from None
    return in_docker


@contextmanager
def release_broker(source: BrokerSource) -> Iterator[RunningBroker]:
    """Start a broker for a block; it is removed at the end, also after Ctrl-C.

    Args:
        source: what starts it.

    Raises:
        NoBrokerError: it does not serve.
    """
    broker = source()
    try:
        yield broker
    finally:
        broker.stop()
