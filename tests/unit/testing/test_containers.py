"""Containers with and without Ryuk."""

from __future__ import annotations

import pytest
from testcontainers.core.config import testcontainers_config

from rabbit_chx.errors import NoBrokerError
from rabbit_chx.testing import containers


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images that were asked for; none can be had."""
    images: list[str] = []

    def require_image(image: str) -> None:
        images.append(image)
        raise NoBrokerError(f"the image {image} is not here and cannot be pulled")

    monkeypatch.setattr(containers, "require_image", require_image)
    return images


def test_without_the_image_of_ryuk_it_is_omitted_with_one_note(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", False)
    monkeypatch.setattr(testcontainers_config, "ryuk_image", "ryuk:1")
    for _ in range(2):
        containers._do_without_ryuk_if_missing()
    assert testcontainers_config.ryuk_disabled
    assert asked == ["ryuk:1"]
    assert capsys.readouterr().err == (
        "rabbit_chx: containers stay if this process is killed: no Ryuk, since the image ryuk:1 is not here and cannot be pulled\n"
    )


def test_where_ryuk_is_switched_off_nobody_asks_for_it(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    containers._do_without_ryuk_if_missing()
    assert asked == []
