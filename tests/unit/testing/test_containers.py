"""Containers with and without Ryuk."""

from __future__ import annotations

import os
import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from testcontainers.core.config import testcontainers_config

from rabbit_chx.errors import BrokerTimeoutError, NoBrokerError
from rabbit_chx.testing import containers


def test_without_the_image_of_ryuk_it_is_omitted_with_one_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = NoBrokerError("the image ryuk:1 is not here and cannot be pulled")
    monkeypatch.setattr(containers, "require_image", require_image := Mock(side_effect=missing))
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", False)
    monkeypatch.setattr(testcontainers_config, "ryuk_image", "ryuk:1")
    for _ in range(2):
        containers._do_without_ryuk_if_missing()
    assert testcontainers_config.ryuk_disabled, "where it is switched off, nobody asks for it"
    require_image.assert_called_once_with("ryuk:1")
    assert capsys.readouterr().err == (
        "rabbit_chx: containers stay if this process is killed: no Ryuk, since the image ryuk:1 is not here and cannot be pulled\n"
    )


def refusal() -> str:
    """Return why an image cannot be had."""
    with pytest.raises(NoBrokerError) as caught:
        containers.require_image("rabbitmq:4.3")
    return str(caught.value)


def test_a_pull_that_timed_out_is_repeated_after_ten_minutes_and_another_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Docker is scripted: a registry that hangs cannot be had."""
    timed_out = BrokerTimeoutError("docker pull did not end")
    pulls = iter(
        [NoBrokerError("no route"), NoBrokerError("no host"), timed_out, NoBrokerError("no such host")]
    )

    def docker(command: str, *_: object, **__: object) -> str:
        raise next(pulls) if command == "pull" else NoBrokerError("no such image")

    monkeypatch.setattr(containers, "docker", docker)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert "no route" in refusal()
    assert "no host" in refusal()
    assert "did not end" in refusal()
    assert re.search(r"a pull timed out \d+ s ago; to try again: docker pull rabbitmq:4\.3", refusal())
    (noted,) = tmp_path.iterdir()
    os.utime(noted, (0, noted.stat().st_mtime - 600))
    assert "no such host" in refusal()


def test_a_series_or_an_image_names_the_image() -> None:
    assert containers.official_image("4.3") == "rabbitmq:4.3-management"
    for image in ("rabbitmq:4.3.6-management", "example.org/rabbit"):
        assert containers.official_image(image) == image
