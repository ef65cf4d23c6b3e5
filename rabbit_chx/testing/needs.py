"""What a test needs. Where it is missing, the test is skipped with a reason, and in CI it fails."""

from __future__ import annotations

import os
from typing import NoReturn

from rabbit_chx.errors import InputError


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
