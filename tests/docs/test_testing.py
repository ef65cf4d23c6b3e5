"""The snippets and the commands of docs/testing.md, as a user of the plugin runs them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from blocks import page, python_blocks
from found_broker import need

if TYPE_CHECKING:
    RunPytest = Callable[..., str]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

PAGE = "docs/testing.md"


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.restarts
def test_the_snippets_run(run_pytest: RunPytest) -> None:
    need("docker")
    blocks = python_blocks(PAGE)
    assert len(blocks) == 3
    said = run_pytest("\n".join(blocks), "--chx-broker", "4.3", CI="true")
    assert "rabbit_chx: RabbitMQ 4.3." in said
    assert f"{sum(block.count('def test_') for block in blocks)} passed" in said


def test_the_commands_are_understood(run_pytest: RunPytest) -> None:
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```$", page(PAGE), re.DOTALL | re.MULTILINE))
    commands = re.findall(r"^(?:[A-Z_]+=\S+ )*pytest (.*)$", blocks, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        options = [word for word in shlex.split(command, comments=True) if word != "examples/parity"]
        assert "1 test collected" in run_pytest("def test_one(): pass", "--collect-only", *options)
