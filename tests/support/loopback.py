"""A server on the loopback interface, and a port without one."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

HOST = "127.0.0.1"


class LoopbackServer:
    """Listens from its creation on, and serves each connection in a thread, or one after the other.

    Attributes:
        port: where it listens.
        over: set when it is closed.
    """

    is_serial = False

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.over = threading.Event()
        self._clients: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._listen)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def serve(self, client: socket.socket) -> None:
        """Serve a connection until it ends, which may raise an OSError."""
        raise NotImplementedError

    def cut(self) -> None:
        """Cut all connections."""
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut all connections, and accept no others."""
        self.over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a connection
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def _listen(self) -> None:
        while not self.over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:  # a test leaves no descriptor to the server, either
                time.sleep(0.01)
                continue
            self._clients.append(client)
            if self.is_serial or self.over.is_set():
                self._serve(client)
            else:
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if not self.over.is_set():
                self.serve(client)


@contextlib.contextmanager
def dead_port() -> Iterator[int]:
    """Yield a port where nobody listens. It is held, so that nobody else gets it."""
    with socket.socket() as holder:
        holder.bind((HOST, 0))
        yield int(holder.getsockname()[1])
