"""The application: each address is a page, which reads the shared state of the broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from rabbit_chx.analysis.wording import moment_text
from rabbit_chx.checking.check import TopologyCheck, check
from rabbit_chx.checking.check_report import CheckReport
from rabbit_chx.cli.applying import Permissions
from rabbit_chx.cli.command import say
from rabbit_chx.cli.inputs import VariableOptions, file_name, read_topology
from rabbit_chx.cli.live_plan import LivePlan
from rabbit_chx.cli.plan import report_plan
from rabbit_chx.cli.printed import as_printed, with_own_options
from rabbit_chx.cli.show_consumers import consumers_report
from rabbit_chx.cli.stream_options import GroupOptions
from rabbit_chx.command_texts import command_text
from rabbit_chx.errors import BrokerRefusedError, InputError, MismatchError, NotFoundError, RabbitChxError
from rabbit_chx.rendering.document import Document, Line
from rabbit_chx.rendering.html import TEMPLATES, body_of, environment
from rabbit_chx.rendering.output import metrics_text
from rabbit_chx.ui.guards import Guards
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
from rabbit_chx.ui.shared_reading import Seen, SharedReading, tell_crash
from rabbit_chx.ui.state import BrokerState, read_state

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from rabbit_chx.cli.broker_options import BrokerAddresses

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
        self._state = SharedReading(lambda: read_state(at), every_s)
        self._planned = SharedReading(self._read_plan, every_s, first_s=60)  # it counts all seeds
        self._groups: dict[tuple[str, str], SharedReading[Document]] = {}

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
        except InputError as error:
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
            raise NotFoundError(
                f"there is no exchange {exchange!r:.80} in vhost {vhost!r:.80}", exchange=exchange
            )
        return Page(f"Consumers of {exchange}", _value_of(self._group(vhost, exchange)), values=values)

    def _group(self, vhost: str, exchange: str) -> SharedReading[Document]:
        found = self._groups.pop((vhost, exchange), None)
        if found is None:
            at = self._at.in_vhost(vhost)
            found = SharedReading(
                lambda: consumers_report(at, [exchange], GroupOptions(consumers=True)), self._every_s
            )
        self._groups[vhost, exchange] = found  # the last one that was looked at is the last to go
        while len(self._groups) > _MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
        return found

    def _plan(self, _: BrokerState, __: Request) -> Page:
        if self._file is None:
            raise InputError(f"no file is given: start with {command_text('ui', '--file', 'topology.toml')}")
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
        except RabbitChxError as error:
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
        except RabbitChxError as error:
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


def _value_of(reading: SharedReading[Document]) -> Document:
    """Return a document of now."""
    seen = reading.look()
    if seen.value is None or seen.error:
        raise InputError(seen.error)
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


def _status_of(error: RabbitChxError) -> int:
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, (InputError, MismatchError)):
        return 400
    return 403 if isinstance(error, BrokerRefusedError) else 503
