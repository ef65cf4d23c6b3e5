"""The package in an archive on the path, as with `spark-submit --py-files`: its version and its files are there, too."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from rabbit_chx import __version__

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the sources, without metadata."""
    path = tmp_path_factory.mktemp("archive") / "sources.zip"
    with zipfile.ZipFile(path, "w") as made:
        for file in (ROOT / "rabbit_chx").rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                made.write(file, file.relative_to(ROOT))
    return path


def run(archive: Path, code: str) -> str:
    """Run a program with the archive on the path, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(archive)},
        cwd=archive.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--version"], f"rabbit-chx {__version__}"),
        (["compare", "a=1,b=1", "--remove", "a", "-o", "html"], "<!doctype html>"),
    ],
)
def test_commands_run_from_an_archive(archive: Path, arguments: list[str], shown: str) -> None:
    code = (
        f"import rabbit_chx, sys\nassert {str(archive)!r} in rabbit_chx.__file__\n"
        f"from rabbit_chx.cli.app import run\nsys.exit(run({arguments!r}))"
    )
    assert run(archive, code).startswith(shown)


def test_the_pages_of_the_browser_are_in_an_archive(archive: Path) -> None:
    code = (
        "from rabbit_chx.rendering.output import environment\nfrom rabbit_chx.ui.app import _PACKAGE, _STATIC\n"
        "assert environment(_PACKAGE).get_template('base.html')\n"
        "print(min(len(path.read_bytes()) for path, _ in _STATIC.values()))"
    )
    assert int(run(archive, code)) > 0


def test_the_version_stands_in_one_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "rabbit_chx/version.py"
