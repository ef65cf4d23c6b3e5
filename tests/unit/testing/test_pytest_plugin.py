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

TWO = """
def test_one(chx_broker): pass
def test_two(chx_vhost): pass
"""
OTHER = "def test_of_something_else(): pass"


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
        "rabbit_chx.errors",
        "rabbit_chx.lazy_names",
        "rabbit_chx.testing",
        "rabbit_chx.testing.pytest_plugin",
    }


ASKED_LATE = "def test_one(request): request.getfixturevalue('chx_broker')"
OF_UNITTEST = """
import pytest, unittest
@pytest.mark.usefixtures("chx_broker")
class TestIt(unittest.TestCase):
    def test_one(self): pass
"""
MARKED = "import pytest\n@pytest.mark.chx_broker('>=4.0')\ndef test_one(): pass"
RING_VIA = {"RABBIT_CHX_TEST_RING_VIA": "docker exec mq"}
SERIES = ("--chx-broker", "4.3")
SECRET = {"RABBIT_CHX_TEST_URL": "amqp://me:s3cret@127.0.0.1:1/%2F"}


@pytest.mark.extended
@pytest.mark.parametrize(
    ("code", "options", "environment", "says", "times"),
    [
        (OTHER, (), {}, ("1 passed",), {"rabbit_chx:": 0, "= rabbit_chx =": 0}),
        (TWO, ("-ra",), {}, ("2 skipped", "NOT RUN, 2 tests: no broker for tests. Tried:",
            "or set RABBIT_CHX_TEST_URL=", "Docker: no Docker daemon answers: cannot run docker"),
            {"no broker for tests": 1}),
        (TWO, ("-ra", "-n", "2"), {"CI": "true"}, ("2 errors", "in CI this must run: rabbit_chx: no broker for tests"),
            {"no broker for tests": 1}),
        (TWO, SERIES, {}, ("2 errors", "rabbit_chx: RabbitMQ 4.3 (no image here yet) in Docker, by --chx-broker",
            "rabbit_chx: no Docker daemon answers"), {}),
        (TWO, ("-ra",), SECRET, ("2 errors", "rabbit_chx: RABBIT_CHX_TEST_URL names a broker that cannot be used"),
            {"no server answers there": 1, "rabbit_chx: the error is the one above": 3, "s3cret": 0}),
        (TWO, (), RING_VIA, ("2 errors", "belong to RABBIT_CHX_TEST_URL, which is not set"), {}),
        (ASKED_LATE, SERIES, {}, ("1 failed", "--chx-broker reaches only tests that take a broker as an argument"), {}),
        (OF_UNITTEST, SERIES, {}, ("1 error", "the methods of a unittest.TestCase take no arguments"), {}),
        (MARKED, (), {}, ("1 error", "the marker chx_broker is for tests that take chx_broker or chx_vhost"), {}),
    ],
    ids=["other tests", "skipped", "in CI", "series", "named broker", "variable without URL", "asked late", "unittest", "marked"],
)  # fmt: skip
def test_what_is_missing_is_reported_once(
    run_pytest: RunPytest,
    nothing: str,
    *,
    code: str,
    options: tuple[str, ...],
    environment: dict[str, str],
    says: tuple[str, ...],
    times: dict[str, int],
) -> None:
    """The error of a named broker has a line for the second test, and two in the short summary."""
    said = run_pytest(code, *options, **{"PATH": nothing, **environment})
    assert [words for words in says if words not in said] == [], said
    assert {words: said.count(words) for words in times} == times


def test_without_testcontainers_the_extra_is_named(
    run_pytest: RunPytest, nothing: str, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text("import sys; sys.modules['testcontainers'] = None")
    said = run_pytest("def test_one(chx_broker): pass", PATH=nothing)
    assert "1 skipped" in said
    assert "a broker in Docker needs testcontainers" in said


def test_nothing_is_installed(run_pytest: RunPytest, nothing: str, tmp_path: Path) -> None:
    """On the PATH is an `apt-get` that notes that it was called, and a shell for it."""
    called = tmp_path / "called"
    shell = shutil.which("sh")
    assert shell
    Path(nothing, "sh").symlink_to(shell)
    apt_get = Path(nothing, "apt-get")
    apt_get.write_text(f"#!/bin/sh\necho called >{called}\nexit 100\n")
    apt_get.chmod(0o755)
    said = run_pytest(TWO, PATH=nothing)
    assert "2 skipped" in said
    assert "Install Docker, or set RABBIT_CHX_TEST_URL=" in said
    assert not called.exists()
    assert "unrecognized arguments: --chx-install" in run_pytest(TWO, "--chx-install", PATH=nothing)


def test_each_series_is_a_separate_run(run_pytest: RunPytest, nothing: str) -> None:
    series = ("--chx-broker", "4.3", "--chx-broker", "3.10", "--chx-broker", "4.3")
    said = run_pytest(TWO + OTHER, "--collect-only", "--quiet", *series, PATH=nothing)
    tests = [line.partition("::")[2] for line in said.splitlines() if "::" in line]
    assert tests == [
        "test_one[4.3]",
        "test_two[4.3]",
        "test_one[3.10]",
        "test_two[3.10]",
        "test_of_something_else",
    ]
