"""The broker of our own tests where Docker is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import found_broker
import pytest
from found_broker import find_broker, need

from rabbit_chx.errors import NoBrokerError
from rabbit_chx.testing import RunningBroker


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable names a broker, and on the PATH is neither docker nor a RabbitMQ server."""
    for name in ("URL", "MANAGEMENT_URL", "RING_VIA"):
        monkeypatch.delenv(f"RABBIT_CHX_TEST_{name}", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(found_broker, "watch_containers", lambda: None)


def test_without_docker_the_server_of_this_machine_is_taken_and_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker is made up: what is tested is the line about it."""
    local = RunningBroker("amqp://localhost", None, "3.10.8", None, "local server (RabbitMQ 3.10.8)")

    @contextmanager
    def local_broker() -> Iterator[RunningBroker]:
        yield local

    monkeypatch.setattr(found_broker, "local_broker", local_broker)
    with find_broker() as broker:
        assert broker is local
    said = capsys.readouterr().err
    assert said.startswith(
        "rabbit_chx: broker for tests: local server (RabbitMQ 3.10.8), since Docker: no Docker daemon answers: cannot run docker"
    )
    assert said.count("\n") == 1


def test_where_there_is_neither_both_are_told() -> None:
    with pytest.raises(NoBrokerError) as caught, find_broker():
        pass
    assert "Docker: no Docker daemon answers" in str(caught.value)
    assert "Or install the package rabbitmq-server: no rabbitmq-server on PATH" in str(caught.value)


def test_a_named_broker_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RABBIT_CHX_TEST_URL", "amqp://127.0.0.1:1")
    with (
        pytest.raises(NoBrokerError, match="RABBIT_CHX_TEST_URL names a broker that cannot be used"),
        find_broker(),
    ):
        pass


def test_a_machine_without_any_kind_fails_in_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", "true")
    for kind in ("docker", "local"):
        with pytest.raises(pytest.fail.Exception, match=r"cannot run docker.*rabbitmq-server"):
            need(kind)


def test_a_machine_with_one_kind_skips_the_other_even_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("rabbitmq-server", "rabbitmq-env", "epmd"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", "true")
    need("local")
    with pytest.raises(pytest.skip.Exception, match="no Docker daemon answers: cannot run docker"):
        need("docker")
