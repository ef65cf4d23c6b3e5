"""What is missing skips a test here and fails it in CI."""

from __future__ import annotations

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.testing import in_ci, skip_unless_ci
from rabbit_chx.testing.broker_search import release_is_in


def test_ci_is_known_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (("true", True), ("1", True), ("false", False), ("", False)):
        monkeypatch.setenv("CI", value)
        assert in_ci() is expected


def test_what_is_missing_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs a second node"):
        skip_unless_ci("needs a second node")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="needs a second node"):
        skip_unless_ci("needs a second node")


@pytest.mark.parametrize(
    ("version", "releases", "expected"),
    [
        ("4.3.6", "", True),
        ("4.0.5", ">=4.0", True),
        ("3.10.8", ">=3.8,<3.10", False),
        ("3.8.9", "<3.10", True),
        ("4.3.0-rc.1", ">=4.3", False),
        ("4.3.0-rc.1", ">=4.2", True),
        ("3.13.7+suffix", "<3.14", True),
    ],
)
def test_a_release_is_in_a_range(version: str, releases: str, *, expected: bool) -> None:
    assert release_is_in(version, releases) is expected


def test_a_range_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InputError, match="' is not a range of releases: pass one"):
        release_is_in("4.3.6", "4.0 and up")
    with pytest.raises(InputError, match="version 'unknown', which cannot be compared with a range"):
        release_is_in("unknown", ">=4.0")
