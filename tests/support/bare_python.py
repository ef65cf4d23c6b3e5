"""A Python that has what our packages need, but not our packages."""

from __future__ import annotations

import venv
from pathlib import Path

import pyspark

_SITE_PACKAGES = Path(pyspark.__file__).resolve().parents[1]
_OURS = ("rabbit_chx", "spark_connector", "pyspark_rabbitmq")


def bare_python(folder: Path) -> Path:
    """Make a virtual environment that borrows the installed libraries, and return its interpreter.

    An editable installation of ours is a .pth file among those libraries, and a folder with the documents.

    Args:
        folder: where to make it.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for library in _SITE_PACKAGES.iterdir():
        if library.suffix != ".pth" and not library.name.startswith(_OURS):
            (packages / library.name).symlink_to(library)
    return folder / "bin" / "python"
