"""A Spark, and a site for it to write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fire_site import Site, site_on
from spark_driver import SparkDriver
from spark_runs import SparkRun
from stream_files import StreamFiles

from rabbit_chx.testing import RunningBroker


@pytest.fixture(scope="module")
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkDriver]:
    """A Spark for the tests of a module: with the `MASTER` and the `CONF` of the module."""
    conf: dict[str, str] = getattr(request.module, "CONF", {})
    driver = SparkDriver(tmp_path_factory.mktemp("spark"), request.module.MASTER, conf)
    yield driver
    driver.stop()


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
