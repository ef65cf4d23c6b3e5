"""The broker of our own tests where Docker is missing."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import found_broker
import pytest
from found_broker import find_broker, local_series, need

from rabbit_chx.errors import NoBrokerError


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable names a broker, and on the PATH is neither docker nor a RabbitMQ server."""
    for name in ("URL", "MANAGEMENT_URL", "RING_VIA"):
        monkeypatch.delenv(f"RABBIT_CHX_TEST_{name}", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(found_broker, "watch_containers", lambda: None)


@pytest.mark.parametrize(
    ("tags", "series", "started"),
    [
        ("4.0-management 3.10-management 4.0 latest 3.8.9-management", ["4.0", "3.10"], "image 4.0"),
        ("3.9-management 3.13-management", ["3.13", "3.9"], "image 3.13"),
        ("4.3-management 4.0-management", ["4.3", "4.0"], "server"),
        ("", [], "server"),
    ],
)
def test_without_the_newest_image_the_newest_of_this_machine_comes_before_its_server(
    monkeypatch: pytest.MonkeyPatch, tags: str, series: list[str], started: str
) -> None:
    """An image that cannot be pulled cannot be had; one that is here and does not start is not tried again."""

    def started_by(origin: str) -> nullcontext[SimpleNamespace]:
        return nullcontext(SimpleNamespace(origin=origin))

    monkeypatch.setattr("rabbit_chx.testing.find_broker", Mock(side_effect=NoBrokerError("no image")))
    monkeypatch.setattr(found_broker, "docker", lambda *_: tags)
    monkeypatch.setattr(found_broker, "docker_broker", lambda series: started_by(f"image {series}"))
    monkeypatch.setattr(found_broker, "local_broker", lambda: started_by("server"))
    assert local_series() == series
    with find_broker() as broker:
        assert broker.origin == started


def test_what_a_machine_lacks_fails_in_ci_and_the_other_kind_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", "true")
    for kind in ("docker", "local"):
        with pytest.raises(pytest.fail.Exception, match=r"cannot run docker.*rabbitmq-server"):
            need(kind)
    for name in ("rabbitmq-server", "rabbitmq-env", "epmd"):
        (tmp_path / name).touch(mode=0o755)
    need("local")
    with pytest.raises(pytest.skip.Exception, match="no Docker daemon answers: cannot run docker"):
        need("docker")
