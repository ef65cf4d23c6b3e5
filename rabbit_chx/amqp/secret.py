"""A password that does not show itself."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rabbit_chx.errors import InputError

_MASK = "***"
_Given = TypeVar("_Given")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """Holds a password; `repr`, `str` and formatting show ``***`` only.

    Pickling keeps the password, so that a process that works for us can log in. The pickle does not hold it
    in clear text, because logs and tracebacks of others sometimes show pickles. That is not encryption.

    Raises:
        InputError: the value is not text.
    """

    _value: str

    def __post_init__(self) -> None:
        if not isinstance(self._value, str):
            raise InputError(f"a Secret holds text, not {type(self._value).__name__}")

    def __reduce__(self) -> tuple[Callable[[bytes], Secret], tuple[bytes]]:
        return _unpickled, (base64.b85encode(self._value.encode("utf-8", "surrogatepass")),)

    def reveal(self) -> str:
        """Return the password itself, for the moment that it is sent."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret('{_MASK}')"

    def __str__(self) -> str:
        return _MASK

    def __format__(self, spec: str) -> str:
        return format(_MASK, spec)


def _unpickled(covered: bytes) -> Secret:
    return Secret(base64.b85decode(covered).decode("utf-8", "surrogatepass"))


def require_secret(name: str, value: object) -> None:
    """Check that a value is a `Secret`.

    Args:
        name: what it is for.
        value: the value.

    Raises:
        InputError: it is not a Secret.
    """
    if not isinstance(value, Secret):
        raise InputError(f"{name} must be a Secret, so that it is never shown: wrap it as Secret(...)")


def read_secretly(read: Callable[[_Given], _T], given: _Given) -> _T:
    """Return ``read(given)``. Its InputError loses its frames, because error trackers print local variables.

    The caller deletes its own variable, also where this raises.

    Args:
        read: makes a value that masks its password, such as settings of a URL.
        given: what holds a password in clear text.

    Raises:
        InputError: `read` raises it.
    """
    try:
        return read(given)
    except InputError as cause:
        error = cause.with_traceback(None)
    finally:
        del given
    error.__cause__ = error.__context__ = None
    raise error
