"""A broker in a container that a test configures by files, with a further plugin."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rabbit_chx.testing import RunningBroker, containers


@contextmanager
def configured_container(
    plugin: str, files: Mapping[str, bytes], ports: tuple[int, ...] = (), *, series: str = "4.3"
) -> Iterator[tuple[RunningBroker, Mapping[int, int]]]:
    """Start the broker for a block; also return the ports of this machine, by those of the container.

    Args:
        plugin: a plugin to enable in addition to the usual ones.
        files: contents by their paths in /etc/rabbitmq, of which `conf.d` has the configuration.
        ports: further ports of the container.
        series: the release.
    """
    containers.require_docker()
    image = containers.official_image(series)
    containers.require_image(image)
    written = "".join(
        f"echo {base64.b64encode(content).decode()} | base64 -d >/etc/rabbitmq/{name}\n"
        for name, content in files.items()
    )
    serve = containers.SERVE.replace("for plugin in ", f"for plugin in {plugin} ")
    container = containers.ContainerServer(f"rabbit-chx-{secrets.token_hex(6)}")
    try:
        container.create(image, f"mkdir -p /etc/rabbitmq/conf.d\n{written}{serve}", more_ports=ports)
        yield container.broker(image), container.ports
    finally:
        container.remove()
