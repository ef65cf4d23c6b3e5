"""The targets of the Makefile that call others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NOT_RUN = 'echo "Not run: '


def commands_of(target: str) -> list[str]:
    """Return the commands of a target and of what it needs, without running them."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", target],
        cwd=ROOT,
        env=outside,  # this test may run within `make test`
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.splitlines()


def test_the_last_line_of_make_test_names_what_is_left_out() -> None:
    assert commands_of("test")[-1].startswith(NOT_RUN)


def test_make_test_all_leaves_nothing_out() -> None:
    commands = commands_of("test-all")
    assert any("-m extended" in command for command in commands)
    assert any('-m "not extended"' in command for command in commands)
    assert [command for command in commands if command.startswith(NOT_RUN)] == []
