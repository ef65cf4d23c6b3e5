"""What protects the pages: methods, the names of the host, the token, and the headers of each answer."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_COOKIE = "rabbit-chx-token"
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'"
    "; connect-src 'self'; base-uri 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guards:
    """Refuses requests before an application sees them.

    A page of another site can make the browser ask for an address whose name then means this host (DNS rebinding): the name in the header
    Host must be one of this server.

    Args:
        app: the application.
        hosts: the names and addresses of the server; None: any address, and the name of the machine.
        token: what each request must have as a cookie; None for none.
        allowed: further names, such as that of a proxy.
        open_paths: addresses that need no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str] | None,
        token: str | None = None,
        allowed: Iterable[str] = (),
        open_paths: Iterable[str] = (),
    ) -> None:
        self._app = app
        self._open_paths = frozenset(open_paths)
        self._allowed = {_canonical(host) for host in allowed}
        self._hosts = None if hosts is None else {_canonical(host) for host in hosts}
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._refuse(Request(scope)) or self._app

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await answer(scope, receive, with_headers)

    def _refuse(self, request: Request) -> Response | None:
        if request.method not in ("GET", "HEAD"):
            text = f"{request.method} is not a method of these pages, which only read: use GET\n"
            return PlainTextResponse(text, 405, {"Allow": "GET, HEAD"})
        host = host_of(request.headers)
        if not self._is_here(host):
            return PlainTextResponse(
                f"{host!r:.80} is not a name of this server: open the address that was printed at the start; if it is the name of a proxy, "
                "start ui with --allowed-host and this name\n",
                421,
            )
        if self._token is None or request.url.path in self._open_paths:
            return None
        return self._refuse_token(request, self._token)

    def _is_here(self, host: str) -> bool:
        if host in self._allowed:
            return True
        if self._hosts is not None:
            return host in self._hosts
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return host in {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
        return True

    def _refuse_token(self, request: Request, token: str) -> Response | None:
        given = request.query_params.get("token")
        if given is None:
            cookie = request.cookies.get(_COOKIE, "")
            if secrets.compare_digest(cookie.encode(), token.encode()):
                return None
            text = "the token is missing or wrong: open the address that was printed at the start\n"
            return PlainTextResponse(text, 403)
        if not secrets.compare_digest(given.encode(), token.encode()):
            return PlainTextResponse(
                "the token is wrong: open the address that was printed at the start\n", 403
            )
        rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        # The address without the token is what the history of the browser and a colleague see.
        answer = RedirectResponse(f"{request.url.path}?{urlencode(rest)}".rstrip("?"), 303)
        # With "strict" a browser does not send the cookie after a link of another site, such as one in a mail. Pages only read.
        answer.set_cookie(_COOKIE, token, httponly=True, samesite="lax")
        return answer


def host_of(headers: Headers) -> str:
    """Return the host that a request names, without its port, in small letters."""
    text = headers.get("host", "").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return _canonical(text.partition(":")[0])


def _canonical(host: str) -> str:
    """Return the name of a host in small letters; a name with a dot at its end is the same name."""
    return host.lower().removesuffix(".")
