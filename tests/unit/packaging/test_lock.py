"""`requirements.lock` is what `pyproject.toml` asks for, each by its hashes, and names no place to get it from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEXT = (ROOT / "requirements.lock").read_text()
PINS = [Requirement(line) for line in re.findall(r"^([a-z].*?) \\$", TEXT, re.MULTILINE)]


def test_the_lock_file_has_what_the_project_requires() -> None:
    extras = PROJECT["optional-dependencies"].values()
    for wanted in map(Requirement, [*PROJECT["dependencies"], *(name for extra in extras for name in extra)]):
        pinned = [pin for pin in PINS if canonicalize_name(pin.name) == canonicalize_name(wanted.name)]
        assert pinned, f"{wanted}: make lock"
        for pin in pinned:
            (version,) = pin.specifier
            assert (version.operator, wanted.specifier.contains(version.version)) == ("==", True), (
                f"{pin}: make lock"
            )


def test_each_pin_has_hashes_and_no_address() -> None:
    parts = re.split(r"^[a-z].*?$", TEXT, flags=re.MULTILINE)[1:]
    assert len(parts) == len(PINS)
    assert all("--hash=sha256:" in part for part in parts)
    assert "://" not in TEXT


def test_a_page_installs_the_pandas_that_the_project_asks_for() -> None:
    """PySpark 4.3 does not support pandas 3."""
    lines = [line for page in ROOT.glob("docs/**/*.md") for line in page.read_text().splitlines()]
    installs = [line for line in lines if "pip install" in line and "pandas" in line]
    wanted = [one for one in PROJECT["optional-dependencies"]["spark"] if "pandas" in one]
    quoted = [re.findall(r"'(pandas[^']*)'", line) for line in installs]
    for named in [*wanted, *(names[0] if names else "pandas" for names in quoted)]:
        assert not Requirement(named).specifier.contains("3.0.0"), named
    assert wanted
    assert installs
