"""A test that takes `world` runs by the clock of that world."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stream_group_world import GroupWorld


@pytest.fixture
def world() -> GroupWorld:
    """A group of one stream, `s`."""
    from stream_group_world import GroupWorld

    return GroupWorld(streams=("s",))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test in its world, before `tests/unit/conftest.py` would run it in an event loop of its own."""
    names = pyfuncitem._fixtureinfo.argnames
    if "world" not in names:
        return None
    world: Any = pyfuncitem.funcargs["world"]
    world.run(functools.partial(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names}))
    return True
