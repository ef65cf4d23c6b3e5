"""Fixtures that every kind of test may use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from exchange_types import CHX
from hypothesis import settings

from rabbit_chx.testing.pytest_plugin import REASONS, USED, in_words

# Each worker of the unit tests loads this file, so what only some tests need is imported where it is used.
if TYPE_CHECKING:
    import pika
    from cluster import RunningCluster
    from pika.adapters.blocking_connection import BlockingChannel
    from pyspark.sql import SparkSession

    from rabbit_chx.testing import RunningBroker

# A deadline measures how busy the machine is.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


TESTS = Path(__file__).resolve().parent
#: The release of Debian 12, on which `make test` runs where there is no Docker.
DEBIAN_12 = "3.10.8"
# The files that take longest, the longest first. `make test` runs only their tests with the marker `core`.
SLOW_FILES = (
    "docs/test_typed_pages.py",
    "docs/test_readme.py",
    "broker/test_ring_records.py",
    "broker/test_read_process_write.py",
    "broker/test_group_faults.py",
    "spark/test_standalone.py",
    "broker/test_cluster.py",
    "broker/test_federation.py",
    "spark/test_stream_source.py",
    "broker/test_slot_hand_over.py",
    "fire/spark/test_driver_faults.py",
    "docs/test_testing.py",
    "spark/test_stream_sink.py",
    "fire/spark/test_task_faults.py",
    "spark/test_stream_batches.py",
    "spark/test_secrets.py",
    "spark/test_queues.py",
    "broker/test_stream_group.py",
    "broker/test_stream_following.py",
    "spark/test_examples.py",
    "broker/test_running_broker.py",
    "fire/group/test_broker_faults.py",
    "broker/test_topology_command.py",
    "spark/test_oauth.py",
    "docs/test_cli_live.py",
    "fire/spark/test_batch_faults.py",
    "spark/test_discovery.py",
    "broker/test_repair_command.py",
    "broker/test_permissions.py",
    "spark/test_batch_write.py",
    "spark/test_placement.py",
    "spark/test_connect.py",
    "spark/test_pushed_filters.py",
    "docs/test_lone_blocks.py",
    "broker/test_canary.py",
)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was found."""

    queue: str
    key: str
    body: bytes
    properties: pika.BasicProperties


@pytest.fixture(scope="session")
def _chx_find(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[RunningBroker]]:
    """What finds the plugin's broker: a server of this machine is accepted, too. As root on Debian or Ubuntu, the tests install one, if none is there."""
    from found_broker import find_broker

    if not request.config.getoption("--chx-broker"):
        from server_installation import install_if_needed

        from rabbit_chx.errors import NoBrokerError

        with suppress(NoBrokerError):  # `find_broker` says what is missing
            install_if_needed()
    return find_broker


@pytest.fixture(scope="session")
def chx_cluster(_chx_series: str | None) -> Iterator[RunningCluster]:
    """A cluster of three nodes in Docker, which are together when the test begins."""
    from cluster import docker_cluster
    from found_broker import need

    need("docker")
    with docker_cluster(_chx_series or "4.3") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def broker(chx_broker: RunningBroker) -> RunningBroker:
    """A real broker: the named one, or one of our own that goes with the session."""
    return chx_broker


@pytest.fixture(autouse=True)
def _needs_own_broker(request: pytest.FixtureRequest) -> None:
    """Skip a test that breaks its broker if somebody else started the broker; in CI fail it."""
    if request.node.get_closest_marker("own_broker"):
        from rabbit_chx.testing import skip_unless_ci

        broker: RunningBroker = request.getfixturevalue("chx_broker")
        if not broker.owned:
            skip_unless_ci(f"rabbit_chx: needs a broker that may be restarted, not {broker.origin}")


@pytest.fixture
def vhost(chx_vhost: RunningBroker) -> RunningBroker:
    """The broker, with a fresh vhost in its URL, and a quick way to its rings."""
    from quick_rings import quick_broker

    return quick_broker(chx_vhost)


@pytest.fixture
def vhost_url(vhost: RunningBroker) -> str:
    """The URL of a fresh vhost."""
    return vhost.url


@pytest.fixture
def run_pytest(tmp_path: Path) -> Callable[..., str]:
    """Runs pytest on a test file as a user of the plugin does, outside this project, and returns what it says."""

    def run(code: str, *arguments: str, **environment: str) -> str:
        (tmp_path / "test_users_own.py").write_text(code)
        ours = {"CI", *(name for name in os.environ if name.startswith(("RABBIT_CHX_TEST_", "PYTEST_")))}
        inherited = {name: value for name, value in os.environ.items() if name not in ours}
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-W",
                "error",
                "--strict-markers",
                "-p",
                "no:cacheprovider",
                *arguments,
            ],
            cwd=tmp_path,
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.stdout + done.stderr

    return run


@pytest.fixture
def channel(vhost_url: str) -> Iterator[BlockingChannel]:
    """A channel on which a hash exchange `x` is declared, with the queues q1, q2 and q3 of weights 1, 2 and 3."""
    import pika

    from rabbit_chx.broker import pika_parameters

    # Nobody serves the connection while a test runs a program, which may take longer than two heartbeats.
    with pika.BlockingConnection(pika_parameters(f"{vhost_url}?heartbeat=0")) as connection:
        channel = connection.channel()
        channel.exchange_declare("x", CHX, durable=True)
        for weight in (1, 2, 3):
            channel.queue_declare(f"q{weight}", durable=True)
            channel.queue_bind(f"q{weight}", "x", str(weight))
        yield channel


@pytest.fixture
def consumed(channel: BlockingChannel) -> Callable[[], list[Message]]:
    """Takes every message out of q1, q2 and q3."""

    def consume() -> list[Message]:
        found: list[Message] = []
        for queue in ("q1", "q2", "q3"):
            left = channel.queue_declare(queue, passive=True).method.message_count or 0
            coming: Iterator[Any] = channel.consume(queue, auto_ack=True, inactivity_timeout=30)
            for method, properties, body in islice(coming, left):
                assert method is not None, f"{queue} does not give what it holds"
                found.append(Message(queue, method.routing_key, body, properties))
            channel.cancel()
        return found

    return consume


@pytest.fixture(scope="session", autouse=True)
def _no_early_signs_of_life() -> None:
    """A busy machine adds no lines to the stderr of commands that tests run in their own process."""
    from rabbit_chx.rendering import progress

    progress._FIRST_LINE_S = 30.0


@pytest.fixture(scope="session", autouse=True)
def _spark_of_tests() -> None:
    """Executors run this Python, and drivers start fast; those that tests start as programs, too."""
    from spark_archive import ARCHIVE, SHORT_LIVED_JVM, with_archive

    os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and tables in a pipe would fit it
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", with_archive(SHORT_LIVED_JVM, ARCHIVE))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED_JVM)


@pytest.hookimpl(tryfirst=True)  # before pytest applies `-m`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the slow files to the front, since a worker that gets one at the end leaves the others idle; mark what is slow or extended."""
    rank = {(TESTS / path).resolve(strict=True): number for number, path in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
    for item in items:
        if TESTS / "fire" in item.path.parents:
            item.add_marker("slow")
        own_broker = item.get_closest_marker("docker") or item.get_closest_marker("restarts")
        is_core = item.get_closest_marker("core")
        if item.get_closest_marker("slow") or ((own_broker or item.path in rank) and not is_core):
            item.add_marker("extended")
        ranges = [marker.args[0] for marker in item.iter_markers("chx_broker") if marker.args]
        if ranges:
            from rabbit_chx.testing.containers import release_is_in

            if not all(release_is_in(DEBIAN_12, releases) for releases in ranges):
                item.add_marker("newer")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Watch what the test may start. Skip what the installed PySpark cannot do, and say why."""
    if item.get_closest_marker("broker") or item.get_closest_marker("docker"):
        from reaper import watch_containers

        watch_containers()
    for marker in item.iter_markers("pyspark"):
        import pyspark
        from packaging.version import Version

        needed, reason = marker.args
        if Version(pyspark.__version__) < Version(needed):
            pytest.skip(f"NOT ON PYSPARK {pyspark.__version__}: {reason} needs {needed} or newer")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--release-results``."""
    parser.addoption(
        "--release-results",
        type=Path,
        metavar="FILE",
        help="write how many tests passed on this release, and why others did not run, into this file",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write one line for each reason for which tests were skipped, except those of brokers, which the plugin writes."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if "rabbit_chx: " not in reason:
            reasons[reason.removeprefix("Skipped: ")] += 1
    if reasons:
        terminalreporter.section("skipped for other reasons")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count} {'test' if count == 1 else 'tests'}: {reason}", yellow=True)
    path: Path | None = config.getoption("--release-results")
    releases = {
        match[1] for origin in config.stash[USED] if (match := re.search(r"RabbitMQ (\d[\d.]+)", origin))
    }
    if (
        path is None
        or len(releases) != 1
        or terminalreporter.getreports("failed") + terminalreporter.getreports("error")
    ):
        return
    from release_table import record_run

    for (needed, _, reason), count in config.stash[REASONS].lacking.items():
        reasons[f"need {in_words(needed)}" + (f" ({reason})" if reason else "")] += count
    reasons.update(config.stash[REASONS].not_run)
    passed = len(terminalreporter.getreports("passed"))
    record_run(path, releases.pop(), passed, dict(reasons), datetime.now(UTC).date().isoformat())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark on two cores that has not been told of our format."""
    from pyspark.sql import SparkSession

    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .getOrCreate()
    )
    yield session
    session.stop()
