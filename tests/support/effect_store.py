"""A store that handlers write to. It refuses an effect with a lower generation than it has seen of the queue."""

from __future__ import annotations

import asyncio
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_TAKEN = b"taken\n"
_REFUSED = b"refused\n"


class RefusedEffectError(Exception):
    """The store has seen a higher generation of this queue."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a handler wrote.

    Attributes:
        at: when it came, in seconds of the monotonic clock.
        queue: the queue of the message.
        number: the number of the message.
        member: who handled it.
        generation: that of the message.
    """

    at: float
    queue: str
    number: int
    member: str
    generation: int


@dataclass
class EffectStore:
    """All effects, in the order in which they came.

    Attributes:
        path: the socket that it serves.
        fenced: whether it refuses a lower generation.
        taken: the effects that it took.
        refused: the effects that it refused.
    """

    path: Path
    fenced: bool = True
    taken: list[Effect] = field(default_factory=list)
    refused: list[Effect] = field(default_factory=list)
    _seen: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def store(self, queue: str, number: int, member: str, generation: int) -> bool:
        """Take an effect, or refuse it; return whether it is taken."""
        with self._lock:
            effect = Effect(time.monotonic(), queue, number, member, generation)
            if self.fenced and generation < self._seen.get(queue, -1):
                self.refused.append(effect)
                return False
            self._seen[queue] = generation
            self.taken.append(effect)
            return True


@contextmanager
def effect_store(*, fenced: bool = True) -> Iterator[EffectStore]:
    """Serve a store for a block."""
    with tempfile.TemporaryDirectory() as folder:  # a short path: that of a socket has 107 bytes at most
        store = EffectStore(Path(folder) / "store", fenced)

        class Answer(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                words = self.rfile.readline().decode().split()
                if words:  # else the handler was cancelled before it wrote
                    queue, number, member, generation = words
                    is_taken = store.store(queue, int(number), member, int(generation))
                    self.wfile.write(_TAKEN if is_taken else _REFUSED)

        with _Server(str(store.path), Answer) as server:
            serving = threading.Thread(target=server.serve_forever, args=(0.05,))
            serving.start()
            try:
                yield store
            finally:
                server.shutdown()
                serving.join()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a member that is killed or cancelled ends its line."""


async def store_effect(path: str, queue: str, number: int, member: str, generation: int) -> None:
    """Write an effect.

    Raises:
        RefusedEffectError: the store has seen a higher generation.
    """
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(f"{queue} {number} {member} {generation}\n".encode())
        answer = await reader.readline()
    finally:
        writer.close()
    if answer != _TAKEN:
        raise RefusedEffectError(f"{queue}: a higher generation than {generation} was seen")
