"""The wheel that is made from the source distribution alone, installed by pip where no source is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from email import message_from_string
from pathlib import Path

import pytest
from bare_python import bare_python
from command_line import ended
from readme_renderer import markdown

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[3]

IMPORT_ALL = """
import importlib, pkgutil, sys
from importlib.metadata import entry_points, files
names = {"rabbit_chx", "spark_connector", "pyspark_rabbitmq"}
installed = {str(file) for file in files("rabbit-chx")}
assert {path.split("/")[0] for path in installed if path.endswith(".py")} == names
for name in names:
    assert f"{name}/py.typed" in installed
    package = importlib.import_module(name)
    assert package.__file__.startswith(sys.prefix), package.__file__
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        importlib.import_module(module.name)
(plugin,) = (plugin for plugin in entry_points(group="pytest11") if plugin.name == "rabbit_chx")
plugin.load()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a virtual environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), "--target"]
    subprocess.run([*build, "sdist"], cwd=ROOT, check=True, capture_output=True, timeout=120)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    subprocess.run([*build, "wheel"], cwd=source, check=True, capture_output=True, timeout=120)
    shutil.rmtree(source)
    (wheel,) = folder.glob("*.whl")
    python = bare_python(folder / "venv")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True, timeout=120)
    return python.parent


def said(*command: str | Path, folder: Path) -> str:
    done = ended(*command, cwd=folder, PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.extended
def test_every_module_is_there(installed: Path, tmp_path: Path) -> None:
    said(installed / "python", "-I", "-c", IMPORT_ALL, folder=tmp_path)


@pytest.mark.extended
def test_each_page_that_the_code_names_is_in_the_package(installed: Path) -> None:
    (package,) = installed.parent.glob("lib/*/site-packages/rabbit_chx")
    modules = [
        path for name in ("rabbit_chx", "spark_connector") for path in package.with_name(name).rglob("*.py")
    ]
    named = {
        page
        for path in modules
        for page in re.findall(r"(?<![\w/])docs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
    }
    assert {"docs/publish/bulk.md", "docs/spark/write.md"} <= named
    assert [page for page in sorted(named) if not (package / page).is_file()] == []


def test_the_readme_has_no_link_that_is_dead_on_the_package_index(installed: Path) -> None:
    (metadata,) = installed.parent.glob("lib/*/site-packages/rabbit_chx-*.dist-info/METADATA")
    readme = message_from_string(metadata.read_text(encoding="utf-8"))
    assert readme["Description-Content-Type"] == "text/markdown"
    shown = markdown.render(str(readme.get_payload()))
    assert shown is not None
    assert "<h1" in shown
    assert "<table" in shown  # the doors of the readers
    links = re.findall(r'(?:href|src|srcset)="([^"]*)"', shown)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


@pytest.mark.parametrize("program", [("rabbit-chx",), ("python", "-m", "rabbit_chx")])
def test_the_installed_command_line_routes_a_key(
    installed: Path, tmp_path: Path, program: tuple[str, ...]
) -> None:
    answer = said(installed / program[0], *program[1:], "route", "q1=1", "k", "-o", "json", folder=tmp_path)
    assert '"destination": "q1"' in answer
