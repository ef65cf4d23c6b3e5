"""The pytest plugin: real brokers for tests, of the releases that an option names.

pytest loads it in every run of an environment that has rabbit_chx. So it imports only pytest at first, and everything else when a test asks
for a broker.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from rabbit_chx.testing import RunningBroker

    class _Worker(Protocol):
        """A worker of pytest-xdist. It also has `workeroutput` once it has ended in good order."""

        config: pytest.Config


_OPTION = "--chx-broker"
_IMAGE_OPTION = "--chx-image"
_PREFIX = "rabbit_chx: "
_NOT_RUN = f"{_PREFIX}not run, see the end"
_FAILED_BEFORE = f"{_PREFIX}the error is the one above"
_MAX_PROBLEMS = 20
#: The brokers that were used, in words.
USED = pytest.StashKey[list[str]]()
_began = pytest.StashKey[datetime]()
_USED_BY_WORKER = "rabbit_chx_used"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--chx-broker`` and ``--chx-image``."""
    group = parser.getgroup("rabbit_chx", "RabbitMQ brokers")
    group.addoption(
        _OPTION,
        action="append",
        default=[],
        metavar="SERIES",
        help="run what uses a broker on this release series, such as 4.3, in Docker; may be given more than once. "
        "Without it and --chx-image: on the broker of RABBIT_CHX_TEST_URL, else on the newest series in Docker",
    )
    group.addoption(
        _IMAGE_OPTION,
        action="append",
        default=[],
        metavar="IMAGE",
        help="run what uses a broker on this image of any registry, such as registry.example.com/rabbitmq:4.3-management, which behaves "
        "as the official images do; may be given more than once, also together with --chx-broker",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `chx_broker`."""
    config.stash[USED] = []
    if not hasattr(config, "workerinput"):
        config.stash[REASONS] = Reasons()
        config.pluginmanager.register(config.stash[REASONS])
    config.addinivalue_line(
        "markers",
        "chx_broker(releases='', reason=''): what the test needs of its broker: a range of releases such as '>=4.0,<4.3', and what these "
        "releases have",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return a line with the releases of the named brokers."""
    from rabbit_chx.testing.containers import image_version, named_broker_in_words

    if named_in_docker := _series_of(config):
        versions = (image_version(name) or f"{name} (no image here yet)" for name in named_in_docker)
        options = (option for option in (_OPTION, _IMAGE_OPTION) if config.getoption(option))
        return f"{_PREFIX}RabbitMQ {', '.join(versions)} in Docker, by {' and '.join(options)}"
    named = named_broker_in_words()
    return _PREFIX + named if named else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses a broker once for each named series and image."""
    named = _series_of(metafunc.config)
    if named and "_chx_series" in metafunc.fixturenames:
        metafunc.parametrize("_chx_series", named, indirect=True, scope="session")


def _series_of(config: pytest.Config) -> list[str]:
    """Return the named series and images; an image without a tag gets one, which tells it from a series."""
    images = (
        image if ":" in image or "/" in image else f"{image}:latest"
        for image in config.getoption(_IMAGE_OPTION)
    )
    return list(dict.fromkeys([*config.getoption(_OPTION), *images]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what a worker of pytest-xdist used, since workers write no summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_USED_BY_WORKER] = session.config.stash[USED]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: _Worker) -> None:
    """Take over what a worker of pytest-xdist used; a worker that crashed has handed over nothing."""
    node.config.stash[USED] += getattr(node, "workeroutput", {}).get(_USED_BY_WORKER, ())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember when a test began."""
    item.stash[_began] = datetime.now(UTC)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the warnings and errors that our own brokers logged during a failed test to its report."""
    report = yield
    if (
        report.failed
        and isinstance(item, pytest.Function)
        and "rabbit_chx.testing.running_broker" in sys.modules
    ):
        report.sections += _problems(item.funcargs.values(), item.stash[_began])
    return report


class Reasons:
    """The reasons for which tests did not run. Their text appears once: an error with the first test, that of skipped tests at the end."""

    def __init__(self) -> None:
        #: The number of tests by the reason, and by what a release lacks.
        self.not_run: Counter[str] = Counter()
        self.lacking: Counter[tuple[str, str, str]] = Counter()
        self._said: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Replace a text of ours that would appear again."""
        if report.skipped and isinstance(report.longrepr, tuple):
            path, line, reason = report.longrepr
            if needed := _NEEDS.search(reason):
                self.lacking[needed["releases"], needed["version"], needed["reason"] or ""] += 1
            elif _PREFIX in reason:
                self.not_run[reason.partition(_PREFIX)[2]] += 1
            else:
                return
            report.longrepr = (path, line, f"Skipped: {_NOT_RUN}")
        elif report.failed and _is_ours(text := str(report.longrepr)):
            if text in self._said:
                report.longrepr = _FAILED_BEFORE
            elif crash := getattr(report.longrepr, "reprcrash", None):
                crash.message = _FAILED_BEFORE  # in the short summary
            self._said.add(text)

    def lines(self) -> Iterator[str]:
        """Yield one line for each release that tests need and for each reason, and then what runs these tests."""
        ranges = dict.fromkeys((releases, version) for releases, version, _ in self.lacking)
        for releases, version in sorted(ranges):
            reasons = {
                reason: count
                for (*needs, reason), count in self.lacking.items()
                if needs == [releases, version]
            }
            total = sum(reasons.values())
            why = ", ".join(
                reason + (f" ({count})" if count < total else "")
                for reason, count in reasons.items()
                if reason
            )
            yield (
                f"{total} {'test needs' if total == 1 else 'tests need'} RabbitMQ {in_words(releases)}: this one is {version}"
                + (f" [{why}]" if why else "")
            )
        if ranges:
            yield f"To run them, with Docker: {_OPTION} SERIES, such as {_OPTION} 4.3"
        for reason, count in self.not_run.items():
            yield f"NOT RUN, {count} {'test' if count == 1 else 'tests'}: {reason}"


_NEEDS = re.compile(
    rf"{_PREFIX}needs RabbitMQ (?P<releases>\S+), not (?P<version>\S+?)(?: \[(?P<reason>.*)\])?$", re.DOTALL
)
_BOUNDS = {
    ">=": "{} or newer",
    ">": "newer than {}",
    "<=": "{} or older",
    "<": "before {}",
    "==": "{}",
    "!=": "other than {}",
}


def in_words(releases: str) -> str:
    """Return a range of releases in words: ``3.13 or newer`` for ``>=3.13``."""
    parts = re.findall(r"([<>=!~]+)\s*([^,\s]+)", releases)
    return " and ".join(_BOUNDS.get(sign, sign + "{}").format(version) for sign, version in parts)


def _is_ours(text: str) -> bool:
    return text.removeprefix("in CI this must run: ").startswith(_PREFIX)


#: What did not run, in the configuration of the process that reports.
REASONS = pytest.StashKey[Reasons]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write which brokers were used, and what did not run for lack of a broker."""
    not_run = list(config.stash[REASONS].lines())
    used = config.stash[USED]
    if used or not_run:
        terminalreporter.section("rabbit_chx")
    for origin in dict.fromkeys(used):
        terminalreporter.line(f"ran on {origin}")
    for line in not_run:
        terminalreporter.line(line, yellow=True)


@pytest.fixture(scope="session")
def _chx_series(request: pytest.FixtureRequest) -> str | None:
    """Return the series or image that an option names; None where none is named."""
    named = bool(_series_of(request.config))
    if named and not hasattr(request, "param"):
        pytest.fail(
            f"{_OPTION} reaches only tests that take a broker as an argument: take chx_broker or chx_vhost, or a "
            "fixture that does, instead of request.getfixturevalue(); the methods of a unittest.TestCase take no arguments",
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
    """Provide a real broker: of a series or an image that an option names, else the broker that `find_broker` finds."""
    from rabbit_chx.errors import RabbitChxError
    from rabbit_chx.testing import docker_broker
    from rabbit_chx.testing.containers import broker_is_named, enter_or_give_up

    with ExitStack() as stack:
        start = docker_broker(_chx_series) if _chx_series else _chx_find()
        named = bool(_chx_series) or broker_is_named()
        broker = enter_or_give_up(stack, start, RabbitChxError, named=named)
        request.config.stash[USED].append(broker.origin)
        yield broker


@pytest.fixture
def chx_vhost(chx_broker: RunningBroker) -> Iterator[RunningBroker]:
    """Provide `chx_broker` with a vhost of this test in its URL. It is deleted with all that is in it."""
    from rabbit_chx.errors import InputError
    from rabbit_chx.testing import temporary_vhost
    from rabbit_chx.testing.containers import enter_or_give_up

    with ExitStack() as stack:
        yield enter_or_give_up(stack, temporary_vhost(chx_broker), InputError)


@pytest.fixture(autouse=True)
def _chx_needs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Skip a test whose marker needs what its broker does not have; give `assert_parity` the broker."""
    for marker in request.node.iter_markers("chx_broker"):
        # The marker of a module is for its tests that take a broker.
        if "chx_broker" in request.fixturenames or marker in request.node.own_markers:
            _check(request, *marker.args, **marker.kwargs)
    if "chx_broker" not in request.fixturenames:
        yield
        return
    from rabbit_chx.testing import containers

    containers.broker_of_test = request.getfixturevalue("chx_broker")
    yield
    containers.broker_of_test = None


def _check(request: pytest.FixtureRequest, releases: str = "", reason: str = "") -> None:
    from rabbit_chx.testing.containers import release_is_in

    if "chx_broker" not in request.fixturenames:
        pytest.fail("the marker chx_broker is for tests that take chx_broker or chx_vhost", pytrace=False)
    broker: RunningBroker = request.getfixturevalue("chx_broker")
    if not release_is_in(broker.version, releases):
        # In CI as well: where this release does not match, another one of the same run does.
        needed = re.sub(r"\s", "", releases)
        pytest.skip(
            f"{_PREFIX}needs RabbitMQ {needed}, not {broker.version}" + (f" [{reason}]" if reason else "")
        )


def _problems(arguments: Iterable[object], since: datetime) -> Iterator[tuple[str, str]]:
    """Yield the warnings and errors that each broker among a test's arguments logged since a time, with their heading."""
    from rabbit_chx.errors import RabbitChxError
    from rabbit_chx.testing import RunningBroker

    given = (broker for broker in arguments if isinstance(broker, RunningBroker) and broker.owned)
    for broker in {id(broker.server): broker for broker in given}.values():
        try:
            lines = broker.problems(since)
        except (RabbitChxError, OSError) as error:
            lines = [str(error)]
        yield f"warnings and errors of {broker.origin} during the test", "\n".join(shorten(lines)) or "none"


def shorten(lines: list[str]) -> list[str]:
    """Return the last 20 of some lines of a log: a crash at the start of a server may fill pages before the failure."""
    left_out = len(lines) - _MAX_PROBLEMS + 1
    return [f"{left_out} earlier lines", *lines[left_out:]] if left_out > 1 else lines
