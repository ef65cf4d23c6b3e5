"""A management API that fails as a test tells it: slow, cut off, endless, of another shape, redirecting.

It is scripted, because no real plugin does this on demand. What is not told to fail is passed on to a real one.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias
from urllib.parse import urlsplit

from loopback import HOST, LoopbackServer

#: What it sends for a request, piece by piece; then it closes the connection.
Script: TypeAlias = "Callable[[], Iterable[bytes]]"


def page(
    status: str, content: object = b"", *, length: int | None = None, headers: Iterable[str] = ()
) -> Script:
    """Return the script of an answer.

    Args:
        status: the status, such as ``200 OK``.
        content: the body; what is no bytes is written as JSON.
        length: the length that the header tells; None for the true one.
        headers: further lines of the header.
    """
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    told = len(body) if length is None else length
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {told}", "Content-Type: application/json", *headers)
    return lambda: ["\r\n".join((*lines, "", "")).encode(), body]


class ScriptedApi(LoopbackServer):
    """Answers one request of each connection.

    Args:
        real: the URL of the API that gets what is not scripted; None: that is answered 404.

    Attributes:
        scripts: what to send, by the first segment of the path below ``/api``; ``""`` is any.
        requests: the first lines of all requests, with the value of the header Authorization.
    """

    def __init__(self, real: str | None = None) -> None:
        self.scripts: dict[str, Script] = {}
        self.requests: list[tuple[str, str | None]] = []
        self._real = None if real is None else urlsplit(real)
        super().__init__()
        #: How to reach it, without a login.
        self.address = f"{HOST}:{self.port}"
        login = "guest:guest" if self._real is None else f"{self._real.username}:{self._real.password}"
        self.url = f"http://{login}@{self.address}"

    def drip(self, content: bytes, every_s: float) -> Iterator[bytes]:
        """Yield a byte at a time, and then silence, until the test is over."""
        for byte in content:
            yield bytes([byte])
            if self.over.wait(every_s):
                return
        self.over.wait()

    def serve(self, client: socket.socket) -> None:
        """Answer a request."""
        with client.makefile("rb") as reading:
            first = reading.readline().decode().strip()
            lines = (line.decode().strip().partition(": ") for line in iter(reading.readline, b"\r\n"))
            headers = {name.lower(): value for name, _, value in lines}
            self.requests.append((first, headers.get("authorization")))
            body = reading.read(int(headers.get("content-length", 0)))
            method, target, _ = first.split(" ")
            segment = target.partition("/api/")[2].partition("?")[0].split("/")[0]
            script = self.scripts.get(segment, self.scripts.get(""))
            for piece in script() if script else self._passed_on(method, target, body, headers):
                client.sendall(piece)

    def _passed_on(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> Iterable[bytes]:
        if self._real is None:
            return page("404 Not Found", {"error": "Object Not Found", "reason": "Not Found"})()
        real = http.client.HTTPConnection(self._real.hostname or "", self._real.port, timeout=60)
        kept: dict[str, str] = {
            name: headers[name] for name in ("authorization", "content-type") if name in headers
        }
        real.request(method, target, body or None, kept)
        answer = real.getresponse()
        content = answer.read()
        real.close()
        return page(f"{answer.status} {answer.reason}", content)()
