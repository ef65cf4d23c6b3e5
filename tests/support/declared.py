"""What the tests of declared rings share."""

from __future__ import annotations

from urllib.parse import quote

from rabbit_chx.routing import Destination

BINDINGS: list[tuple[Destination, int | str]] = [("q3", 2), ("q1", "10"), ("q2", 1)]


def with_login(url: str, username: str, password: str) -> str:
    """Return the URL with another user name and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{quote(username, safe='')}:{quote(password, safe='')}@{rest.rpartition('@')[2]}"
