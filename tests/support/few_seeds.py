"""A world with fewer seeds, in which a plan is counted in a moment.

A key has one of 2^21 seeds. What the figures of a plan promise holds for any number of them, and a law that is tried on many topologies
needs no more than some thousand. The stored plans and `test_movement.py` count all.
So do the tests on real brokers that print figures, or compare them with messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import pytest

from rabbit_chx.planning import ring_plan
from rabbit_chx.routing import jump
from rabbit_chx.routing.arrays import seeds

_FEW = 1 << 15


@contextmanager
def few_seeds() -> Iterator[None]:
    """Count a few seeds instead of all."""
    with patch.object(seeds, "SEEDS", _FEW), patch.object(ring_plan, "SEEDS", _FEW):
        yield


# -- for a conftest.py


@pytest.fixture(autouse=True, scope="module")
def seed_tables_are_forgotten() -> Iterator[None]:
    """Other tests look at what happens to a seed that nobody asked for before."""
    yield
    jump.opened.clear()


@pytest.fixture(autouse=True)
def plans_count_few_seeds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Plans are counted on a few seeds, but where a test is marked `all_seeds`."""
    with nullcontext() if request.node.get_closest_marker("all_seeds") else few_seeds():
        yield
