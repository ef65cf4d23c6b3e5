"""What the tests of the publishers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

Consumed: TypeAlias = "Callable[[], list[Any]]"


def through(url: str, port: int) -> str:
    """Return the URL with the proxy's port."""
    return url.replace(f":{urlsplit(url).port}", f":{port}")
