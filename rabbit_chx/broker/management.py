"""The management plugin's HTTP API, as far as it is needed. It follows no redirect, so a password goes
nowhere else.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from rabbit_chx.amqp import Secret
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    BrokerTimeoutError,
    InputError,
    NotFoundError,
    UnreachableError,
)
from rabbit_chx.topology.sequences.steps import ApiRequest, carried_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rabbit_chx.topology.sequences.steps import ApiSequence

__all__ = ["Management"]

_T = TypeVar("_T")
_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
_REFUSALS: dict[int, tuple[type[BrokerRefusedError], str]] = {
    401: (AccessRefusedError, "check user and password, and that the user has the tag management"),
    403: (AccessRefusedError, "check the user's permissions"),
    404: (NotFoundError, "check the name and the vhost"),
    429: (BrokerRefusedError, "too many requests: try again later"),
    500: (BrokerRefusedError, "the management plugin failed: look at the broker's log"),
    503: (BrokerRefusedError, "the management plugin is not ready: try again later"),
    **dict.fromkeys(
        (301, 302, 303, 307, 308),
        (BrokerRefusedError, "this is a redirection, which is not followed: give the URL that it leads to"),
    ),
}
_PIECE = 1 << 16
_ANSWER_TIMES = 6


class Management:
    """Requests to one broker's HTTP API.

    Args:
        url: ``http[s]://user:password@host:port``, with a path prefix where there is one.
        timeout_s: seconds for connecting, and for each answer.

    Raises:
        InputError: the URL cannot be read. The message shows no password.
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if not host or parts.scheme not in _CONNECTIONS:
            raise InputError("this is not a management URL: give http://user:password@host:15672")
        self._connect = _CONNECTIONS[parts.scheme]
        self._host, self._port, self._timeout_s = host, port, timeout_s
        self._prefix = parts.path.rstrip("/")
        user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        self._login = Secret(base64.b64encode(f"{user}:{password}".encode()).decode())
        shown_host = f"[{host}]" if ":" in host else host
        self.masked_url = f"{parts.scheme}://{quote(user)}:***@{shown_host}" + (f":{port}" if port else "")

    def request(
        self, method: str, *path: str, query: Mapping[str, str] | None = None, body: object = None
    ) -> Any:  # noqa: ANN401  # JSON
        """Make one request below ``/api`` and return the decoded answer; None where the answer is empty.

        Args:
            method: GET, PUT, POST or DELETE.
            path: the segments of the path, not yet quoted; the default vhost is ``"/"``.
            query: the parameters behind the question mark.
            body: what to send as JSON; None for no body.

        Raises:
            AccessRefusedError: the broker refuses the user, or the user lacks a permission.
            NotFoundError: there is no such object.
            BrokerRefusedError: the answer is any other than success, or it is not JSON.
            BrokerTimeoutError: the whole answer is not there in time.
            UnreachableError: nothing answers at the address.
        """
        target = f"{self._prefix}/api/" + "/".join(quote(segment, safe="") for segment in path)
        asked = f"{method} {target}"
        if query:
            target += f"?{urlencode(query)}"
        connection = self._connect(self._host, self._port, timeout=self._timeout_s)
        headers = {"Authorization": f"Basic {self._login.reveal()}", "Content-Type": "application/json"}
        try:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            status, content = answer.status, self._read(answer, asked)
        except (http.client.HTTPException, OSError) as cause:
            if isinstance(cause, BrokerTimeoutError):
                raise
            raise UnreachableError(
                f"{self.masked_url}: no answer from the HTTP API to {asked} ({str(cause) or type(cause).__name__}): "
                "check host and port, and that the management plugin is enabled"
            ) from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            kind, remedy = _REFUSALS.get(status, (BrokerRefusedError, "look at the broker's log"))
            raise kind(f"{self.masked_url}: {asked} was answered {status}: {remedy}", reply_code=status)
        try:
            return json.loads(content) if content else None
        except ValueError:
            begin = " ".join(content[:60].decode(errors="replace").split())
            raise BrokerRefusedError(
                f"{self.masked_url}: the answer to {asked} is not JSON, but begins {begin!r}: check that the URL is that of "
                "the management API, and not of a proxy or another service"
            ) from None

    def run(self, sequence: ApiSequence[_T]) -> _T:
        """Carry out a sequence of requests and return what it returns.

        Args:
            sequence: the sequence.

        Raises:
            RabbitChxError: what the sequence raises.
        """
        return carried_out(sequence, self.answer)

    def answer(self, request: ApiRequest) -> Any:  # noqa: ANN401  # JSON
        """Make the request of a sequence and return the decoded answer.

        Args:
            request: the request.

        Raises:
            RabbitChxError: as `request` does.
        """
        return self.request(request.method, *request.path, query=request.query, body=request.body)

    def _read(self, answer: http.client.HTTPResponse, asked: str) -> bytes:
        """Read an answer to its end. The socket's own limit is one for each piece, and there may be many."""
        deadline = time.monotonic() + _ANSWER_TIMES * self._timeout_s
        pieces = []
        while piece := answer.read1(_PIECE):
            pieces.append(piece)
            if time.monotonic() > deadline:
                raise BrokerTimeoutError(
                    f"{self.masked_url}: the answer to {asked} is not complete after {_ANSWER_TIMES * self._timeout_s:g} s: "
                    "look at the load of the broker"
                )
        if answer.length:  # read1 does not notice that the answer is cut off
            raise http.client.IncompleteRead(b"", answer.length)
        return b"".join(pieces)
