"""Tests may be coroutine functions: each runs in an event loop of its own. An f-string of our code with a Fix is an error."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from rabbit_chx.fixes import Fix


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def _format_fix(fix: Fix, spec: str) -> str:
    caller = sys._getframe(1).f_globals.get("__name__", "")
    is_ours = caller.startswith(("rabbit_chx", "spark_connector"))
    assert not is_ours or all(isinstance(part, str) for part in fix.parts), (
        f"an f-string of {caller} loses the commands of {fix!r}: make a Fix of its parts"
    )
    return str.__format__(fix, spec)


@pytest.fixture(autouse=True, scope="session")
def _no_fix_in_an_f_string() -> Iterator[None]:
    """Refuse f-strings of our code with a Fix. Other programs may format the text of an error."""
    with patch.object(Fix, "__format__", _format_fix, create=True):
        yield
