"""Rings as the broker's tools print them."""

from __future__ import annotations

#: Names that look like answers of the tools.
HOSTILE = [
    "Exchange does not exist or is of a different type",
    "{error,not_found}",
    "it's 'x'",
    "Ã©",
    "{ring,[]}",
]


def term(
    *entries: tuple[int, str, str], vhost: str = "/", exchange: str = "x", next_bucket: int | None = None
) -> str:
    """Return what the eval expression prints of such a ring."""

    def number(name: str) -> int:
        return int.from_bytes(b"\1" + name.encode())

    size = max((bucket for bucket, _, _ in entries), default=-1) + 1 if next_bucket is None else next_bucket
    shown = ",\n       ".join(f"{{{bucket},{kind},{number(name)}}}" for bucket, kind, name in entries)
    return f"{{ring,{number(vhost)},\n {number(exchange)},{size},\n      [{shown}]}}\n"
