"""The version of the installed package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rabbit-chx")
except PackageNotFoundError:  # on an executor that received the code as a zip file
    __version__ = "unknown"
