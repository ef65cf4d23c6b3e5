"""Threads of which one runs at a time, an event loop among them, and a clock that goes on when all of them wait.

Which thread goes on is drawn from a seed, so a run can be repeated. It plays the modules `threading`, `queue` and `time` for the modules
that a test gives it. Nothing waits in real time.
"""

from __future__ import annotations

import asyncio
import math
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

#: The beginning of the time, in seconds since 1970.
EPOCH_S = 1_700_000_000.0
_MOST_ROUNDS = 20_000
_MOST_S = 20_000.0
#: A thread that connects gives up after a minute, also that of a member that was killed.
_LAST_S = 90.0


class _OverError(BaseException):
    """The run is over: it ends what still waits. It is no Exception, so that the product does not catch it."""


class _Waiter:
    """A thread that waits.

    Attributes:
        is_ready: whether it may go on.
        until: when it goes on in any case.
    """

    def __init__(self) -> None:
        self.turn = threading.Lock()  # released when it may go on
        self.turn.acquire()
        self.is_ready: Callable[[], object] = lambda: True
        self.until = math.inf


class Threads:
    """The threads of a run, and their clock.

    Args:
        seed: what all chance comes from.

    Attributes:
        now: seconds.
        chance: the random numbers of the run.
        names: the names of the threads that have not ended.
    """

    def __init__(self, seed: int = 0) -> None:
        self.now = 1_000.0
        self.chance = random.Random(seed)  # noqa: S311  # the same run each time
        self.names: list[str] = []
        self._running = _Waiter()  # the thread of the test
        self._waiters = [self._running]
        self._idents = {threading.get_ident()}
        self._rounds = 0  # since the time last went on
        self._is_over = False
        self._failure: Exception | None = None

    # -- the module time

    def monotonic(self) -> float:
        """Return the time."""
        return self.now if self._is_mine() else time.monotonic()

    def time(self) -> float:
        """Return the time since 1970."""
        return EPOCH_S + self.now if self._is_mine() else time.time()

    def sleep(self, seconds: float) -> None:
        """Let the others run for some seconds."""
        self.wait(lambda: False, seconds)

    # -- waits

    def wait(self, is_ready: Callable[[], object], seconds: float | None = None) -> bool:
        """Let the others run until something holds, for at most some seconds; return whether it holds."""
        if not self._is_mine():
            end = time.monotonic() + (math.inf if seconds is None else seconds)
            while not is_ready() and time.monotonic() < end:
                time.sleep(0.01)
            return bool(is_ready())
        me = self._running
        me.is_ready, me.until = is_ready, math.inf if seconds is None else self.now + max(seconds, 0.0)
        self._hand_over(me)
        return bool(is_ready())

    def _is_mine(self) -> bool:
        """Whether the calling thread is of this run: one that an earlier test left behind uses the real clock."""
        return threading.get_ident() in self._idents

    def _hand_over(self, me: _Waiter) -> None:
        self._running = self._next()
        if self._running is not me:
            self._running.turn.release()
            me.turn.acquire()
        if self._is_over:
            raise self._failure if self._failure and me is self._waiters[0] else _OverError

    def _next(self) -> _Waiter:
        """Return who goes on. If that cannot be said, the run is over, and the thread of the test raises the error."""
        try:
            return self._waiters[-1 if self._failure is None else 0] if self._is_over else self._choose()
        except Exception as error:  # noqa: BLE001
            self._is_over, self._failure = True, error
            return self._waiters[0]

    def _choose(self) -> _Waiter:
        while True:
            self._rounds += 1
            assert self._rounds < _MOST_ROUNDS, f"it goes round and round at {self.now:.3f} s"
            ready = [waiter for waiter in self._waiters if waiter.until <= self.now or waiter.is_ready()]
            if ready:
                return self.chance.choice(ready)
            then = min(waiter.until for waiter in self._waiters)
            assert then < _MOST_S, "all wait for nothing, or it goes on and on"
            self.now, self._rounds = then, 0

    def join(self) -> None:
        """Wait until all other threads have ended."""
        self.wait(lambda: not self.names)

    # -- the modules threading and queue

    def start(self, target: Callable[[], object]) -> None:
        """Start a thread; an error in it is that of the run."""

        def run() -> None:
            try:
                target()
            except Exception as error:  # noqa: BLE001
                self._is_over, self._failure = True, error

        self._start(run, (), "thread")

    def _start(self, target: Callable[..., object], args: Sequence[object], name: str) -> None:
        waiter = _Waiter()
        self._waiters.append(waiter)
        self.names.append(name)

        def run() -> None:
            self._idents.add(threading.get_ident())
            waiter.turn.acquire()
            with suppress(_OverError):
                if not self._is_over:
                    target(*args)
            self._waiters.remove(waiter)
            self.names.remove(name)
            self._idents.remove(threading.get_ident())
            self._running = self._next()
            self._running.turn.release()

        threading.Thread(target=run, daemon=True).start()

    @property
    def modules(self) -> dict[str, Any]:
        """The modules that it plays, by the names under which the product imports them."""
        threads = SimpleNamespace(
            Thread=lambda target, name="thread", daemon=True, args=(): SimpleNamespace(  # noqa: ARG005
                start=lambda: self._start(target, args, name)
            ),
            Event=lambda: _Event(self),
            Lock=lambda: _Lock(self),
        )
        queues = SimpleNamespace(SimpleQueue=lambda: _Queue(self), Empty=queue.Empty)
        return {"time": self, "threading": threads, "queues": queues, "jitter": self.chance.random}

    @contextmanager
    def playing(self, *modules: Any) -> Iterator[None]:
        """Play what these modules import, and at the end let each thread end."""
        with pytest.MonkeyPatch.context() as patch:
            for module in modules:
                for name, played in self.modules.items():
                    if hasattr(module, name):
                        patch.setattr(module, name, played)
            try:
                yield
                self.wait(lambda: not self.names, _LAST_S)
                assert not self.names, f"threads do not end: {self.names}"
            finally:
                self._end()

    def _end(self) -> None:
        """End the threads that are left, one after the other; the thread of the test is the last."""
        me, self._is_over, self._failure = self._running, True, None
        while len(self._waiters) > 1:
            with suppress(_OverError):
                self._hand_over(me)

    def run(self, story: Callable[[], Any]) -> Any:
        """Run a coroutine function in an event loop of this clock."""
        with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(story())


class _Event(threading.Event):
    def __init__(self, threads: Threads) -> None:
        super().__init__()
        self._threads = threads

    def wait(self, timeout: float | None = None) -> bool:
        return self._threads.wait(self.is_set, timeout)


class _Lock:
    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._is_held = False

    def __enter__(self) -> None:
        self._threads.wait(lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False


class _Queue:
    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._items: deque[Any] = deque()

    def put(self, item: object) -> None:
        self._items.append(item)

    def get(self, timeout: float | None = None) -> Any:
        if not self._threads.wait(lambda: self._items, timeout):
            raise queue.Empty
        return self._items.popleft()


class _Loop(asyncio.BaseEventLoop):
    """An event loop in one of the threads."""

    def __init__(self, threads: Threads) -> None:
        super().__init__()
        self._threads = threads
        self._selector = self
        self._ready: Any

    def time(self) -> float:
        return self._threads.now

    def select(self, timeout: float | None) -> list[object]:
        self._threads.wait(lambda: self._ready, timeout)
        return []

    def _process_events(self, event_list: list[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
