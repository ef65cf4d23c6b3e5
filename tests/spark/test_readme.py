"""Every Python block of the README, run as written but for the address of the broker."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
RING_SOURCE = "docker compose exec -T rabbitmq"


def test_the_ring_source_is_the_service_of_the_compose_file() -> None:
    assert f'"{RING_SOURCE}"' in README.read_text()
    assert re.search(r"^services:\n  rabbitmq:\n", (ROOT / "docker-compose.yml").read_text(), re.MULTILINE)


def test_the_snippets_run(
    spark: SparkSession, vhost: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None  # the README's own getOrCreate takes it
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 3
    assert vhost.ring_via is not None
    names: dict[str, object] = {}
    for block in blocks:
        code = block.replace("amqp://guest:guest@localhost", vhost.url)
        code = code.replace(RING_SOURCE, shlex.join(vhost.ring_via))
        exec(compile(code, "README.md", "exec"), names)  # noqa: S102  # that is what is tested
    said = capsys.readouterr().out
    for line in re.findall(r"print\(.*\)  # (.*)", README.read_text()):
        assert line in said
