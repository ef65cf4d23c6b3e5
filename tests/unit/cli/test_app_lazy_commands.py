"""What a cold command loads. A module that it does not need is time for whoever calls it in a loop."""

from __future__ import annotations

import json
import sys

import pytest
from command_line import ended

#: Of what no offline command has a use for.
HEAVY = {
    "asyncio",
    "configparser",
    "http.client",
    "numpy",
    "pika",
    "pamqp",
    "ssl",
    "tomllib",
    "urllib.request",
}
FLOORS = {"broker", "connection", "consuming", "publishing", "streams", "testing", "topology"}
PROGRAM = """
import json, sys
from rabbit_chx.cli import main
code = main(sys.argv[1:])
sys.stderr.write(json.dumps(sorted(sys.modules)))
sys.exit(code)
"""


def loaded_by(*arguments: str) -> set[str]:
    done = ended(sys.executable, "-c", PROGRAM, *arguments)
    assert done.returncode == 0
    return set(json.loads(done.stderr))


def floors(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in modules if name.startswith("rabbit_chx.")}


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_imports_no_command(arguments: tuple[str, ...]) -> None:
    modules = loaded_by(*arguments)
    assert not modules & HEAVY
    assert floors(modules) <= {
        "checks",
        "cli",
        "errors",
        "lazy_names",
        "options",
        "rendering",
        "text",
        "result_fields",
        "version",
    }
    ours = {name for name in modules if name.startswith("rabbit_chx.cli.")}
    assert ours == {f"rabbit_chx.cli.{name}" for name in ("app", "command")}


def test_a_route_by_bindings_loads_no_client_and_no_topology() -> None:
    modules = loaded_by("route", "q1=1", "k")
    assert not modules & HEAVY
    assert not floors(modules) & FLOORS
