"""A client of the management plugin's HTTP API. It follows no redirect, so it sends a password only to the configured host.

Every request ends, whatever server answers: its time, the size of the answer and the memory of its objects are bounded.
"""

from __future__ import annotations

import http.client
import io
import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from rabbit_chx import errors
from rabbit_chx.amqp.frames import IF_RIGHT
from rabbit_chx.amqp.settings import ManagementUrl, Secret
from rabbit_chx.broker.live_broker import PLUGIN_FAILED, Shape, shape_fault
from rabbit_chx.connection.failures import WITHOUT_TLS, certificate_error
from rabbit_chx.connection.tokens import log_in_to_api, server_name, tls_context
from rabbit_chx.text import error_text, outline

if TYPE_CHECKING:
    import socket
    import ssl

_NOT_ALLOWED = (
    "check user and password; the user needs a tag, rabbitmqctl set_user_tags USER management (policymaker to change "
    f"policies), and permissions on the vhost, rabbitmqctl set_permissions -p VHOST USER '^$' '^$' '^$' or more; {IF_RIGHT}"
)
#: The API's reason if another tag is required, and that tag.
_TAGS = {"Not administrator user": "administrator", "Not monitor user": "monitoring"}
_NOT_FOUND = 404
_REFUSALS: dict[int, tuple[type[errors.BrokerRefusedError], str]] = {
    400: (errors.BrokerRefusedError, "correct what it names"),
    401: (errors.AccessRefusedError, _NOT_ALLOWED),
    403: (errors.AccessRefusedError, "check the user's permissions"),
    _NOT_FOUND: (
        errors.NotFoundError,
        "check the name and the vhost, and that the user has permissions on the vhost",
    ),
    429: (errors.BrokerRefusedError, "too many requests: try again later"),
    PLUGIN_FAILED: (errors.BrokerRefusedError, "the management plugin failed: look at the broker's log"),
    503: (errors.BrokerRefusedError, "the management plugin is not ready: try again later"),
    **dict.fromkeys(
        (301, 302, 303, 307, 308),
        (
            errors.BrokerRefusedError,
            "this is a redirection, which is not followed: pass the URL that it leads to",
        ),
    ),
}
#: The errors of http.client whose text is what was answered.
_ANSWERED = (http.client.BadStatusLine, http.client.UnknownProtocol)
_PIECE = 1 << 16
_ANSWER_TIMES = 6
_LARGEST = 128 << 20  # bytes of an answer; the bindings of 900,000 queues are fewer
#: Bytes of memory for the text and the objects of an answer: the bindings of 500,000 queues.
_MOST_MEMORY = 500_000_000
#: An object takes at most so many times its bytes in JSON: the smallest, ``{},``, takes 26 times, with its place in a list and its text.
_LARGEST_RATIO = 30
_ASK_FOR_LESS = "ask for less, such as one exchange instead of all, or divide the vhost"
_LONGEST_REASON = 300
_CHECK_URL = "check that the URL is the management API, and not a proxy or another service"


class Management:
    """Requests to one broker's HTTP API.

    Args:
        url: ``http[s]://user:password@host:port``, with an optional path prefix. ``https`` accepts the TLS parameters of an AMQP URI, such
            as ``?cacertfile=ca.pem&certfile=me.pem&keyfile=me.key``; or the result of `ManagementUrl.of`.
        timeout_s: seconds for connecting, and for each piece of an answer; six times as many for the whole answer.

    Raises:
        InputError: the URL is invalid, or the TLS files cannot be used. The message does not contain the password.
    """

    def __init__(self, url: str | ManagementUrl, *, timeout_s: float = 10.0) -> None:
        self._url = ManagementUrl.of(url) if isinstance(url, str) else url
        self._tls_context = None if self._url.tls is None else tls_context(self._url.tls)
        self._timeout_s = timeout_s
        self.masked_url = self._url.masked

    def request(
        self, method: str, *path: str, query: Mapping[str, str] | None = None, body: object = None
    ) -> Any:  # JSON
        """Send a request below ``/api`` and return the decoded answer; None if the answer to a change is empty.

        Args:
            method: GET, PUT, POST or DELETE.
            path: the segments of the path, not yet quoted; the default vhost is ``"/"``.
            query: the query parameters.
            body: the JSON body; None: no body.

        Raises:
            InputError: a segment is ``.`` or ``..``, which no path of a URL can name.
            AccessRefusedError: the broker refuses the user, or the user lacks a permission.
            NotFoundError: the object does not exist.
            BrokerRefusedError: the answer has any other error status, or it is not JSON.
            BrokerTimeoutError: the answer is not complete in time.
            UnreachableError: the address does not answer.
        """
        if unsafe := {".", ".."}.intersection(path):
            raise errors.InputError(
                f"the management API cannot be asked about {min(unsafe)!r}, which is no name in the path of a URL: declare it under another name; "
                "rabbitmqctl can delete it"
            )
        target = f"{self._url.prefix}/api/" + "/".join(quote(segment, safe="") for segment in path)
        request_line = f"{method} {target}"
        if query:
            target += f"?{urlencode(query)}"
        content = self._answer(method, target, request_line, body)
        try:
            if not content and method != "GET":
                return None
            return _parse(content)
        except _TooLargeError:
            raise errors.BrokerRefusedError(
                f"{self.masked_url}: the answer to {request_line} has {len(content):,} bytes, and its objects need more than "
                f"{_MOST_MEMORY // 1_000_000:,} MB of memory: {_ASK_FOR_LESS}"
            ) from None
        except (ValueError, RecursionError):
            raise errors.BrokerRefusedError(
                f"{self.masked_url}: the answer to {request_line} is not JSON, but "
                f"{outline(content.decode(errors='replace'))}: {_CHECK_URL}"
            ) from None

    def _answer(self, method: str, target: str, request_line: str, body: object) -> bytes:
        """Return the content of a successful answer. A GET that the plugin fails to answer is sent twice.

        The plugin fails where an object goes while it collects its statistics; then the second answer is a 404. rabbitmq-server v4.3.6,
        rabbit_mgmt_db.erl, detail_queue_stats/3.
        """

        def send() -> bytes:
            return log_in_to_api(
                self._url,
                self._timeout_s,
                lambda login: self._send(method, target, request_line, body, login),
            )

        try:
            return send()
        except errors.BrokerRefusedError as refusal:
            if method != "GET" or refusal.reply_code != PLUGIN_FAILED:
                raise
        return send()

    def _send(self, method: str, target: str, request_line: str, body: object, login: Secret) -> bytes:
        """Return the content of a successful answer."""
        connection = self._connection()
        try:
            connection.request(method, target, None if body is None else json.dumps(body), _headers(login))
            with connection.getresponse() as answer:
                status = answer.status
                content = self._read(answer, request_line)
        except _OutOfTimeError:
            raise errors.BrokerTimeoutError(
                f"{self.masked_url}: the answer to {request_line} is not complete after {_ANSWER_TIMES * self._timeout_s:g} s: "
                "look at the load of the broker"
            ) from None
        except (http.client.HTTPException, OSError) as cause:
            refused = certificate_error(self.masked_url, cause)
            if refused is not None:
                raise refused from None
            why = error_text(cause)[:_LONGEST_REASON]
            remedy = "check host and port, and that the management plugin is enabled"
            if type(cause) in _ANSWERED:
                if why.startswith("AMQP"):
                    remedy = "this is the port of AMQP; the management API has another one, 15672 by default"
                why = "it does not begin as HTTP does"
            if getattr(cause, "reason", None) in WITHOUT_TLS:
                remedy = "this port answers without TLS: write http:// in place of https://"
            kind = errors.BrokerTimeoutError if isinstance(cause, TimeoutError) else errors.UnreachableError
            raise kind(
                f"{self.masked_url}: no answer from the HTTP API to {request_line} ({why}): {remedy}"
            ) from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise self._refusal(status, content, request_line, login)
        return content

    def _refusal(
        self, status: int, content: bytes, request_line: str, login: Secret
    ) -> errors.BrokerRefusedError:
        """Return the error of an answer."""
        refusal, remedy = _REFUSALS.get(status, (errors.BrokerRefusedError, "look at the broker's log"))
        reason = _reason_in(content, login, self._url.password)
        for words, tag in _TAGS.items():
            if words in reason:
                remedy = f"this needs the tag {tag}, which an administrator gives with rabbitmqctl set_user_tags USER {tag}"
        if "Stats in management" in reason:
            remedy = (
                "the broker collects no metrics: set management_agent.disable_metrics_collector = false, and permit the deprecated feature "
                "management_metrics_collection, in its configuration"
            )
        if "enospc" in reason:  # the operating system's code in the reason of 4.3.6
            remedy = "the disk of the broker is full: free disk there"
        if status == _NOT_FOUND and b'"reason"' not in content:
            # A release without this path answers without content. Another server answers with a page or an object of its own.
            if content:
                refusal = errors.BrokerRefusedError
                remedy = f"the management API does not answer so: {_CHECK_URL}"
            else:
                remedy = f"check the path of the URL, or {remedy.removeprefix('check ')}"
        if refusal is errors.NotFoundError and request_line.endswith("/api/overview"):
            # Each management API has it, for each user. 4.3 answers below another path as if a name were missing.
            remedy = f"{_CHECK_URL}; with its path prefix, if it has one (management.path_prefix)"
        return refusal(
            f"{self.masked_url}: {request_line} was answered {status}{reason}: {remedy}", reply_code=status
        )

    def get(
        self, *path: str, query: Mapping[str, str] | None = None, fields: Mapping[str, Shape] | None = None
    ) -> Any:  # JSON
        """Return the object at a path. `fields` are its fields and their shapes (see `Shape`); None: any answer is accepted.

        Raises:
            RabbitChxError: as in `request`, and for an answer of another shape.
        """
        answer = self.request("GET", *path, query=query)
        if fields is not None:
            self._check_shape(answer, fields, path)
        return answer

    def get_list(
        self, *path: str, query: Mapping[str, str] | None = None, fields: Mapping[str, Shape]
    ) -> list[dict[str, Any]]:
        """Return the list of objects at a path. `fields` are the fields of each object, and their shapes (see `Shape`).

        Raises:
            RabbitChxError: as in `request`, and for an answer of another shape.
        """
        answer: list[dict[str, Any]] = self.request("GET", *path, query=query)
        self._check_shape(answer, [fields], path)
        return answer

    def put(self, *path: str, body: object) -> None:
        """Create or update the object at a path; errors as in `request`."""
        self.request("PUT", *path, body=body)

    def delete(self, *path: str) -> None:
        """Delete the object at a path; errors as in `request`."""
        self.request("DELETE", *path)

    def _check_shape(self, answer: object, shape: Shape, path: tuple[str, ...]) -> None:
        fault = shape_fault(answer, shape)
        if fault is None:
            return
        place, found, kind = fault
        fields = shape[0] if isinstance(shape, list) else shape
        needed = [name for name in fields if not name.endswith("?")] if isinstance(fields, Mapping) else []
        wanted = "a list of objects" if isinstance(shape, list) else "an object"
        wanted += f" with {', '.join(needed)}" if needed else ""
        raise errors.BrokerRefusedError(
            f"{self.masked_url}: the answer to GET {'/'.join(path)} is not {wanted}: {place.lstrip('.') or 'it'} is {found}, not {kind}: "
            f"{_CHECK_URL}"
        )

    def _connection(self) -> http.client.HTTPConnection:
        deadline = time.monotonic() + _ANSWER_TIMES * self._timeout_s

        class Response(http.client.HTTPResponse):
            """A response whose reading ends at the deadline, also that of its headers."""

            def __init__(
                self,
                sock: socket.socket,
                debuglevel: int = 0,
                method: str | None = None,
                url: str | None = None,
            ) -> None:
                super().__init__(sock, debuglevel, method, url)
                self.fp = io.BufferedReader(_ReadUntil(sock, self.fp, deadline))

        connection = self._new_connection()
        connection.response_class = Response
        return connection

    def _new_connection(self) -> http.client.HTTPConnection:
        url = self._url
        if url.tls is None or self._tls_context is None:
            return http.client.HTTPConnection(url.host, url.port, timeout=self._timeout_s)
        name = server_name(url.host, url.tls)
        return _Https(
            url.host, url.port, timeout=self._timeout_s, context=self._tls_context, server_name=name
        )

    def _read(self, answer: http.client.HTTPResponse, request_line: str) -> bytes:
        content = bytearray()
        while piece := answer.read1(_PIECE):
            content += piece
            if len(content) > _LARGEST:
                raise errors.BrokerRefusedError(
                    f"{self.masked_url}: the answer to {request_line} is longer than {_LARGEST:,} bytes: {_CHECK_URL}; or {_ASK_FOR_LESS}"
                )
        if answer.length:  # read1 does not notice that the answer is cut off
            raise http.client.IncompleteRead(b"", answer.length)
        return bytes(content)


class _TooLargeError(Exception):
    """The objects of an answer need too much memory."""


def _parse(content: bytes) -> Any:  # JSON
    """Decode an answer. The memory of its objects is counted while they are made, and ends with an error.

    Raises:
        _TooLargeError: the text and its objects need more memory than an answer may.
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    text = content.decode(json.detect_encoding(content), "surrogatepass")
    left = _MOST_MEMORY - len(content) - sys.getsizeof(text)

    def count(made: dict[str, Any]) -> dict[str, Any]:
        nonlocal left
        left -= sys.getsizeof(made) + sum(map(_bytes_of, made.values()))
        if left < 0:
            raise _TooLargeError
        return made

    if left < 0:
        raise _TooLargeError
    hook = count if len(content) * _LARGEST_RATIO > _MOST_MEMORY else None
    return json.loads(text, parse_constant=_refuse_constant, object_hook=hook)


def _bytes_of(value: object) -> int:
    """Return the bytes of a value of an object; the objects in it are counted by themselves."""
    if isinstance(value, list):
        return sys.getsizeof(value) + sum(_bytes_of(each) for each in value if not isinstance(each, dict))
    return 0 if isinstance(value, dict) else sys.getsizeof(value)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _headers(login: Secret) -> dict[str, str]:
    return {"Authorization": login.reveal(), "Content-Type": "application/json"}


class _Https(http.client.HTTPSConnection):
    """An HTTPS connection with a configurable TLS server name; http.client always sends the host."""

    def __init__(
        self, host: str, port: int | None, *, timeout: float, context: ssl.SSLContext, server_name: str | None
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._given_context = context
        self._server_name = server_name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._given_context.wrap_socket(self.sock, server_hostname=self._server_name)


def _reason_in(content: bytes, login: Secret, password: Secret | None) -> str:
    try:
        reason = str(json.loads(content)["reason"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    # An answer cannot cause an error message with the password.
    secrets = {login.reveal().split()[1]}
    if password is not None and not password.is_token:
        secrets |= {password.reveal()} - {"", "guest"}
    if any(secret in reason for secret in secrets):
        return ""
    return f" ({' '.join(reason.split())[:_LONGEST_REASON]})"


class _OutOfTimeError(Exception):
    """The time for the whole answer is over."""


class _ReadUntil(io.RawIOBase):
    """A socket's input up to a deadline. The socket's own time limit is per piece, and an answer may have many pieces."""

    def __init__(self, sock: socket.socket, file: io.BufferedReader, deadline: float) -> None:
        self._sock = sock
        self._file = file
        self._deadline = deadline
        self._timeout_s = sock.gettimeout() or 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # typeshed's name for buffers is private
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise _OutOfTimeError
        self._sock.settimeout(min(left_s, self._timeout_s))
        try:
            return self._file.raw.readinto(buffer) or 0
        except TimeoutError:
            if time.monotonic() < self._deadline:
                raise
            raise _OutOfTimeError from None

    def close(self) -> None:
        self._file.close()
        super().close()
