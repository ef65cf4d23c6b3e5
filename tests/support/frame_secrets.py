"""Find a password in what error trackers send: the local variables of the frames of an error, and of those that led to it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

import rabbit_chx
import spark_connector

_PRODUCT = tuple(str(Path(str(package.__file__)).parent) for package in (rabbit_chx, spark_connector))


def locals_with(secret: str, error: BaseException) -> list[str]:
    """Return the local variables of the product's frames whose `repr` has the secret, as ``file:line function: name``."""
    return [
        f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name}: {name}"
        for each in _chain(error)
        for frame, line in traceback.walk_tb(each.__traceback__)
        if frame.f_code.co_filename.startswith(_PRODUCT)
        for name, value in frame.f_locals.items()
        if secret in _text(value)
    ]


def _text(value: object) -> str:
    try:
        return repr(value)
    except AttributeError:  # the constructor has not made all of it
        return repr(vars(value))


def _chain(error: BaseException) -> Iterator[BaseException]:
    todo, seen = [error], set[int]()
    while todo:
        each = todo.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            todo += filter(None, (each.__cause__, each.__context__))
