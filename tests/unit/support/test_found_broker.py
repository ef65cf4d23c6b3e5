"""The broker of our own tests where Docker is missing."""

from __future__ import annotations

from pathlib import Path

import found_broker
import pytest
from found_broker import need


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable names a broker, and on the PATH is neither docker nor a RabbitMQ server."""
    for name in ("URL", "MANAGEMENT_URL", "RING_VIA"):
        monkeypatch.delenv(f"RABBIT_CHX_TEST_{name}", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(found_broker, "watch_containers", lambda: None)


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
