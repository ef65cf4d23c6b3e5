"""Names of parametrized tests."""

from __future__ import annotations

import re


def name_of(value: object) -> str:
    """The value as `repr` writes it, but for addresses: workers of pytest-xdist have to collect the same names."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
