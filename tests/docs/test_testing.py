"""The snippets and the commands of docs/testing.md, as a user of the plugin runs them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from blocks import page, python_blocks
from found_broker import need

if TYPE_CHECKING:
    from rabbit_chx.testing import RunningBroker

    RunPytest = Callable[..., str]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

PAGE = "docs/testing.md"


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.restarts
def test_the_snippets_run(run_pytest: RunPytest, tmp_path: Path) -> None:
    need("docker")
    blocks = python_blocks(PAGE)
    assert blocks
    (tmp_path / "orders.toml").write_text(topology_file())
    said = run_pytest("\n".join(blocks), "--chx-broker", "4.3", CI="true")
    assert "rabbit_chx: RabbitMQ 4.3." in said
    assert f"{sum(block.count('def test_') for block in blocks)} passed" in said


@pytest.mark.core
def test_the_handler_gets_the_message(broker: RunningBroker, run_pytest: RunPytest, tmp_path: Path) -> None:
    [block] = [block for block in python_blocks(PAGE) if "Topology.from_file" in block]
    (tmp_path / "orders.toml").write_text(topology_file())
    given = {
        "RABBIT_CHX_TEST_URL": broker.url,
        "RABBIT_CHX_TEST_MANAGEMENT_URL": str(broker.management_url),
    }
    assert "1 passed" in run_pytest(block, **given)


def topology_file() -> str:
    """Return the topology file of the page."""
    [text] = re.findall(r"^```toml\n(.*?)^```$", page(PAGE), re.DOTALL | re.MULTILINE)
    return str(text)


def test_the_commands_are_understood(run_pytest: RunPytest) -> None:
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```$", page(PAGE), re.DOTALL | re.MULTILINE))
    commands = re.findall(r"^(?:[A-Z_]+=\S+ )*pytest (.*)$", blocks, re.MULTILINE)
    assert commands
    for command in commands:
        options = [word for word in shlex.split(command, comments=True) if word != "examples/parity"]
        assert "1 test collected" in run_pytest("def test_one(): pass", "--collect-only", *options)
