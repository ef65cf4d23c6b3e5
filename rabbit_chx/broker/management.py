"""The management plugin's HTTP API, as far as it is needed. It follows no redirect, so a password goes
nowhere else.
"""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from rabbit_chx.amqp import Secret
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    InputError,
    NotFoundError,
    UnreachableError,
)

__all__ = ["Management"]

_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
_REFUSALS: dict[int, tuple[type[BrokerRefusedError], str]] = {
    401: (AccessRefusedError, "check user and password, and that the user has the tag management"),
    403: (AccessRefusedError, "check the user's permissions"),
    404: (NotFoundError, "check the name and the vhost"),
}


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

    def request(self, method: str, *path: str, body: object = None) -> Any:  # noqa: ANN401  # JSON
        """Make one request below ``/api`` and return the decoded answer; None where the answer is empty.

        Args:
            method: GET, PUT, POST or DELETE.
            path: the segments of the path, not yet quoted; the default vhost is ``"/"``.
            body: what to send as JSON; None for no body.

        Raises:
            AccessRefusedError: the broker refuses the user, or the user lacks a permission.
            NotFoundError: there is no such object.
            BrokerRefusedError: the answer is any other than success.
            UnreachableError: nothing answers at the address in time.
        """
        target = f"{self._prefix}/api/" + "/".join(quote(segment, safe="") for segment in path)
        connection = self._connect(self._host, self._port, timeout=self._timeout_s)
        headers = {"Authorization": f"Basic {self._login.reveal()}", "Content-Type": "application/json"}
        try:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except (http.client.HTTPException, OSError) as cause:
            raise UnreachableError(
                f"{self.masked_url}: no answer from the HTTP API ({str(cause) or type(cause).__name__}): "
                "check host and port, and that the management plugin is enabled"
            ) from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            kind, remedy = _REFUSALS.get(status, (BrokerRefusedError, "look at the broker's log"))
            raise kind(
                f"{self.masked_url}: {method} {target} was answered {status}: {remedy}", reply_code=status
            )
        return json.loads(content) if content else None
