"""Finding a broker for tests: the broker that the environment names, else one in Docker; skipping a test that lacks one."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NoReturn

from rabbit_chx.errors import InputError, NoBrokerError, RabbitChxError
from rabbit_chx.testing.containers import start_docker_broker
from rabbit_chx.testing.running_broker import RunningBroker, amqp_version, check_management, mask

#: The beginning of what the plugin says.
PREFIX = "rabbit_chx: "
#: The broker of the running test, which the pytest plugin sets.
broker_of_test: RunningBroker | None = None
_URL = "RABBIT_CHX_TEST_URL"
_MANAGEMENT_URL = "RABBIT_CHX_TEST_MANAGEMENT_URL"
_RING_VIA = "RABBIT_CHX_TEST_RING_VIA"


@contextmanager
def find_broker() -> Iterator[RunningBroker]:
    """Find a broker for tests and examples. A broker that was started here is removed at the end.

    The first of these that is available is taken, and one line on stderr names it:

    1. the broker of ``RABBIT_CHX_TEST_URL``, with ``RABBIT_CHX_TEST_MANAGEMENT_URL`` and
       ``RABBIT_CHX_TEST_RING_VIA``, a command prefix;
    2. a container, if Docker answers and the image is there or can be pulled within 60 s.

    ``AMQP_URL`` is never read: it may be someone's production. Nothing is installed.

    Raises:
        NoBrokerError: no broker is available; the message contains what was tried, why it failed and what to do.
        InputError: a variable is malformed.
    """
    broker = _find_named_broker() or _start_own_broker()
    try:
        sys.stderr.write(f"rabbit_chx: broker for tests: {broker.origin}\n")
        yield broker
    finally:
        if broker.owned:
            broker.stop()


def broker_is_named() -> bool:
    """Return whether a variable of the environment names the broker to take."""
    return any(os.environ.get(name) for name in (_URL, _MANAGEMENT_URL, _RING_VIA))


def named_broker_in_words() -> str:
    """Return one line on the named broker, with its release if it can be used; "" if none is named. Tests report the errors."""
    try:
        broker = _find_named_broker()
    except RabbitChxError:
        return f"the broker of {_URL} cannot be used"
    return broker.origin if broker else ""


def _find_named_broker() -> RunningBroker | None:
    url, management_url = (os.environ.get(name) or None for name in (_URL, _MANAGEMENT_URL))
    ring_via = os.environ.get(_RING_VIA)  # empty: the tools of this machine
    if url is None:
        if management_url or ring_via:
            raise InputError(f"{_MANAGEMENT_URL} and {_RING_VIA} belong to {_URL}, which is not set")
        return None
    try:
        version = amqp_version(url)
    except RabbitChxError as error:
        raise NoBrokerError(f"{_URL} names a broker that cannot be used: {error}") from error
    if management_url:
        try:
            check_management(management_url)
        except RabbitChxError as error:
            raise NoBrokerError(f"{_MANAGEMENT_URL} cannot be used: {error}") from error
    return RunningBroker(
        url=url,
        management_url=management_url,
        version=version,
        ring_via=None if ring_via is None else _split(ring_via),
        origin=f"{mask(url)} from {_URL} (RabbitMQ {version})",
    )


def _split(ring_via: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(ring_via))
    except ValueError as error:
        raise InputError(f"{_RING_VIA} is {ring_via!r}: no shell words ({error})") from None


def _start_own_broker() -> RunningBroker:
    try:
        return start_docker_broker()
    except RabbitChxError as error:
        raise NoBrokerError(
            f"no broker for tests. Tried:\n  {_URL}: not set\n  Docker: {error}\n"
            f"Install Docker, or set {_URL}=amqp://user:password@host:port/vhost"
        ) from error


def in_ci() -> bool:
    """Return whether ``CI`` is set to a true value, as CI services do."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def skip_unless_ci(reason: str) -> NoReturn:
    """Skip the running test; in CI fail it.

    Args:
        reason: why the test cannot run, for people.
    """
    import pytest

    if in_ci():
        pytest.fail(f"in CI this must run: {reason}", pytrace=False)
    pytest.skip(reason)


def enter_or_give_up(
    stack: ExitStack,
    broker: AbstractContextManager[RunningBroker],
    *without: type[RabbitChxError],
    named: bool = False,
) -> RunningBroker:
    """Return the broker of a block; after one of these errors skip the running test in words that the plugin counts.

    In CI, and where the broker was named, the test fails.
    """
    import pytest

    try:
        return stack.enter_context(broker)
    except without as error:
        failure = f"{PREFIX}{error}"
    # After the handler, so that pytest does not print the text of the error and of its causes, too.
    if named:
        pytest.fail(failure, pytrace=False)
    skip_unless_ci(failure)


def release_is_in(version: str, releases: str) -> bool:
    """Return whether a version is in a range such as ``>=4.0,<4.3``; every version is in the range ``""``."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(releases, prereleases=True).contains(Version(version))
    except InvalidSpecifier:
        raise InputError(f"{releases!r} is not a range of releases: pass one such as '>=4.0,<4.3'") from None
    except InvalidVersion:
        raise InputError(f"the broker's version, {version!r}, cannot be compared with a range") from None
