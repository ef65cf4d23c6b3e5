"""Containers with and without Ryuk; the wait for a startup."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

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


@pytest.mark.parametrize(
    ("erl_call", "said"),
    [
        ("echo '{ok, ok}'", ""),
        ("echo 'cannot connect'; exit 1", "asked the tool\n"),
        (None, "asked the tool\n"),
    ],
    ids=["answers", "fails", "is missing"],
)
def test_the_tool_waits_for_a_startup_where_erl_call_does_not(
    erl_call: str | None, said: str, tmp_path: Path
) -> None:
    programs = {"erl_call": erl_call, "rabbitmqctl": 'echo asked the tool; [ "$1 $2" = "-q eval" ]'}
    for name, program in programs.items():
        if program is not None:
            (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
            (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", containers._AWAIT_STARTUP],
        env={"PATH": f"{tmp_path}:{os.defpath}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.stdout, done.returncode) == (said, 0)
