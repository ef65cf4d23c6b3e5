"""The application: each address is a page, which reads the shared state of the broker."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from rabbit_chx import errors
from rabbit_chx.analysis.findings import moment_text
from rabbit_chx.checking.check import TopologyCheck, check
from rabbit_chx.checking.check_report import CheckReport
from rabbit_chx.cli.command import as_printed, say, with_own_options
from rabbit_chx.cli.inputs import VariableOptions, file_name, read_topology
from rabbit_chx.cli.plan import LivePlan, Permissions, report_plan
from rabbit_chx.cli.show import GroupOptions, consumers_report
from rabbit_chx.rendering.document import Document, Line
from rabbit_chx.rendering.output import TEMPLATES, body_of, environment, metrics_text
from rabbit_chx.text import command_text
from rabbit_chx.ui.pages import (
    Page,
    Question,
    consumers_choices,
    exchange_links,
    exchange_page,
    findings_page,
    index_page,
    summary_of_findings,
)
from rabbit_chx.ui.state import BrokerState, Seen, SharedValue, read_state, tell_crash

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from rabbit_chx.cli.broker_options import BrokerAddresses

# -- What protects the pages: methods, the names of the host, the token, and the headers of each answer

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


_PACKAGE = "rabbit_chx.ui"
_STATIC_FILES = files(_PACKAGE) / "static"
#: The address of the metrics for Prometheus.
METRICS = "/metrics"
_STATIC = {
    "style.css": (TEMPLATES / "style.css", "text/css"),
    "ui.css": (_STATIC_FILES / "ui.css", "text/css"),
    "refresh.js": (_STATIC_FILES / "refresh.js", "text/javascript"),
}
#: The most groups whose consumers are kept at a time.
_MOST_GROUPS = 20


class Pages:
    """The pages of a broker, and of a topology file if there is one.

    Args:
        at: the broker.
        file: the topology file; None for none.
        variables: the values of its variables.
        every_s: the least time in seconds between two readings of the broker.
    """

    def __init__(
        self, at: BrokerAddresses, file: str | None, variables: VariableOptions, every_s: float
    ) -> None:
        self._at = at
        self._file = file
        self._variables = variables
        self._every_s = every_s
        self._state = SharedValue(lambda: read_state(at), every_s)
        self._planned = SharedValue(self._read_plan, every_s, first_s=60)  # it counts all seeds
        self._groups: dict[tuple[str, str], SharedValue[Document]] = {}

    def app(
        self,
        hosts: Iterable[str] | None,
        token: str | None,
        allowed: Iterable[str] = (),
        open_paths: Iterable[str] = (),
    ) -> ASGIApp:
        """Return the application behind its guards; see `Guards`."""
        pages: dict[str, Callable[[BrokerState, Request], Page]] = {
            "/": lambda state, _: index_page(state),
            "/exchange": self._exchange,
            "/exchange/{name:path}": self._exchange,
            "/findings": self._findings,
            "/consumers": self._consumers,
            "/plan": self._plan,
        }
        routes = [Route(path, self._endpoint(page), methods=["GET"]) for path, page in pages.items()]
        routes.append(Route("/static/{name}", _static, methods=["GET"]))
        routes.append(Route(METRICS, self._metrics, methods=["GET"]))
        handlers = {HTTPException: self._on_http_error}
        served = Starlette(routes=routes, exception_handlers=handlers)
        return Guards(served, hosts, token, allowed, open_paths)

    # -- pages

    def _exchange(self, state: BrokerState, request: Request) -> Page:
        query = request.query_params
        name = request.path_params.get("name") or query.get("name", "")
        asked = Question(
            [key for key in query.getlist("key") if key],
            query.get("key_type", ""),
            [text for text in query.getlist("add") if text],
            [text for text in query.getlist("remove") if text],
            query.get("to_release", ""),
        )
        vhost = query.get("vhost", self._at.settings.vhost)
        try:
            return exchange_page(state, vhost, name, asked)
        except errors.InputError as error:
            if query.get("format") == "json":
                raise
            page = exchange_page(state, vhost, name, Question())
            problem = with_own_options(str(error))
            return replace(page, status=400, values={**page.values, "asked": asked, "problem": problem})

    def _findings(self, state: BrokerState, request: Request) -> Page:
        query = request.query_params
        return findings_page(
            state, query.get("vhost"), query.get("exchange"), query.getlist("kind"), self._file
        )

    def _consumers(self, state: BrokerState, request: Request) -> Page:
        query = request.query_params
        values = {"choices": consumers_choices(state)}
        exchange = query.get("exchange")
        vhost = query.get("vhost", self._at.settings.vhost)
        if exchange is None:
            lines = [] if values["choices"] else [Line("No queue of an exchange that hashes has consumers.")]
            title = "Consumers: choose an exchange" if values["choices"] else "Consumers"
            return Page(title, Document("", lines), values=values)
        if state.vhost(vhost).topology.exchange(exchange) is None:
            raise errors.NotFoundError(
                f"there is no exchange {exchange!r:.80} in vhost {vhost!r:.80}", exchange=exchange
            )
        return Page(f"Consumers of {exchange}", _value_of(self._group(vhost, exchange)), values=values)

    def _group(self, vhost: str, exchange: str) -> SharedValue[Document]:
        found = self._groups.pop((vhost, exchange), None)
        if found is None:
            at = self._at.in_vhost(vhost)
            found = SharedValue(
                lambda: consumers_report(at, [exchange], GroupOptions(consumers=True)), self._every_s
            )
        self._groups[vhost, exchange] = found  # the last one that was looked at is the last to go
        while len(self._groups) > _MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
        return found

    def _plan(self, _: BrokerState, __: Request) -> Page:
        if self._file is None:
            raise errors.InputError(
                f"no file is given: start with {command_text('ui', '--file', 'topology.toml')}"
            )
        return Page(f"Plan of {self._file}", _value_of(self._planned))

    def _read_plan(self) -> Document:
        assert self._file is not None
        vhost = self._at.settings.vhost
        given = read_topology(self._file, vhost, variables=self._variables, is_compared=True)
        with self._at.broker() as opened:
            live = LivePlan.read(opened, given, vhost)
        return report_plan(live, self._file, Permissions(allow=()))[1]

    # -- metrics

    async def _metrics(self, request: Request) -> Response:
        try:
            return await run_in_threadpool(self._read_metrics)
        except Exception as error:  # noqa: BLE001  # the server would log its text, which may have a password
            return self._problem(request, tell_crash(error), 500)

    def _read_metrics(self) -> Response:
        """Answer with the metrics of ``check --output prometheus``: also those of a check that failed, whose error is on stderr."""
        seen = self._state.look()
        if seen.value is None or seen.error:
            say(seen.error)
            report = CheckReport(self._at.address, {self._at.settings.vhost: None}, (), time.time())
            return _exposition(report)
        try:
            checks = self._checks(seen.value)
        except errors.RabbitChxError as error:
            say(str(error))
            checks = dict.fromkeys(seen.value.vhosts)
        name = None if self._file is None else file_name(self._file)
        return _exposition(CheckReport(self._at.address, checks, (), seen.value.time_s, name))

    def _checks(self, state: BrokerState) -> dict[str, TopologyCheck | None]:
        """Return the check of each vhost; that of the broker's URL is compared with the file, also if it has more exchanges than the file."""
        checks: dict[str, TopologyCheck | None] = {name: vhost.check for name, vhost in state.vhosts.items()}
        vhost = self._at.settings.vhost
        if self._file is None or vhost not in state.vhosts:
            return checks or {vhost: None}
        wanted = read_topology(self._file, vhost, variables=self._variables, is_compared=True)
        compared = check(state.vhosts[vhost].topology, wanted.topology, file=self._file)
        checks[vhost] = compared.with_others(state.vhosts[vhost].check)
        return checks

    # -- answers

    def _endpoint(self, page: Callable[[BrokerState, Request], Page]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                return await run_in_threadpool(self._answer, page, request)
            except Exception as error:  # noqa: BLE001  # the server would log its text, which may have a password
                return self._problem(request, tell_crash(error), 500)

        return answer

    def _answer(self, page: Callable[[BrokerState, Request], Page], request: Request) -> Response:
        seen = self._state.look()
        is_json = request.query_params.get("format") == "json"
        if seen.value is None or seen.error:
            return self._problem(request, seen.error, 503, seen)
        links = exchange_links(seen.value)
        if request.url.path == "/" and not is_json and len(links) == 1:
            return RedirectResponse(links[0][0])
        try:
            made = page(seen.value, request)
            if is_json:
                return JSONResponse(
                    as_printed(made.document).as_json(), headers={"Age": str(int(seen.age_s()))}
                )
        except errors.RabbitChxError as error:
            return self._problem(request, with_own_options(str(error)), _status_of(error))
        bodies = {
            name: body_of(as_printed(value))
            for name, value in made.values.items()
            if isinstance(value, Document)
        }
        report = bodies.get("report") or body_of(as_printed(made.document))
        query = [(name, value) for name, value in request.query_params.multi_items() if name != "format"]
        checked, checked_look = summary_of_findings(seen.value)
        return self._html(
            request,
            made.template,
            made.status,
            **{**made.values, **bodies, **report},
            title=made.title,
            error="",
            address=self._at.address,
            read_at=moment_text(seen.value.time_s),
            checked=checked,
            checked_look=checked_look,
            json_address=f"?{urlencode([*query, ('format', 'json')])}",
        )

    def _problem(
        self, request: Request, message: str, status: int, last: Seen[BrokerState] | None = None
    ) -> Response:
        """Answer with a sentence; of the last state that was read only the names of the exchanges are shown, with its age."""
        if request.query_params.get("format") == "json":
            return JSONResponse({"error": message}, status)
        named = [] if last is None or last.value is None else exchange_links(last.value)
        title = {503: "Cannot read the broker", 404: "Not found"}.get(status, "Cannot answer")
        age_s = round(last.age_s()) if last and named else None
        shown = {"title": title, "error": message, "age_s": age_s, "choices": named}
        return self._html(request, "base.html", status, **shown, blocks=[], look={})

    def _html(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        links = [("/", "Exchanges"), ("/findings", "Findings"), ("/consumers", "Consumers")]
        links += [("/plan", "Plan")] if self._file is not None else []
        page = environment(_PACKAGE).get_template(template)
        text = page.render(page=request.url.path, links=links, every_s=self._every_s, **values)
        return HTMLResponse(text, status)

    def _on_http_error(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = (
            f"there is no page {request.url.path!r:.80}: see the links above" if status == 404 else str(error)
        )
        return self._problem(request, text, status)


def _value_of(reading: SharedValue[Document]) -> Document:
    """Return a document of now."""
    seen = reading.look()
    if seen.value is None or seen.error:
        raise errors.InputError(seen.error)
    return seen.value


def _exposition(report: CheckReport) -> Response:
    text = metrics_text(report.document().gauges)
    return Response(text, media_type="text/plain; version=0.0.4")


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404)
    path, type_ = _STATIC[name]
    return Response(path.read_bytes(), media_type=type_)


def _status_of(error: errors.RabbitChxError) -> int:
    if isinstance(error, errors.NotFoundError):
        return 404
    if isinstance(error, (errors.InputError, errors.MismatchError)):
        return 400
    return 403 if isinstance(error, errors.BrokerRefusedError) else 503
