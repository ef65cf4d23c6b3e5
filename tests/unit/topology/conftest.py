"""Plans count all seeds of small rings. Other tests look at what happens to a seed that nobody asked for before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from few_seeds import few_seeds

from rabbit_chx.routing import jump


@pytest.fixture(autouse=True, scope="module")
def _seed_tables_are_forgotten() -> Iterator[None]:
    yield
    jump.opened.clear()


@pytest.fixture(autouse=True)
def _few_seeds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Plans are counted on a few seeds, but where a test is marked `all_seeds`."""
    with nullcontext() if request.node.get_closest_marker("all_seeds") else few_seeds():
        yield
