"""The vectors are what the Erlang VM of each release answers."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parity.conftest import Rabbit

TOOL = Path(__file__).resolve().parents[2] / "tools" / "erlang_vectors.py"


@pytest.mark.docker
def test_this_vm_gives_the_same_answers(rabbit: Rabbit) -> None:
    assert rabbit.broker.ring_via is not None
    docker, exec_, *container = rabbit.broker.ring_via
    erl = shlex.join([docker, exec_, "-i", *container, "erl"])
    done = subprocess.run(
        [sys.executable, str(TOOL), "--check", "--erl", erl],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.stdout.count("gives the same answers") == 3, done.stdout + done.stderr
    assert done.returncode == 0
    rabbit.note(
        f"its Erlang, {done.stdout.split(': ')[1].split(' gives')[0]}, gives the answers of the vectors"
    )
