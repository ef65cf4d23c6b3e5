"""`requirements.lock` is what `pyproject.toml` asks for, each by its hashes, and names no place to get it from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "requirements.lock").read_text()
PINS = [Requirement(line) for line in re.findall(r"^([a-z].*?) \\$", TEXT, re.MULTILINE)]


def test_the_lock_file_has_what_the_project_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    for wanted in map(Requirement, [*project["dependencies"], *(name for extra in extras for name in extra)]):
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
