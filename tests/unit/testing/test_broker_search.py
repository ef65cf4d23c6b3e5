"""Which broker is taken, and what is said where none is to be had."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.testing import NoBrokerError, find_broker

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
    with socket.socket() as holder:  # so that nobody else gets it
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
