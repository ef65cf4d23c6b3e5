"""What a test needs. Where it is missing, the test is skipped with a reason, and in CI it fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, NoReturn

from rabbit_chx.errors import InputError, RabbitChxError
from rabbit_chx.testing.containers import require_docker
from rabbit_chx.testing.local_server import find_tools

_KINDS: dict[str, Callable[[], object]] = {"docker": require_docker, "local": find_tools}


def in_ci() -> bool:
    """Return whether ``CI`` is set to a true value, as CI services do."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def skip_unless_ci(reason: str) -> NoReturn:
    """Skip the running test; in CI fail it, since a test that does not run there proves nothing.

    Args:
        reason: why the test cannot run, for people.
    """
    import pytest

    if in_ci():
        pytest.fail(f"in CI this must run: {reason}", pytrace=False)
    pytest.skip(reason)


def need(kind: Literal["docker", "local"]) -> None:
    """Skip the running test where brokers of this kind cannot be started.

    A machine need not have both Docker and a ``rabbitmq-server``, but in CI it must have one of them.

    Args:
        kind: ``docker`` for a container, ``local`` for the machine's ``rabbitmq-server``.
    """
    import pytest

    missing = {name: reason for name, require in _KINDS.items() if (reason := _failure(require))}
    if len(missing) == len(_KINDS):
        skip_unless_ci("; ".join(missing.values()))
    if kind in missing:
        pytest.skip(missing[kind])


def release_is_in(version: str, releases: str) -> bool:
    """Return whether a version is in a range such as ``>=4.0,<4.3``; every version is in the range ``""``.

    Raises:
        InputError: the range or the version is malformed.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(releases, prereleases=True).contains(Version(version))
    except InvalidSpecifier:
        raise InputError(f"{releases!r} is not a range of releases: give one such as '>=4.0,<4.3'") from None
    except InvalidVersion:
        raise InputError(f"the broker says it is version {version!r}, which no range can judge") from None


def _failure(require: Callable[[], object]) -> str:
    try:
        require()
    except RabbitChxError as error:
        return str(error)
    return ""
