"""The plugin where no broker is to be had, as a user meets it: pytest in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    RunPytest = Callable[..., str]

TWO_THAT_USE_A_BROKER = """
def test_one(chx_broker): pass
def test_two(chx_vhost): pass
"""


@pytest.fixture
def nothing(tmp_path: Path) -> str:
    """A PATH on which there is neither docker nor a RabbitMQ server."""
    empty = tmp_path / "bin"
    empty.mkdir()
    return str(empty)


def test_the_entry_module_imports_only_pytest() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules); import rabbit_chx.testing.pytest_plugin; "
        "print('\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {
        "rabbit_chx",
        "rabbit_chx.lazy_names",
        "rabbit_chx.testing",
        "rabbit_chx.testing.pytest_plugin",
    }


def test_a_run_without_brokers_does_not_hear_of_it(run_pytest: RunPytest, nothing: str) -> None:
    said = run_pytest("def test_of_something_else(): pass", PATH=nothing)
    assert "1 passed" in said
    assert "rabbit_chx:" not in said
    assert "= rabbit_chx =" not in said


def test_tests_without_a_broker_are_skipped_and_reported_at_the_end(
    run_pytest: RunPytest, nothing: str
) -> None:
    said = run_pytest(TWO_THAT_USE_A_BROKER, "-ra", PATH=nothing)
    assert "2 skipped" in said
    assert said.count("no broker for tests") == 1
    assert "NOT RUN, 2 tests: no broker for tests. Tried:" in said
    assert "Docker: no Docker daemon answers: cannot run docker" in said
    assert "or set RABBIT_CHX_TEST_URL=" in said


def test_nothing_is_installed(run_pytest: RunPytest, nothing: str, tmp_path: Path) -> None:
    """On the PATH is an `apt-get` that notes that it was called, and a shell for it."""
    called = tmp_path / "called"
    shell = shutil.which("sh")
    assert shell
    Path(nothing, "sh").symlink_to(shell)
    apt_get = Path(nothing, "apt-get")
    apt_get.write_text(f"#!/bin/sh\necho called >{called}\nexit 100\n")
    apt_get.chmod(0o755)
    said = run_pytest(TWO_THAT_USE_A_BROKER, PATH=nothing)
    assert "2 skipped" in said
    assert "Install Docker, or set RABBIT_CHX_TEST_URL=" in said
    assert not called.exists()
    assert "unrecognized arguments: --chx-install" in run_pytest(
        TWO_THAT_USE_A_BROKER, "--chx-install", PATH=nothing
    )


def test_in_ci_it_fails(run_pytest: RunPytest, nothing: str) -> None:
    said = run_pytest(TWO_THAT_USE_A_BROKER, "-ra", "-n", "2", PATH=nothing, CI="true")
    assert "2 errors" in said
    assert said.count("no broker for tests") == 1
    assert "in CI this must run: rabbit_chx: no broker for tests" in said


def test_without_testcontainers_the_extra_is_named(
    run_pytest: RunPytest, nothing: str, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text("import sys; sys.modules['testcontainers'] = None")
    said = run_pytest("def test_one(chx_broker): pass", PATH=nothing)
    assert "1 skipped" in said
    assert "a broker in Docker needs testcontainers" in said


def test_a_series_that_is_named_and_missing_fails(run_pytest: RunPytest, nothing: str) -> None:
    said = run_pytest(TWO_THAT_USE_A_BROKER, "--chx-broker", "4.3", PATH=nothing)
    assert "rabbit_chx: RabbitMQ 4.3 (no image here yet) in Docker, by --chx-broker" in said
    assert "2 errors" in said
    assert "rabbit_chx: no Docker daemon answers" in said


def test_a_named_broker_that_cannot_be_used_fails_and_its_password_is_not_shown(
    run_pytest: RunPytest,
) -> None:
    url = "amqp://me:s3cret@127.0.0.1:1/%2F"
    said = run_pytest(TWO_THAT_USE_A_BROKER, "-ra", RABBIT_CHX_TEST_URL=url)
    assert said.count("no server answers there") == 1
    assert "rabbit_chx: RABBIT_CHX_TEST_URL names a broker that cannot be used" in said
    assert (
        said.count("rabbit_chx: the error is the one above") == 3
    )  # of the second test, and in the short summary
    assert "2 errors" in said
    assert "s3cret" not in said


def test_a_variable_without_its_url_fails(run_pytest: RunPytest, nothing: str) -> None:
    said = run_pytest(TWO_THAT_USE_A_BROKER, PATH=nothing, RABBIT_CHX_TEST_RING_VIA="docker exec mq")
    assert "belong to RABBIT_CHX_TEST_URL, which is not set" in said
    assert "2 errors" in said


def test_each_series_is_a_separate_run(run_pytest: RunPytest, nothing: str) -> None:
    series = ("--chx-broker", "4.3", "--chx-broker", "3.10", "--chx-broker", "4.3")
    said = run_pytest(
        TWO_THAT_USE_A_BROKER + "def test_of_something_else(): pass",
        "--collect-only",
        "--quiet",
        *series,
        PATH=nothing,
    )
    tests = [line.partition("::")[2] for line in said.splitlines() if "::" in line]
    assert tests == [
        "test_one[4.3]",
        "test_two[4.3]",
        "test_one[3.10]",
        "test_two[3.10]",
        "test_of_something_else",
    ]


def test_a_broker_that_is_not_taken_as_an_argument_has_no_series(run_pytest: RunPytest, nothing: str) -> None:
    code = "def test_one(request): request.getfixturevalue('chx_broker')"
    said = run_pytest(code, "--chx-broker", "4.3", PATH=nothing)
    assert "1 failed" in said
    assert "--chx-broker reaches only tests that take a broker as an argument" in said


def test_a_marker_without_a_broker_is_a_mistake(run_pytest: RunPytest, nothing: str) -> None:
    code = "import pytest\n@pytest.mark.chx_broker('>=4.0')\ndef test_one(): pass"
    said = run_pytest(code, PATH=nothing)
    assert "1 error" in said
    assert "the marker chx_broker is for tests that take chx_broker or chx_vhost" in said
