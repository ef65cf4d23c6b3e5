"""Plans count all seeds of small rings. Other tests look at what happens to a seed that nobody asked for before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rabbit_chx.routing import seed_tables


@pytest.fixture(autouse=True, scope="module")
def _seed_tables_are_forgotten() -> Iterator[None]:
    yield
    seed_tables.opened.clear()
