"""The pytest plugin: real brokers for tests, of the releases that an option names.

pytest loads it in every run of an environment that has rabbit_chx. So it imports only pytest at first, and everything else when a test asks
for a broker.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, NoReturn, Protocol

import pytest

if TYPE_CHECKING:
    from rabbit_chx.testing import RunningBroker

    class _Worker(Protocol):
        """A worker of pytest-xdist. It also has `workeroutput` once it has ended in good order."""

        config: pytest.Config


_OPTION = "--chx-broker"
_PREFIX = "rabbit_chx: "
_used = pytest.StashKey[list[str]]()
_USED_BY_WORKER = "rabbit_chx_used"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--chx-broker``."""
    group = parser.getgroup("rabbit_chx", "RabbitMQ brokers")
    group.addoption(
        _OPTION,
        action="append",
        default=[],
        metavar="SERIES",
        help="run what uses a broker on this release series, such as 4.3, or image, in Docker; may be given more than once. "
        "Without it: on the broker of RABBIT_CHX_TEST_URL, else on the newest series in Docker",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `chx_broker`."""
    config.stash[_used] = []
    config.addinivalue_line(
        "markers",
        "chx_broker(releases='', *, restartable=False): what the test needs of its broker: a range of releases such "
        "as '>=4.0,<4.3'; one that may be restarted and broken",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return a line with the releases of the named brokers."""
    from rabbit_chx.testing.broker_search import named_broker_in_words
    from rabbit_chx.testing.containers import image_version

    if series := dict.fromkeys(config.getoption(_OPTION)):
        versions = (image_version(name) or f"{name} (no image here yet)" for name in series)
        return f"{_PREFIX}RabbitMQ {', '.join(versions)} in Docker, by {_OPTION}"
    named = named_broker_in_words()
    return _PREFIX + named if named else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses a broker once for each named series."""
    series = metafunc.config.getoption(_OPTION)
    if series and "_chx_series" in metafunc.fixturenames:
        metafunc.parametrize("_chx_series", list(dict.fromkeys(series)), indirect=True, scope="session")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what a worker of pytest-xdist used, since workers write no summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_USED_BY_WORKER] = session.config.stash[_used]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: _Worker) -> None:
    """Take over what a worker of pytest-xdist used; a worker that crashed has handed over nothing."""
    node.config.stash[_used] += getattr(node, "workeroutput", {}).get(_USED_BY_WORKER, ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last log lines of our own brokers to the report of a failed test that used them."""
    report = yield
    if (
        report.failed
        and isinstance(item, pytest.Function)
        and "rabbit_chx.testing.running_broker" in sys.modules
    ):
        report.sections += _logs(item.funcargs.values())
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write which brokers were used, and what did not run for lack of a broker."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ())]
    not_run = Counter(reason.partition(_PREFIX)[2] for reason in reasons if _PREFIX in reason)
    used = config.stash[_used]
    if used or not_run:
        terminalreporter.section("rabbit_chx")
    for origin in dict.fromkeys(used):
        terminalreporter.line(f"ran on {origin}")
    for reason, count in not_run.items():
        terminalreporter.line(f"NOT RUN, {count} {'test' if count == 1 else 'tests'}: {reason}", yellow=True)


@pytest.fixture(scope="session")
def _chx_series(request: pytest.FixtureRequest) -> str | None:
    """Return the series that the option names; None where it names none."""
    named = request.config.getoption(_OPTION)
    if named and not hasattr(request, "param"):
        pytest.fail(
            f"{_OPTION} reaches only tests that take a broker as an argument: take chx_broker or chx_vhost, or a "
            "fixture that does, instead of request.getfixturevalue()",
            pytrace=False,
        )
    return request.param if named else None


@pytest.fixture(scope="session")
def _chx_find() -> Callable[[], AbstractContextManager[RunningBroker]]:
    """Return what finds a broker where no series is named."""
    from rabbit_chx.testing import find_broker

    return find_broker


@pytest.fixture(scope="session")
def chx_broker(
    request: pytest.FixtureRequest,
    _chx_series: str | None,
    _chx_find: Callable[[], AbstractContextManager[RunningBroker]],
) -> Iterator[RunningBroker]:
    """Provide a real broker: of a series that `--chx-broker` names, else the broker that `find_broker` finds."""
    from rabbit_chx.errors import RabbitChxError
    from rabbit_chx.testing import docker_broker
    from rabbit_chx.testing.broker_search import broker_is_named

    with ExitStack() as stack:
        try:
            start = docker_broker(_chx_series) if _chx_series else _chx_find()
            broker = stack.enter_context(start)
        except RabbitChxError as error:
            _give_up(error, named=bool(_chx_series) or broker_is_named())
        request.config.stash[_used].append(broker.origin)
        yield broker


@pytest.fixture
def chx_vhost(chx_broker: RunningBroker) -> Iterator[RunningBroker]:
    """Provide `chx_broker` with a vhost of this test in its URL. It is deleted with all that is in it."""
    from rabbit_chx.errors import InputError
    from rabbit_chx.testing import temporary_vhost

    with ExitStack() as stack:
        try:
            inside = stack.enter_context(temporary_vhost(chx_broker))
        except InputError as error:
            _give_up(error, named=False)
        yield inside


@pytest.fixture(autouse=True)
def _chx_needs(request: pytest.FixtureRequest) -> None:
    """Skip a test whose marker needs what its broker does not have."""
    for marker in request.node.iter_markers("chx_broker"):
        _check(request, *marker.args, **marker.kwargs)


def _check(request: pytest.FixtureRequest, releases: str = "", *, restartable: bool = False) -> None:
    from rabbit_chx.testing import skip_unless_ci
    from rabbit_chx.testing.broker_search import release_is_in

    if "chx_broker" not in request.fixturenames:
        pytest.fail("the marker chx_broker is for tests that take chx_broker or chx_vhost", pytrace=False)
    broker: RunningBroker = request.getfixturevalue("chx_broker")
    if not release_is_in(broker.version, releases):
        # In CI as well: where this release does not match, another one of the same run does.
        pytest.skip(f"{_PREFIX}needs RabbitMQ {releases}, not {broker.version}")
    if restartable and not broker.owned:
        skip_unless_ci(f"{_PREFIX}needs a broker that may be restarted, not {broker.origin}")


def _logs(arguments: Iterable[object]) -> Iterator[tuple[str, str]]:
    """Yield the log of each broker among a test's arguments, with its heading."""
    from rabbit_chx.errors import RabbitChxError
    from rabbit_chx.testing import RunningBroker

    given = (broker for broker in arguments if isinstance(broker, RunningBroker) and broker.owned)
    for broker in {id(broker.server): broker for broker in given}.values():
        try:
            log = broker.log()
        except (RabbitChxError, OSError) as error:
            log = str(error)
        yield f"log of {broker.origin}", log


def _give_up(error: Exception, *, named: bool) -> NoReturn:
    """Skip the test; fail it in CI, and where the broker was named."""
    from rabbit_chx.testing import skip_unless_ci

    if named:
        pytest.fail(f"{_PREFIX}{error}", pytrace=False)
    skip_unless_ci(f"{_PREFIX}{error}")
