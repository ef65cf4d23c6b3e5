"""What importing loads, and that all public names can be imported. `make check` keeps the levels of the packages."""

from __future__ import annotations

import ast
import inspect
import sys
from importlib import import_module
from pathlib import Path

import grimp
import pytest
from command_line import ended

import rabbit_chx
from rabbit_chx import errors

ROOT = Path(__file__).resolve().parents[3]
CLIENTS = {
    "numpy",
    "pika",
    "pamqp",
    "aio_pika",
    "pyspark",
    "pyarrow",
    "pandas",
    "click",
    "testcontainers",
}
#: What an executor may load besides the standard library and what pyspark loads itself.
ABOVE_PUBLISHING = {"pika", "aio_pika", "testcontainers"} | {
    f"rabbit_chx.{room}" for room in ("broker", "consuming", "rendering", "testing")
}
PLANS_OF_NO_MOVEMENT = """
from rabbit_chx.topology import *
from rabbit_chx.topology import plan
ring = (RingMember("q"),)
wanted = Topology((ExchangeDefinition("x", "x-consistent-hash", ring=ring),), (QueueDefinition("q"),))
plan(wanted, LiveTopology.of_file(wanted))
assert plan(wanted, LiveTopology()).changes
"""


def loaded_by(code: str) -> set[str]:
    """The modules in a fresh interpreter after it has run the code."""
    script = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    done = ended(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import rabbit_chx.analysis", CLIENTS),
        ("from rabbit_chx import phash2; phash2(b'k')", CLIENTS),
        ("from rabbit_chx import HashRing; HashRing.from_bindings([('q', 1)]).destination_for('k')", CLIENTS),
        ("from rabbit_chx.amqp import ConnectionSettings; ConnectionSettings.from_uri('amqps://h')", CLIENTS),
        ("from rabbit_chx import Topology; Topology.from_toml(Topology().to_toml()).problems", CLIENTS),
        (PLANS_OF_NO_MOVEMENT, CLIENTS),
        ("import rabbit_chx.ui.app", {"aio_pika", "pyarrow", "pyspark"}),  # of docker/cli
        ("import spark_connector.writing.task_writer, spark_connector.draining", ABOVE_PUBLISHING),
        ("import spark_connector.datasource; from rabbit_chx import Publisher", ABOVE_PUBLISHING),
    ],
)
def test_what_is_not_needed_is_not_loaded(code: str, absent: set[str]) -> None:
    assert not loaded_by(code) & absent


@pytest.mark.parametrize(
    "module",
    [
        "rabbit_chx.cli.app",
        "rabbit_chx.testing.containers",
        "rabbit_chx.testing.pytest_plugin",
        "spark_connector",
    ],
)
def test_what_windows_lacks_is_not_needed_at_import(module: str) -> None:
    absent = "import signal\nfor name in ('SIGHUP', 'SIGKILL', 'SIGALRM'): delattr(signal, name)\n"
    absent += (
        "import sys\nsys.modules.update(dict.fromkeys(('fcntl', 'pwd', 'grp', 'resource', 'termios')))\n"
    )
    assert module in loaded_by(f"{absent}import {module}")


def test_no_imports_are_circular() -> None:
    packages = ("rabbit_chx", "spark_connector", "pyspark_rabbitmq")
    graph = grimp.build_graph(*packages, cache_dir=None)
    needs = {module: graph.find_upstream_modules(module) for module in graph.modules}
    assert {module for module in needs if any(module in needs[other] for other in needs[module])} == set()


@pytest.mark.parametrize("package", ["rabbit_chx", *sorted(f"rabbit_chx.{name}" for name in (
    "amqp", "analysis", "broker", "consuming", "publishing", "routing", "streams", "testing", "topology"
))])  # fmt: skip
def test_help_and_star_imports_work_without_optional_packages(package: str) -> None:
    absent = CLIENTS - {"numpy", "pamqp", "pika"} | {"opentelemetry"}
    code = f"""
import sys, inspect, pydoc
sys.modules.update(dict.fromkeys({absent}))
from {package} import *
package = sys.modules[{package!r}]
inspect.getmembers(package)
pydoc.render_doc(package)
assert set(package.__all__) <= set(dir(package))
"""
    assert package in loaded_by(code)


def test_a_misspelled_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'HashRnig'"):
        rabbit_chx.HashRnig  # noqa: B018


def test_every_error_is_exported() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert defined == {name for name in rabbit_chx.__all__ if name.endswith("Error")}


@pytest.mark.parametrize(
    "package",
    ["rabbit_chx", "rabbit_chx.amqp", "rabbit_chx.publishing", "rabbit_chx.testing", "spark_connector"],
)
def test_type_checkers_know_what_is_loaded_late(package: str) -> None:
    """Each late name is imported under ``TYPE_CHECKING`` from the module that it is loaded from."""
    source = (ROOT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    checked = {
        (statement.module, alias.name)
        for block in ast.walk(ast.parse(source))
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module != "pyspark.sql"
        for alias in statement.names
    }
    if ("rabbit_chx.errors", "*") in checked:
        checked.remove(("rabbit_chx.errors", "*"))
        checked |= {("rabbit_chx.errors", name) for name in vars(errors) if name.endswith("Error")}
    module = import_module(package)
    load = getattr(module, "_load", module.__getattr__)
    homes = inspect.getclosurevars(load).nonlocals["homes"]
    assert checked == {(module, name) for name, module in homes.items()}
