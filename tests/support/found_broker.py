"""The broker of the tests and the demo: as users find one, else a private server of this machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

import pytest
from local_server import find_tools, local_broker
from reaper import watch_containers

from rabbit_chx import testing
from rabbit_chx.errors import NoBrokerError, RabbitChxError
from rabbit_chx.testing import RunningBroker, skip_unless_ci
from rabbit_chx.testing.containers import broker_is_named, docker, docker_broker, require_docker

_PREFERRED = "4.3"
_KINDS: dict[str, Callable[[], object]] = {"docker": require_docker, "local": find_tools}


@contextmanager
def find_broker() -> Iterator[RunningBroker]:
    """Find a broker as `rabbit_chx.testing.find_broker` does.

    If there is none, start the newest image of this machine, or without one a private server of this machine.

    Raises:
        NoBrokerError: no broker is available; the message contains what was tried, why it failed and what to do.
        InputError: a variable is malformed.
    """
    watch_containers()
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(testing.find_broker())
        except NoBrokerError as error:
            if broker_is_named():
                raise
            newest = next(iter(local_series()), _PREFERRED)
            try:
                other = local_broker() if newest == _PREFERRED else docker_broker(newest)
                broker = stack.enter_context(other)
            except NoBrokerError as none:
                raise NoBrokerError(f"{error}\nOr install the package rabbitmq-server: {none}") from None
            sys.stderr.write(
                f"rabbit_chx: broker for tests: {broker.origin}, since Docker: {error.__cause__}\n"
            )
        yield broker


def local_series() -> list[str]:
    """Return the release series whose official images are on this machine, the newest first."""
    try:
        tags = docker("image", "ls", "--format", "{{.Tag}}", "rabbitmq").split()
    except RabbitChxError:
        return []
    found = (re.fullmatch(r"(\d+)\.(\d+)-management", tag) for tag in tags)
    series = {(int(match[1]), int(match[2])) for match in found if match}
    return [f"{major}.{minor}" for major, minor in sorted(series, reverse=True)]


def need(kind: Literal["docker", "local"]) -> None:
    """Skip the running test where brokers of this kind cannot be started.

    A machine need not have both Docker and a ``rabbitmq-server``, but in CI it must have one of them.

    Args:
        kind: ``docker`` for a container, ``local`` for the machine's ``rabbitmq-server``.
    """
    missing = {name: reason for name, require in _KINDS.items() if (reason := _failure(require))}
    if len(missing) == len(_KINDS):
        skip_unless_ci("; ".join(missing.values()))
    if kind in missing:
        pytest.skip(missing[kind])


def _failure(require: Callable[[], object]) -> str:
    try:
        require()
    except RabbitChxError as error:
        return str(error)
    return ""
