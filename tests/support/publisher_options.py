"""Arguments of publishers as one dict of single options, such as a scenario draws and stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rabbit_chx.options import options_of
from rabbit_chx.publishing.options import Limits, Retries


def grouped(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of a publisher: the fields of `Limits` and `Retries` are gathered in such values."""
    rest = dict(given)
    for name, kind in (("limits", Limits), ("retries", Retries)):
        values = {option: rest.pop(option) for option in options_of(kind) if option in rest}
        if values:
            rest[name] = kind(**values)
    return rest
