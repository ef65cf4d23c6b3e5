"""The version of this package, as installed."""

from __future__ import annotations

import sys


def _installed_version() -> str:
    from importlib.metadata import distributions

    # Without zip files: each worker of Spark has several on its path, and a search there takes a quarter of a second.
    folders = [entry for entry in sys.path if not entry.endswith(".zip")]
    found = next(iter(distributions(name="rabbit-chx", path=folders)), None)
    return found.version if found else "unknown"  # on an executor that received the code as a zip file


__version__ = _installed_version()
