"""The version of this package. It stands here only, so that a copy without metadata knows it, too: a clone, or an archive on the path."""

from __future__ import annotations

__version__ = "0.4.0"
