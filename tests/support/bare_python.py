"""A Python that has what our packages need, but not our packages."""

from __future__ import annotations

import venv
from pathlib import Path

import pyspark

_SITE_PACKAGES = Path(pyspark.__file__).resolve().parents[1]


def bare_python(folder: Path) -> Path:
    """Make a virtual environment that borrows the installed libraries, and return its interpreter.

    Our packages are installed by a .pth file among those libraries, and a .pth file there is not followed.

    Args:
        folder: where to make it.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{_SITE_PACKAGES}\n")
    return folder / "bin" / "python"
