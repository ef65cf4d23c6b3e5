"""Reject unsafe use of an object with a connection: two threads at once, another process or event loop, pickling."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, NoReturn, ParamSpec, TypeVar

from rabbit_chx.errors import InputError

_S = TypeVar("_S", bound="Guarded")
_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Seconds for which the finalizer of an object may wait for the broker. It interrupts any thread, also that of an event loop.
FINALIZER_S = 0.2


class UsageGuard:
    """The process, the event loop and, during a call, the thread that may use an object.

    Attributes:
        name: the object, for errors.
        in_use: the lock that a thread holds during a call.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_use = threading.RLock()  # a callback or a signal handler may call again in the same thread
        self._process = os.getpid()
        self._loop: object = None

    @property
    def is_this_process(self) -> bool:
        """True if this process opened the object. A forked child shares the socket and must not write to it."""
        return os.getpid() == self._process

    def check(self, loop: object = None) -> None:
        """Raise an InputError after a fork, or for another event loop than the first."""
        if not self.is_this_process:
            raise InputError(
                f"{self.name} was opened by process {self._process}, and a forked process must not use its connection: open one in "
                "each process, after the fork"
            )
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise InputError(
                f"{self.name} belongs to another event loop: open and close it within one event loop, such as one asyncio.run()"
            )

    def check_in_loop(self) -> None:
        """Raise as `check`, for the running event loop. After a fork none runs, also within a coroutine."""
        from asyncio import get_running_loop  # an executor of Spark does not need it

        self.check(get_running_loop() if self.is_this_process else None)


class Guarded:
    """Base of objects that cannot be pickled and whose calls a `UsageGuard` guards."""

    _guard: UsageGuard

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._guard.name} cannot be pickled or copied, because it has a connection: open one in each process or task (in Spark: "
            "spark_connector.batch_publisher)"
        )


def one_thread(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Make a method raise an InputError during a call by another thread, and after a fork."""

    @wraps(method)
    def guarded(self: _S, /, *given: _P.args, **named: _P.kwargs) -> _T:
        guard = self._guard
        guard.check()
        if not guard.in_use.acquire(blocking=False):
            raise InputError(
                f"{guard.name} is in a call of another thread: open one in each thread, or guard it with a lock"
            )
        try:
            return method(self, *given, **named)
        finally:
            guard.in_use.release()

    return guarded
