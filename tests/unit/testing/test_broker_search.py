"""Which broker is taken, and what is said where none is to be had."""

from __future__ import annotations

from collections.abc import Iterator

import loopback
import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.testing import NoBrokerError, find_broker, in_ci, skip_unless_ci
from rabbit_chx.testing.containers import release_is_in

VARIABLES = ("RABBIT_CHX_TEST_URL", "RABBIT_CHX_TEST_MANAGEMENT_URL", "RABBIT_CHX_TEST_RING_VIA")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("url", ["amqp://someone:s3/cret@host", "s3cret", "http://u:s3cret@host", "amqp://u:s3cret@127.0.0.1:{}/%2F"])  # fmt: skip
def test_a_named_broker_that_cannot_be_used_is_an_error_without_its_password_and_not_replaced(
    monkeypatch: pytest.MonkeyPatch, dead_port: int, url: str
) -> None:
    monkeypatch.setenv("RABBIT_CHX_TEST_URL", url.format(dead_port))
    with pytest.raises(NoBrokerError, match="RABBIT_CHX_TEST_URL") as caught, find_broker():
        pass
    assert "cret" not in str(caught.value)
    assert "{}" not in url or f"u:***@127.0.0.1:{dead_port}" in str(caught.value)


@pytest.mark.parametrize("name", VARIABLES[1:])
def test_the_other_variables_need_the_url(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(InputError, match="RABBIT_CHX_TEST_URL, which is not set"), find_broker():
        pass


def test_each_failed_attempt_is_reported_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, dead_port: int
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AMQP_URL", f"amqp://guest:guest@127.0.0.1:{dead_port}")
    with pytest.raises(NoBrokerError) as caught, find_broker():
        pass
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0].strip() for line in lines[1:-1]] == ["RABBIT_CHX_TEST_URL", "Docker"]
    assert "cannot run docker" in lines[2]
    assert lines[-1].startswith("Install Docker, or set RABBIT_CHX_TEST_URL=")
    assert str(dead_port) not in str(caught.value)


@pytest.fixture
def dead_port() -> Iterator[int]:
    with loopback.dead_port() as port:
        yield port


# ---- what is missing skips a test here and fails it in CI


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
    with pytest.raises(InputError, match="the broker's version, 'unknown', cannot be compared with a range"):
        release_is_in("unknown", ">=4.0")
