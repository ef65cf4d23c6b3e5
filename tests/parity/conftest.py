"""Brokers and clusters of several releases, one after another, and the count of what was compared.

``RELEASES`` names them, as in ``RELEASES="3.10 4.3"``: one that is named and cannot be had is a failure. Without it
all that are known here are tried, and those that cannot be had are skipped, loudly.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from cluster import RunningCluster, docker_cluster
from reaper import watch_containers

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.routing import Release
from rabbit_chx.testing import RunningBroker, docker_broker, skip_unless_ci

if TYPE_CHECKING:
    Started = TypeVar("Started", RunningBroker, RunningCluster)

KNOWN = "3.10 4.0 4.3"
SERIES = re.compile(r"\[(\d+\.\d+)[]-]")  # as it stands in the name of a test
COMPARED = pytest.StashKey[Counter[str]]()
NOTES = pytest.StashKey[list[str]]()


@dataclass(frozen=True, slots=True)
class Compared:
    """The count of what was compared with one release.

    Attributes:
        release: the version and the store.
        compared: how many messages were found where the mirror had said, by version.
        notes: what the summary tells of them beside.
    """

    release: Release
    compared: Counter[str]
    notes: list[str]

    def count(self, messages: int) -> None:
        """Take note of messages that were compared, all of them equal."""
        self.compared[self.release.version] += messages

    def note(self, finding: str) -> None:
        """Have the summary tell something."""
        self.notes.append(f"{self.release}: {finding}")


@dataclass(frozen=True, slots=True)
class Rabbit(Compared):
    """A broker of one release.

    Attributes:
        broker: it may be broken; it serves this session alone.
    """

    broker: RunningBroker


@dataclass(frozen=True, slots=True)
class Rabbits(Compared):
    """A cluster of one release.

    Attributes:
        cluster: its nodes may be broken; it serves this session alone.
    """

    cluster: RunningCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-routes",
        action="store_true",
        help="write what each broker did to tests/vectors/routes-RELEASE.json.gz",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COMPARED] = Counter()
    config.stash[NOTES] = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    series = (os.environ.get("RELEASES") or KNOWN).split()
    for fixture in {"own_broker", "own_cluster"}.intersection(metafunc.fixturenames):
        metafunc.parametrize(fixture, series, indirect=True, scope="session")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With workers of pytest-xdist, what shares a broker or a cluster shares a worker."""
    from xdist.scheduler import LoadScopeScheduling

    class ByBroker(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path, _, name = nodeid.partition("::")
            (series,) = SERIES.findall(name) or [""]
            return f"{series} {theme(path)}"

    return ByBroker(config, log)


def theme(path: str) -> str:
    """Return which tests of a release share a broker or a cluster, if there are workers."""
    if "cluster" in path:
        return "cluster"
    return "topologies" if "topology" in path or "forecast" in path else "routes"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let workers begin with what takes longest; without them, all tests of a release share one broker.

    A cluster is one test only, so a worker that gets one takes more at once: at the end it would take all of them.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: ("cluster", "topologies", "routes").index(theme(item.path.name)))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands over what it compared: it writes no summary."""
    compared: Counter[str] = session.config.stash[COMPARED]
    if hasattr(session.config, "workeroutput"):
        output = {"compared": dict(compared), "notes": session.config.stash[NOTES]}
        session.config.workeroutput.update(output)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended; one that crashed has handed over nothing."""
    output, config = getattr(node, "workeroutput", {}), cast("pytest.Config", node.config)
    config.stash[COMPARED].update(output.get("compared", {}))
    config.stash[NOTES] += output.get("notes", ())


@pytest.fixture(scope="session")
def own_broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker of our own, one after another of every release that is named."""
    with started(docker_broker, request.param) as broker:
        yield broker


@pytest.fixture(scope="session")
def own_cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """A cluster of three nodes of our own, likewise."""
    with started(docker_cluster, request.param) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def rabbit(own_broker: RunningBroker, pytestconfig: pytest.Config) -> Rabbit:
    """The broker, and the count of what is compared with it."""
    stash = pytestconfig.stash
    return Rabbit(Release(own_broker.version), stash[COMPARED], stash[NOTES], own_broker)


@pytest.fixture(scope="session")
def rabbits(own_cluster: RunningCluster, pytestconfig: pytest.Config) -> Rabbits:
    """The cluster, and the count of what is compared with it."""
    stash = pytestconfig.stash
    return Rabbits(Release(own_cluster.version), stash[COMPARED], stash[NOTES], own_cluster)


@contextmanager
def started(start: Callable[[str], AbstractContextManager[Started]], series: str) -> Iterator[Started]:
    """What serves; the test fails, or is skipped, where the release cannot be had."""
    watch_containers()
    try:
        with start(series) as running:
            yield running
    except RabbitChxError as error:
        if os.environ.get("RELEASES"):
            raise
        skip_unless_ci(f"no broker {series}: {error}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    compared = config.stash[COMPARED]
    if not compared:
        return
    failed = len(terminalreporter.getreports("failed")) + len(terminalreporter.getreports("error"))
    terminalreporter.section("what the brokers did")
    for note in config.stash[NOTES]:
        terminalreporter.write_line(note)
    terminalreporter.section("messages compared with the mirror")
    for version, messages in compared.items():
        terminalreporter.write_line(f"RabbitMQ {version:<8} {messages:>10,}")
    terminalreporter.write_line(
        f"in all            {sum(compared.values()):>10,}, "
        + (f"but {failed} tests failed: see whether they are mismatches" if failed else "mismatches 0")
    )
