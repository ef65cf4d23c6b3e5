"""A Spark, and a site for it to write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fire_site import Site, site_on
from spark_driver import SparkDriver
from spark_runs import SparkRun
from standalone_spark import standalone_spark
from stream_files import StreamFiles

from rabbit_chx.testing import RunningBroker


@pytest.fixture(scope="module")
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkDriver]:
    """A Spark for the tests of a module: with its `MASTER`, or on a standalone cluster with its options `CLUSTER`, and with its `CONF`."""
    folder, module = tmp_path_factory.mktemp("spark"), request.module
    with ExitStack() as stack:
        if hasattr(module, "CLUSTER"):
            master = stack.enter_context(standalone_spark(folder / "cluster", **module.CLUSTER)).master
        else:
            master = module.MASTER
        driver = SparkDriver(folder, master, getattr(module, "CONF", {}))
        stack.callback(driver.stop)
        yield driver


@pytest.fixture
def start_driver(tmp_path: Path) -> Iterator[Callable[[], SparkDriver]]:
    """Starts drivers, one after another in the same folder."""
    with ExitStack() as stack:

        def start() -> SparkDriver:
            driver = SparkDriver(tmp_path / "spark", "local[2,4]")
            stack.callback(driver.stop)
            return driver

        yield start


@pytest.fixture
def site(vhost: RunningBroker) -> Iterator[Site]:
    """The exchange and its queues."""
    with site_on(vhost) as site:
        site.declare()
        yield site


@pytest.fixture
def prepared(driver: SparkDriver, site: Site, tmp_path: Path) -> Callable[..., SparkRun]:
    """Prepares a run of the driver on the site: ``prepared(options, by_proxy=False)``."""

    def prepare(options: dict[str, str] | None = None, *, by_proxy: bool = False) -> SparkRun:
        return SparkRun(driver, site, tmp_path, options or {}, by_proxy=by_proxy)

    return prepare


@pytest.fixture
def files(tmp_path: Path) -> StreamFiles:
    """The source of a stream."""
    files = StreamFiles(tmp_path / "stream")
    files.write()
    return files
